package router

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// form is what a column's text is made of, which decides how it is read as a
// payload, as headers, or as a member of a JSON value.
type form byte

const (
	formText    form = iota // text, and any type without a rule of its own
	formScalar              // uuid, date, timestamp, timestamptz: text with a fixed grammar
	formBool                // t or f
	formInteger             // smallint, integer, bigint
	formNumber              // numeric, real, double precision
	formJSON                // json, jsonb
	formBytes               // bytea; its text is \x and hex digits
	formHstore
	formArray       // text[] or varchar[]
	formList        // an array of anything else
	formOpaque      // text form of PostgreSQL's own, in which equal values may differ
	formLargeObject // oid: may be no more than the number of a large object
	formComposite   // a row type, as far as the catalog says so
)

// reader appends the text form of a value in its send format; false when data
// is not of that format.
type reader func(dst, data []byte) ([]byte, bool)

// columnType is what is known about a type.
type columnType struct {
	oid   uint32 // 0: its OID differs between databases
	names []string
	form  form

	// exact says that the text form can be made from the binary form, byte for
	// byte as the server writes it under DateStyle ISO and TimeZone UTC. read
	// makes it; nil when the two are the same bytes.
	exact bool
	read  reader
}

// columnTypes has every type that is more than opaque text to the router.
// testdata/types.golden holds what a real server says about the exact ones.
var columnTypes = []columnType{
	{oid: 16, names: []string{"bool", "boolean"}, form: formBool, exact: true, read: readBool},
	{oid: 17, names: []string{"bytea"}, form: formBytes, exact: true, read: readBytes},
	{oid: 19, names: []string{"name"}, exact: true},
	{oid: 20, names: []string{"int8", "bigint"}, form: formInteger, exact: true, read: readInt},
	{oid: 21, names: []string{"int2", "smallint"}, form: formInteger, exact: true, read: readInt},
	{oid: 23, names: []string{"int4", "integer"}, form: formInteger, exact: true, read: readInt},
	{oid: 25, names: []string{"text"}, exact: true},
	{oid: 26, names: []string{"oid"}, form: formLargeObject},
	{oid: 114, names: []string{"json"}, form: formJSON, exact: true},
	{oid: 142, names: []string{"xml"}, form: formOpaque},
	{oid: 600, names: []string{"point"}, form: formOpaque},
	{oid: 601, names: []string{"lseg"}, form: formOpaque},
	{oid: 602, names: []string{"path"}, form: formOpaque},
	{oid: 603, names: []string{"box"}, form: formOpaque},
	{oid: 604, names: []string{"polygon"}, form: formOpaque},
	{oid: 628, names: []string{"line"}, form: formOpaque},
	{oid: 700, names: []string{"float4", "real"}, form: formNumber},
	{oid: 701, names: []string{"float8", "double precision"}, form: formNumber},
	{oid: 718, names: []string{"circle"}, form: formOpaque},
	{oid: 1000, names: []string{"_bool"}, form: formList},
	{oid: 1001, names: []string{"_bytea"}, form: formList},
	{oid: 1005, names: []string{"_int2"}, form: formList},
	{oid: 1007, names: []string{"_int4"}, form: formList},
	{oid: 1009, names: []string{"_text", "text[]"}, form: formArray},
	{oid: 1015, names: []string{"_varchar", "character varying[]", "varchar[]"}, form: formArray},
	{oid: 1016, names: []string{"_int8"}, form: formList},
	{oid: 1021, names: []string{"_float4"}, form: formList},
	{oid: 1022, names: []string{"_float8"}, form: formList},
	{oid: 1042, names: []string{"bpchar", "character"}, exact: true},
	{oid: 1043, names: []string{"varchar", "character varying"}, exact: true},
	{oid: 1082, names: []string{"date"}, form: formScalar, exact: true, read: appendDate},
	{oid: 1114, names: []string{"timestamp", "timestamp without time zone"}, form: formScalar, exact: true, read: appendTimestamp},
	{oid: 1184, names: []string{"timestamptz", "timestamp with time zone"}, form: formScalar, exact: true, read: appendTimestampTZ},
	{oid: 1115, names: []string{"_timestamp"}, form: formList},
	{oid: 1182, names: []string{"_date"}, form: formList},
	{oid: 1185, names: []string{"_timestamptz"}, form: formList},
	{oid: 1186, names: []string{"interval"}, form: formOpaque},
	{oid: 1231, names: []string{"_numeric"}, form: formList},
	{oid: 1700, names: []string{"numeric"}, form: formNumber},
	{oid: 2950, names: []string{"uuid"}, form: formScalar, exact: true, read: readUUID},
	{oid: 2951, names: []string{"_uuid"}, form: formList},
	{oid: 3614, names: []string{"tsvector"}, form: formOpaque},
	{oid: 3615, names: []string{"tsquery"}, form: formOpaque},
	{oid: 3807, names: []string{"_jsonb"}, form: formList},
	{oid: 199, names: []string{"_json"}, form: formList},
	{oid: 3904, names: []string{"int4range"}, form: formOpaque},
	{oid: 3906, names: []string{"numrange"}, form: formOpaque},
	{oid: 3908, names: []string{"tsrange"}, form: formOpaque},
	{oid: 3910, names: []string{"tstzrange"}, form: formOpaque},
	{oid: 3912, names: []string{"daterange"}, form: formOpaque},
	{oid: 3926, names: []string{"int8range"}, form: formOpaque},
	{oid: 4451, names: []string{"int4multirange"}, form: formOpaque},
	{oid: 4532, names: []string{"nummultirange"}, form: formOpaque},
	{oid: 4533, names: []string{"tsmultirange"}, form: formOpaque},
	{oid: 4534, names: []string{"tstzmultirange"}, form: formOpaque},
	{oid: 4535, names: []string{"datemultirange"}, form: formOpaque},
	{oid: 4536, names: []string{"int8multirange"}, form: formOpaque},
	{oid: 3802, names: []string{"jsonb"}, form: formJSON, exact: true, read: readJSONB},
	{names: []string{"hstore"}, form: formHstore},
}

// typeOf finds a column's type by OID, else by name: a domain has an OID of its
// own and comes with its base type's name. Only built-in OIDs are exact.
func typeOf(col wal.Column) columnType {
	if col.Composite {
		return columnType{form: formComposite}
	}
	for _, t := range columnTypes {
		if t.oid == col.Type && t.oid != 0 {
			return t
		}
	}
	name := strings.ToLower(col.TypeName)
	name = name[strings.LastIndexByte(name, '.')+1:]
	array := strings.HasSuffix(name, "[]")
	if i := strings.IndexByte(name, '('); i > 0 { // varchar(20), timestamp(3) with time zone
		rest := name[i:]
		name = name[:i] + rest[strings.IndexByte(rest, ')')+1:]
		if array && !strings.HasSuffix(name, "[]") {
			name += "[]"
		}
	}
	name = strings.Trim(name, `" `)
	for _, t := range columnTypes {
		for _, n := range t.names {
			if n == name {
				t.exact, t.read = false, nil
				return t
			}
		}
	}
	if col.Array || array {
		return columnType{form: formList}
	}
	return columnType{}
}

// TypeName is a column's type as SQL writes it.
func TypeName(col wal.Column) string {
	name := col.TypeName
	for _, t := range columnTypes {
		if name == "" && t.oid == col.Type && t.oid != 0 {
			name = t.names[0]
		}
	}
	if name == "" {
		return fmt.Sprintf("OID %d", col.Type)
	}
	if element, array := strings.CutPrefix(name, "_"); array {
		return element + "[]"
	}
	return name
}

func readBool(dst, data []byte) ([]byte, bool) {
	if len(data) != 1 || data[0] > 1 {
		return dst, false
	}
	return append(dst, "ft"[data[0]]), true
}

func readInt(dst, data []byte) ([]byte, bool) {
	var v int64
	switch len(data) {
	case 2:
		v = int64(int16(binary.BigEndian.Uint16(data)))
	case 4:
		v = int64(int32(binary.BigEndian.Uint32(data)))
	case 8:
		v = int64(binary.BigEndian.Uint64(data))
	default:
		return dst, false
	}
	return strconv.AppendInt(dst, v, 10), true
}

const lowerHex = "0123456789abcdef"

func readBytes(dst, data []byte) ([]byte, bool) {
	dst = append(dst, '\\', 'x')
	for _, c := range data {
		dst = append(dst, lowerHex[c>>4], lowerHex[c&15])
	}
	return dst, true
}

func readUUID(dst, data []byte) ([]byte, bool) {
	if len(data) != 16 {
		return dst, false
	}
	for i, c := range data {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		dst = append(dst, lowerHex[c>>4], lowerHex[c&15])
	}
	return dst, true
}

// readJSONB takes the version byte off; version 1 is the only one there is.
func readJSONB(dst, data []byte) ([]byte, bool) {
	if len(data) < 1 || data[0] != 1 {
		return dst, false
	}
	return append(dst, data[1:]...), true
}

// unhex appends the bytes of a bytea's text form.
func unhex(dst, text []byte) ([]byte, bool) {
	if len(text) < 2 || len(text)%2 != 0 || text[0] != '\\' || text[1] != 'x' {
		return dst, false
	}
	for i := 2; i < len(text); i += 2 {
		high, ok1 := hexDigit(text[i])
		low, ok2 := hexDigit(text[i+1])
		if !ok1 || !ok2 {
			return dst, false
		}
		dst = append(dst, high<<4|low)
	}
	return dst, true
}

// keyable tells whether a key may be made of a whole column of type t.
func keyable(t columnType) bool {
	return !slices.Contains([]form{formJSON, formComposite, formArray, formList, formHstore, formLargeObject, formOpaque}, t.form)
}
