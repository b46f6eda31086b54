package codec

import (
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/debezium/connect"
)

const unknownLength = 1<<31 - 1

// sourceParameters describe a column's type as column.propagate.source.type
// does: with the driver's ideas of length and scale.
func sourceParameters(column string, t TypeInfo) []connect.Parameter {
	length, scale := driverLength(t)
	const prefix = "__debezium.source.column."
	return []connect.Parameter{
		{Name: prefix + "type", Value: strings.ToUpper(t.Name)},
		{Name: prefix + "length", Value: strconv.FormatInt(length, 10)},
		{Name: prefix + "scale", Value: strconv.FormatInt(scale, 10)},
		{Name: prefix + "name", Value: column},
	}
}

func driverLength(t TypeInfo) (length, scale int64) {
	oid, mod := t.OID, int64(t.TypeMod)
	if t.Elem != nil {
		oid = t.Elem.OID
	}
	seconds := int64(7) // the width of the fraction with its point
	switch mod {
	case -1:
	case 0:
		seconds = 0
	case 1:
		seconds = 3
	default:
		seconds = mod + 1
	}
	digits := mod
	if mod == -1 {
		digits = 6
	}
	switch oid {
	case oidInt2:
		return 5, 0
	case oidInt4, oidOID:
		return 10, 0
	case oidInt8:
		return 19, 0
	case oidFloat4:
		return 8, 8
	case oidFloat8:
		return 17, 17
	case oidNumeric:
		if mod == -1 {
			return 0, 0
		}
		return (mod - 4) >> 16, (mod - 4) & 0xffff
	case oidBool, oidChar:
		return 1, 0
	case oidBpchar, oidVarchar:
		if mod == -1 {
			return unknownLength, 0
		}
		return mod - 4, 0
	case oidDate:
		return 13, 0
	case oidTime:
		return 8 + seconds, digits
	case oidTimeTZ:
		return 14 + seconds, digits
	case oidTimestamp:
		return 22 + seconds, digits
	case oidTimestampTZ:
		return 28 + seconds, digits
	case oidInterval:
		if mod == -1 {
			return 49, 6
		}
		return 49, mod & 0xffff
	case oidBit:
		return mod, 0
	case oidVarbit:
		if mod == -1 {
			return unknownLength, 0
		}
		return mod, 0
	default:
		return unknownLength, 0
	}
}
