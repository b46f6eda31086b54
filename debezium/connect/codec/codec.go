package codec

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/debezium/connect"
	"github.com/cdc-relay/cdc-relay/debezium/connect/java"
)

// OIDs of the built-in types that the codecs tell apart.
const (
	oidBool        = 16
	oidBytea       = 17
	oidChar        = 18
	oidName        = 19
	oidInt8        = 20
	oidInt2        = 21
	oidInt4        = 23
	oidText        = 25
	oidOID         = 26
	oidJSON        = 114
	oidXML         = 142
	oidPoint       = 600
	oidLseg        = 601
	oidPath        = 602
	oidBox         = 603
	oidPolygon     = 604
	oidLine        = 628
	oidCIDR        = 650
	oidFloat4      = 700
	oidFloat8      = 701
	oidCircle      = 718
	oidMacaddr8    = 774
	oidMoney       = 790
	oidMacaddr     = 829
	oidInet        = 869
	oidBpchar      = 1042
	oidVarchar     = 1043
	oidDate        = 1082
	oidTime        = 1083
	oidTimestamp   = 1114
	oidTimestampTZ = 1184
	oidInterval    = 1186
	oidTimeTZ      = 1266
	oidBit         = 1560
	oidVarbit      = 1562
	oidNumeric     = 1700
	oidUUID        = 2950
	oidTsvector    = 3614
	oidJSONB       = 3802
	oidInt4range   = 3904
	oidNumrange    = 3906
	oidTsrange     = 3908
	oidTstzrange   = 3910
	oidDaterange   = 3912
	oidInt8range   = 3926
)

// errUnsure is a value whose fate in Debezium is not known: it is refused
// whatever the failure mode says.
var errUnsure = errors.New("not defined what Debezium makes of it")

// shape is a type made ready: its schema without the column's properties, and
// its decoder.
type shape struct {
	schema *connect.Schema
	decode decoder

	element      decoder // of an element of an array; nil: like any other value
	plainElement bool    // as an element of an array it is not optional
}

// New returns the codec of a column. The error is ErrAbsent if Debezium leaves the column out,
// and an *UnsupportedError if Debezium sends a column that this package cannot decode.
func New(col Column, m Modes) (*Codec, error) {
	t := col.Type
	for t.Base != nil {
		t = *t.Base
	}
	sh, reason := shapeOf(t, m)
	switch {
	case reason != "":
		return nil, &connect.UnsupportedError{Column: col.Name, Type: t.Name, Reason: reason}
	case sh == nil && !m.Unknown:
		return nil, connect.ErrAbsent
	case sh == nil:
		sh = binaryShape(m, func(text []byte) ([]byte, error) { return text, nil })
	}
	c := &Codec{Schema: sh.schema, column: col.Name, typ: typeText(t), failure: m.Failure, decode: sh.decode}
	c.Schema.Optional = !col.NotNull
	c.Schema.Doc = orText(col.Comment, c.Schema.Doc)
	c.Schema.Name = m.SchemaNames.SchemaName(c.Schema.Name)
	if col.Source {
		c.Schema.Parameters = append(c.Schema.Parameters, sourceParameters(col.Name, t)...)
	}
	if col.NotNull && t.OID == oidName { // null, for which the type's fallback steps in
		c.decode = func([]byte) (connect.Value, error) { return connect.StringValue(""), nil }
	}
	if col.Default != "" && col.Type.Base == nil {
		c.setDefault(col, t, m)
	}
	return c, nil
}

func orText(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func typeText(t TypeInfo) string {
	if elem, array := strings.CutPrefix(t.Name, "_"); array && t.Elem != nil {
		return elem + "[]"
	}
	if t.Name == "" {
		return "OID " + strconv.FormatUint(uint64(t.OID), 10)
	}
	return t.Name
}

func (c *Codec) failed(err error) (connect.Value, error) {
	e := &connect.ConvertError{Column: c.column, Type: c.typ, Reason: err.Error(), Tolerated: c.failure != FailureFail && !errors.Is(err, errUnsure)}
	if e.Tolerated && !c.Schema.Optional && c.Schema.Default == nil { // Connect refuses the null that the failure leaves behind
		e.Tolerated = false
	}
	return connect.Null, e
}

// Quiet reports whether a tolerated failure is not worth a warning
// (event.converting.failure.handling.mode=skip).
func (c *Codec) Quiet() bool { return c.failure == FailureSkip }

// named is the schema of a logical type of Debezium or Connect, version 1.
func named(t connect.Type, name string, parameters ...connect.Parameter) *connect.Schema {
	return &connect.Schema{Type: t, Name: name, Version: connect.VersionOf(1), Parameters: parameters}
}

// shapeOf finds a type's shape. Nil without a reason is a type that Debezium
// does not know.
func shapeOf(t TypeInfo, m Modes) (*shape, string) {
	if t.Elem != nil {
		return arrayShape(t, m)
	}
	if t.Labels != nil {
		return &shape{schema: named(connect.String, "io.debezium.data.Enum", connect.Parameter{Name: "allowed", Value: strings.Join(t.Labels, ",")}),
			decode: decodeText, plainElement: true}, ""
	}
	switch t.OID {
	case oidNumeric:
		return numericShape(t, m)
	case oidMoney:
		return moneyShape(m), ""
	case oidBit, oidVarbit:
		return bitsShape(t), ""
	case oidBytea:
		return binaryShape(m, decodeHex), ""
	case oidDate, oidTime, oidTimestamp:
		return timeShape(t, m), ""
	case oidTimeTZ:
		return &shape{
			schema: named(connect.String, "io.debezium.time.ZonedTime"), decode: decodeTimeTZ,
			element: func(text []byte) (connect.Value, error) { return timeTZ(text, java.MicrosPerSecond) },
		}, ""
	case oidTimestampTZ:
		return timestampTZShape(t), ""
	case oidInterval:
		return intervalShape(m), ""
	case oidPoint:
		return pointShape(), ""
	case oidName: // its value never arrives from the stream
		if m.Unknown {
			return nil, "its form under include.unknown.datatypes is not known"
		}
		return &shape{schema: &connect.Schema{Type: connect.String}, decode: func([]byte) (connect.Value, error) { return connect.Null, nil }}, ""
	case oidLseg, oidPath, oidBox, oidPolygon, oidLine, oidCircle:
		if m.Unknown {
			return nil, "geometric types other than point are not supported"
		}
		return nil, ""
	}
	if sh := scalarShape(t.OID); sh != nil {
		return sh, ""
	}
	return extensionShape(t, m)
}

func scalarShape(oid uint32) *shape {
	text := func(s *connect.Schema) *shape { return &shape{schema: s, decode: decodeText} }
	switch oid {
	case oidBool:
		return &shape{schema: &connect.Schema{Type: connect.Boolean}, decode: decodeBool}
	case oidInt2:
		return &shape{schema: &connect.Schema{Type: connect.Int16}, decode: decodeInt(16, connect.KindInt16)}
	case oidInt4:
		return &shape{schema: &connect.Schema{Type: connect.Int32}, decode: decodeInt(32, connect.KindInt32)}
	case oidInt8, oidOID:
		return &shape{schema: &connect.Schema{Type: connect.Int64}, decode: decodeInt(64, connect.KindInt64)}
	case oidFloat4:
		return &shape{schema: &connect.Schema{Type: connect.Float32}, decode: decodeFloat(32)}
	case oidFloat8:
		return &shape{schema: &connect.Schema{Type: connect.Float64}, decode: decodeFloat(64)}
	case oidText, oidVarchar, oidBpchar, oidChar, oidInet, oidCIDR, oidMacaddr, oidMacaddr8,
		oidInt4range, oidInt8range, oidNumrange, oidTsrange, oidTstzrange, oidDaterange:
		return text(&connect.Schema{Type: connect.String})
	case oidTsvector:
		return text(named(connect.String, "io.debezium.data.Tsvector"))
	case oidUUID:
		return text(named(connect.String, "io.debezium.data.Uuid"))
	case oidJSON, oidJSONB:
		sh := text(named(connect.String, "io.debezium.data.Json"))
		return sh
	case oidXML:
		return text(named(connect.String, "io.debezium.data.Xml"))
	default:
		return nil
	}
}

// extensionShape knows types without a fixed OID by their names.
func extensionShape(t TypeInfo, m Modes) (*shape, string) {
	if t.OID != 0 && t.OID < 16384 {
		return nil, ""
	}
	switch t.Name {
	case "citext", "isbn":
		return &shape{schema: &connect.Schema{Type: connect.String}, decode: decodeText}, ""
	case "ltree":
		return &shape{schema: named(connect.String, "io.debezium.data.Ltree"), decode: decodeText}, ""
	case "hstore":
		return hstoreShape(m), ""
	case "geometry", "geography":
		return nil, "PostGIS types are not supported"
	case "vector", "halfvec", "sparsevec":
		return nil, "pgvector types are not supported"
	default:
		return nil, ""
	}
}

// arrayShape makes the shape of an array. Some arrays are unknown to Debezium
// though their elements are not.
func arrayShape(t TypeInfo, m Modes) (*shape, string) {
	elem := *t.Elem
	switch {
	case elem.Base != nil:
		return nil, ""
	case slices.Contains([]uint32{oidMoney, oidName, oidInterval, oidVarbit, oidXML, oidPoint}, elem.OID):
		return nil, ""
	case elem.OID == oidBit || elem.OID == oidTsvector || elem.Elem != nil:
		return nil, "arrays of this type are not supported"
	}
	elem.TypeMod = t.TypeMod
	inner, reason := shapeOf(elem, m)
	if inner == nil || reason != "" {
		if m.Unknown && reason == "" {
			reason = "arrays of unknown types are not supported"
		}
		return nil, reason
	}
	inner.schema.Optional = !inner.plainElement
	inner.schema.Name = m.SchemaNames.SchemaName(inner.schema.Name)
	decode, nulls := inner.decode, inner.schema.Optional
	switch {
	case inner.element != nil:
		decode = inner.element
	case elem.OID == oidNumeric:
		decode = finiteElement(decode)
	}
	return &shape{
		schema: &connect.Schema{Type: connect.Array, Elem: inner.schema},
		decode: func(text []byte) (connect.Value, error) {
			v, err := decodeArray(text, decode)
			if err == nil && !nulls && slices.ContainsFunc(v.Items(), connect.Value.IsNull) {
				err = errors.New("an element is NULL, which the schema of the elements does not allow")
			}
			return v, err
		},
	}, ""
}

func decodeText(text []byte) (connect.Value, error) { return connect.TextValue(text), nil }

func decodeBool(text []byte) (connect.Value, error) {
	switch string(text) {
	case "t", "true":
		return connect.BooleanValue(true), nil
	case "f", "false":
		return connect.BooleanValue(false), nil
	default:
		return connect.Null, errors.New("neither t nor f")
	}
}

func decodeInt(bits int, kind connect.Kind) decoder {
	return func(text []byte) (connect.Value, error) {
		n, err := strconv.ParseInt(string(text), 10, bits)
		if err != nil {
			return connect.Null, errors.New("not an integer of " + strconv.Itoa(bits) + " bits")
		}
		return connect.IntegerValue(kind, n), nil
	}
}

func decodeFloat(bits int) decoder {
	return func(text []byte) (connect.Value, error) {
		f, ok := parseFloat(text, bits)
		if !ok {
			return connect.Null, errors.New("not a number")
		}
		if bits == 32 {
			return connect.Float32Value(float32(f)), nil
		}
		return connect.Float64Value(f), nil
	}
}

// parseFloat reads what PostgreSQL prints: no hexadecimal, no underscores.
func parseFloat(text []byte, bits int) (float64, bool) {
	switch string(text) {
	case "NaN", "Infinity", "-Infinity":
	default:
		for _, b := range text {
			if b < '0' && b != '-' && b != '+' && b != '.' || b > '9' && b != 'e' && b != 'E' {
				return 0, false
			}
		}
	}
	f, err := strconv.ParseFloat(string(text), bits)
	return f, err == nil || errors.Is(err, strconv.ErrRange)
}

// decodeHex reads bytea in its hex output.
func decodeHex(text []byte) ([]byte, error) {
	if !bytes.HasPrefix(text, []byte(`\x`)) {
		return nil, errors.New(`does not begin with \x`)
	}
	out := make([]byte, (len(text)-2)/2)
	if _, err := hex.Decode(out, text[2:]); err != nil {
		return nil, errors.New("not hex digits in pairs")
	}
	return out, nil
}

// binaryShape is bytes in the form that binary.handling.mode asks for.
func binaryShape(m Modes, read func([]byte) ([]byte, error)) *shape {
	var encode func(dst, data []byte) []byte
	switch m.Binary {
	case BinaryBase64:
		encode = base64.StdEncoding.AppendEncode
	case BinaryBase64URL:
		encode = base64.URLEncoding.AppendEncode
	case BinaryHex:
		encode = hex.AppendEncode
	default:
		return &shape{schema: &connect.Schema{Type: connect.Bytes}, decode: func(text []byte) (connect.Value, error) {
			data, err := read(text)
			return connect.BufferValue(data), err
		}}
	}
	return &shape{schema: &connect.Schema{Type: connect.String}, decode: func(text []byte) (connect.Value, error) {
		data, err := read(text)
		return connect.TextValue(encode(nil, data)), err
	}}
}

// bitsShape: one bit is a boolean, more are the little-endian bytes of the
// number, as many as it needs.
func bitsShape(t TypeInfo) *shape {
	length := int64(t.TypeMod)
	if t.TypeMod < 0 {
		if length = 1; t.OID == oidVarbit {
			length = 1<<31 - 1
		}
	}
	if length <= 1 {
		return &shape{schema: &connect.Schema{Type: connect.Boolean}, decode: func(text []byte) (connect.Value, error) {
			switch string(text) {
			case "0", "1":
				return connect.BooleanValue(text[0] == '1'), nil
			default:
				return connect.Null, errors.New("not one bit")
			}
		}}
	}
	return &shape{
		schema: named(connect.Bytes, "io.debezium.data.Bits", connect.Parameter{Name: "length", Value: strconv.FormatInt(length, 10)}),
		decode: decodeBits,
	}
}

func decodeBits(text []byte) (connect.Value, error) {
	out := make([]byte, (len(text)+7)/8)
	used := 0
	for i, b := range text {
		switch bit := len(text) - 1 - i; b {
		case '1':
			out[bit/8] |= 1 << (bit % 8)
			used = max(used, bit/8+1)
		case '0':
		default:
			return connect.Null, errors.New("not bits")
		}
	}
	return connect.BytesValue(out[:used]), nil
}
