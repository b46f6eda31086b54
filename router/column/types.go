package column

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/jsontext"
)

// Form is what a column's text is made of, which decides how it is read as a
// payload, as headers, or as a member of a JSON value.
type Form byte

const (
	FormText    Form = iota // text, and any type without a rule of its own
	FormScalar              // uuid, date, timestamp, timestamptz: text with a fixed grammar
	FormBool                // t or f
	FormInteger             // smallint, integer, bigint
	FormNumber              // numeric, real, double precision
	FormJSON                // json, jsonb
	FormBytes               // bytea; its text is \x and hex digits
	FormHstore
	FormArray       // text[] or varchar[]
	FormList        // an array of anything else
	FormOpaque      // text form of PostgreSQL's own, in which equal values may differ
	FormLargeObject // oid: may be no more than the number of a large object
	FormComposite   // a row type, as far as the catalog says so
)

// reader appends the text form of a value in its send format; false when data
// is not of that format.
type reader func(dst, data []byte) ([]byte, bool)

// Type is what is known about a type.
type Type struct {
	oid   uint32 // 0: its OID differs between databases
	Names []string
	Form  Form

	// exact: the text form can be made from the binary form, byte for
	// byte as the server writes it under DateStyle ISO and TimeZone UTC. read
	// makes it; nil when the two are the same bytes.
	exact bool
	read  reader
}

// columnTypes has every type that is more than opaque text to the router.
// testdata/types.golden holds what a real server says about the exact ones.
var columnTypes = []Type{
	{oid: 16, Names: []string{"bool", "boolean"}, Form: FormBool, exact: true, read: readBool},
	{oid: 17, Names: []string{"bytea"}, Form: FormBytes, exact: true, read: readBytes},
	{oid: 19, Names: []string{"name"}, exact: true},
	{oid: 20, Names: []string{"int8", "bigint"}, Form: FormInteger, exact: true, read: readInt},
	{oid: 21, Names: []string{"int2", "smallint"}, Form: FormInteger, exact: true, read: readInt},
	{oid: 23, Names: []string{"int4", "integer"}, Form: FormInteger, exact: true, read: readInt},
	{oid: 25, Names: []string{"text"}, exact: true},
	{oid: 26, Names: []string{"oid"}, Form: FormLargeObject},
	{oid: 114, Names: []string{"json"}, Form: FormJSON, exact: true},
	{oid: 142, Names: []string{"xml"}, Form: FormOpaque},
	{oid: 600, Names: []string{"point"}, Form: FormOpaque},
	{oid: 601, Names: []string{"lseg"}, Form: FormOpaque},
	{oid: 602, Names: []string{"path"}, Form: FormOpaque},
	{oid: 603, Names: []string{"box"}, Form: FormOpaque},
	{oid: 604, Names: []string{"polygon"}, Form: FormOpaque},
	{oid: 628, Names: []string{"line"}, Form: FormOpaque},
	{oid: 700, Names: []string{"float4", "real"}, Form: FormNumber},
	{oid: 701, Names: []string{"float8", "double precision"}, Form: FormNumber},
	{oid: 718, Names: []string{"circle"}, Form: FormOpaque},
	{oid: 1000, Names: []string{"_bool"}, Form: FormList},
	{oid: 1001, Names: []string{"_bytea"}, Form: FormList},
	{oid: 1005, Names: []string{"_int2"}, Form: FormList},
	{oid: 1007, Names: []string{"_int4"}, Form: FormList},
	{oid: 1009, Names: []string{"_text", "text[]"}, Form: FormArray},
	{oid: 1015, Names: []string{"_varchar", "character varying[]", "varchar[]"}, Form: FormArray},
	{oid: 1016, Names: []string{"_int8"}, Form: FormList},
	{oid: 1021, Names: []string{"_float4"}, Form: FormList},
	{oid: 1022, Names: []string{"_float8"}, Form: FormList},
	{oid: 1042, Names: []string{"bpchar", "character"}, exact: true},
	{oid: 1043, Names: []string{"varchar", "character varying"}, exact: true},
	{oid: 1082, Names: []string{"date"}, Form: FormScalar, exact: true, read: appendDate},
	{oid: 1114, Names: []string{"timestamp", "timestamp without time zone"}, Form: FormScalar, exact: true, read: appendTimestamp},
	{oid: 1184, Names: []string{"timestamptz", "timestamp with time zone"}, Form: FormScalar, exact: true, read: appendTimestampTZ},
	{oid: 1115, Names: []string{"_timestamp"}, Form: FormList},
	{oid: 1182, Names: []string{"_date"}, Form: FormList},
	{oid: 1185, Names: []string{"_timestamptz"}, Form: FormList},
	{oid: 1186, Names: []string{"interval"}, Form: FormOpaque},
	{oid: 1231, Names: []string{"_numeric"}, Form: FormList},
	{oid: 1700, Names: []string{"numeric"}, Form: FormNumber},
	{oid: 2950, Names: []string{"uuid"}, Form: FormScalar, exact: true, read: readUUID},
	{oid: 2951, Names: []string{"_uuid"}, Form: FormList},
	{oid: 3614, Names: []string{"tsvector"}, Form: FormOpaque},
	{oid: 3615, Names: []string{"tsquery"}, Form: FormOpaque},
	{oid: 3807, Names: []string{"_jsonb"}, Form: FormList},
	{oid: 199, Names: []string{"_json"}, Form: FormList},
	{oid: 3904, Names: []string{"int4range"}, Form: FormOpaque},
	{oid: 3906, Names: []string{"numrange"}, Form: FormOpaque},
	{oid: 3908, Names: []string{"tsrange"}, Form: FormOpaque},
	{oid: 3910, Names: []string{"tstzrange"}, Form: FormOpaque},
	{oid: 3912, Names: []string{"daterange"}, Form: FormOpaque},
	{oid: 3926, Names: []string{"int8range"}, Form: FormOpaque},
	{oid: 4451, Names: []string{"int4multirange"}, Form: FormOpaque},
	{oid: 4532, Names: []string{"nummultirange"}, Form: FormOpaque},
	{oid: 4533, Names: []string{"tsmultirange"}, Form: FormOpaque},
	{oid: 4534, Names: []string{"tstzmultirange"}, Form: FormOpaque},
	{oid: 4535, Names: []string{"datemultirange"}, Form: FormOpaque},
	{oid: 4536, Names: []string{"int8multirange"}, Form: FormOpaque},
	{oid: 3802, Names: []string{"jsonb"}, Form: FormJSON, exact: true, read: readJSONB},
	{Names: []string{"hstore"}, Form: FormHstore},
}

// TypeOf finds a column's type by OID, else by name: a domain has an OID of its
// own and comes with its base type's name. Only built-in OIDs are exact.
func TypeOf(col wal.Column) Type {
	if col.Composite {
		return Type{Form: FormComposite}
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
		for _, n := range t.Names {
			if n == name {
				t.exact, t.read = false, nil
				return t
			}
		}
	}
	if col.Array || array {
		return Type{Form: FormList}
	}
	return Type{}
}

// TypeName is a column's type as SQL writes it.
func TypeName(col wal.Column) string {
	name := col.TypeName
	for _, t := range columnTypes {
		if name == "" && t.oid == col.Type && t.oid != 0 {
			name = t.Names[0]
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
		high, ok1 := jsontext.HexDigit(text[i])
		low, ok2 := jsontext.HexDigit(text[i+1])
		if !ok1 || !ok2 {
			return dst, false
		}
		dst = append(dst, high<<4|low)
	}
	return dst, true
}

// Keyable reports whether a key may be made of a whole column of type t.
func Keyable(t Type) bool {
	return !slices.Contains([]Form{FormJSON, FormComposite, FormArray, FormList, FormHstore, FormLargeObject, FormOpaque}, t.Form)
}
