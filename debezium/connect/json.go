package connect

import (
	"encoding/base64"
	"strconv"
	"strings"
)

// jsonConverter writes JSON the way Jackson's byte generator does.
type jsonConverter struct {
	bare     bool // schemas.enable=false
	numeric  bool // decimal.format=NUMERIC
	keepNull bool // replace.null.with.default=false
}

func newJSONConverter(options map[string]string) (Converter, error) {
	schemas, replace := true, true
	c := &jsonConverter{}
	if err := booleans.set(&schemas, options, "schemas.enable"); err != nil {
		return nil, err
	}
	if err := booleans.set(&replace, options, "replace.null.with.default"); err != nil {
		return nil, err
	}
	if v, ok := options["decimal.format"]; ok {
		switch strings.ToUpper(strings.TrimSpace(v)) {
		case "BASE64":
		case "NUMERIC":
			c.numeric = true
		default:
			return nil, &OptionError{Option: "decimal.format", Value: v, Reason: "is not one of BASE64, NUMERIC"}
		}
	}
	if v, ok := options["schemas.cache.size"]; ok {
		if _, err := strconv.ParseInt(strings.TrimSpace(v), 10, 32); err != nil {
			return nil, &OptionError{Option: "schemas.cache.size", Value: v, Reason: "is not a whole number"}
		}
	}
	c.bare, c.keepNull = !schemas, !replace
	return c, nil
}

func (c *jsonConverter) Append(dst []byte, s *Schema, v Value) ([]byte, bool, error) {
	if s == nil && v.kind == KindNull {
		return dst, true, nil
	}
	if c.bare {
		out, err := c.append(dst, s, v)
		return out, false, err
	}
	dst = append(dst, `{"schema":`...)
	if s == nil {
		dst = append(dst, "null"...)
	} else {
		dst = append(dst, s.json(c.numeric)...)
	}
	dst = append(dst, `,"payload":`...)
	out, err := c.append(dst, s, v)
	if err != nil {
		return out, false, err
	}
	return append(out, '}'), false, nil
}

// fits reports whether Java could cast a value of the kind to the class that
// the schema type stands for.
func (t Type) fits(k Kind) bool {
	switch t {
	case Int8:
		return k == KindInt8
	case Int16:
		return k == KindInt16
	case Int32:
		return k == KindInt32
	case Int64:
		return k == KindInt64
	case Float32:
		return k == KindFloat32
	case Float64:
		return k == KindFloat64
	case Boolean:
		return k == KindBoolean
	case String:
		return k == KindString
	case Bytes:
		return k == KindBytes || k == KindBuffer
	case Array:
		return k == KindArray
	case Map:
		return k == KindMap
	case Struct:
		return k == KindStruct
	default:
		return false
	}
}

// logicalKind is the kind that a logical type of Connect itself demands;
// KindNull for any other schema.
func (s *Schema) logicalKind() Kind {
	switch s.Name {
	case DecimalName:
		return KindDecimal
	case DateName, TimeName, TimestampName:
		return KindDate
	default:
		return KindNull
	}
}

func (c *jsonConverter) append(dst []byte, s *Schema, v Value) ([]byte, error) {
	if v.kind == KindNull {
		switch {
		case s == nil:
			return append(dst, "null"...), nil
		case s.Default != nil && !c.keepNull:
			return c.append(dst, s, *s.Default)
		case s.Optional:
			return append(dst, "null"...), nil
		default:
			return dst, dataError("Conversion error: null value for field that is required and has no default value")
		}
	}
	if s != nil {
		if logical := s.logicalKind(); logical != KindNull {
			return c.appendLogical(dst, s, v, logical)
		}
		if !s.Type.fits(v.kind) {
			return dst, dataError("Invalid type for %s: %s", s.Type, v.kind)
		}
	}
	switch v.kind {
	case KindString:
		return appendJSONString(dst, v.data, true), nil
	case KindBuffer, KindBytes:
		return appendJSONBytes(dst, v.data), nil
	case KindArray:
		return c.appendArray(dst, s, v)
	case KindMap:
		return c.appendMap(dst, s, v)
	case KindStruct:
		return c.appendStruct(dst, s, v)
	case KindFloat32, KindFloat64:
		return appendJSONFloat(dst, v), nil
	case KindDecimal, KindDate:
		return dst, dataError("Java %s does not have corresponding schema type.", v.kind)
	default:
		return v.appendScalar(dst), nil
	}
}

func (c *jsonConverter) appendLogical(dst []byte, s *Schema, v Value, want Kind) ([]byte, error) {
	if v.kind != want {
		return dst, dataError("Invalid type for %s, expected %s but was %s", s.Name[strings.LastIndexByte(s.Name, '.')+1:], want, v.kind)
	}
	switch {
	case want == KindDecimal && c.numeric:
		return v.appendScalar(dst), nil
	case want == KindDecimal:
		var scratch [32]byte
		return appendJSONBytes(dst, appendUnscaled(scratch[:0], v.data)), nil
	case s.Name == DateName:
		days, rest := floorDiv(v.num, millisPerDay)
		if rest != 0 {
			return dst, dataError("Kafka Connect Date type should not have any time fields set to non-zero values.")
		}
		return strconv.AppendInt(dst, days, 10), nil
	case s.Name == TimeName && (v.num < 0 || v.num > millisPerDay):
		return dst, dataError("Kafka Connect Time type should not have any date fields set to non-zero values.")
	default:
		return strconv.AppendInt(dst, v.num, 10), nil
	}
}

func (c *jsonConverter) appendArray(dst []byte, s *Schema, v Value) (_ []byte, err error) {
	var elem *Schema
	if s != nil {
		elem = s.Elem
	}
	dst = append(dst, '[')
	for i, item := range v.node.items {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = c.append(dst, elem, item); err != nil {
			return dst, err
		}
	}
	return append(dst, ']'), nil
}

// appendMap writes an object when all keys are strings, else an array of pairs.
func (c *jsonConverter) appendMap(dst []byte, s *Schema, v Value) (_ []byte, err error) {
	var key, elem *Schema
	items, object := v.node.items, true
	if s != nil {
		key, elem = s.Key, s.Elem
		object = key.Type == String
	} else {
		for i := 0; i < len(items); i += 2 {
			object = object && items[i].kind == KindString
		}
	}
	marks := [2]string{"[", "]"}
	if object {
		marks = [2]string{"{", "}"}
	}
	dst = append(dst, marks[0]...)
	for i := 0; i+1 < len(items); i += 2 {
		if i > 0 {
			dst = append(dst, ',')
		}
		if !object {
			dst = append(dst, '[')
		}
		if dst, err = c.append(dst, key, items[i]); err != nil {
			return dst, err
		}
		if object {
			dst = append(dst, ':')
		} else {
			dst = append(dst, ',')
		}
		if dst, err = c.append(dst, elem, items[i+1]); err != nil {
			return dst, err
		}
		if !object {
			dst = append(dst, ']')
		}
	}
	return append(dst, marks[1]...), nil
}

func (c *jsonConverter) appendStruct(dst []byte, s *Schema, v Value) (_ []byte, err error) {
	if s != nil && !v.node.schema.Equal(s) {
		return dst, dataError("Mismatching schema.")
	}
	dst = append(dst, '{')
	for i, item := range v.node.items {
		if i > 0 {
			dst = append(dst, ',')
		}
		field := v.node.schema.Fields[i]
		dst = append(appendJSONString(dst, field.Name, true), ':')
		if dst, err = c.append(dst, field.Schema, item); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

func appendJSONBytes(dst, data []byte) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, data)
	return append(dst, '"')
}

func appendJSONFloat(dst []byte, v Value) []byte {
	f := v.Float()
	if f != f || f > 0 && f/2 == f || f < 0 && f/2 == f { // NaN and the infinities
		dst = append(dst, '"')
		return append(v.appendScalar(dst), '"')
	}
	return v.appendScalar(dst)
}

// escapes says how Jackson writes a byte below U+0080: 0 as it is, u as \u00XX,
// else the letter behind a backslash.
var escapes = func() (t [128]byte) {
	for i := range ' ' {
		t[i] = 'u'
	}
	t['\b'], t['\t'], t['\n'], t['\f'], t['\r'], t['"'], t['\\'] = 'b', 't', 'n', 'f', 'r', '"', '\\'
	return t
}()

const upperHex = "0123456789ABCDEF"

// appendJSONString appends a JSON string. Jackson's generators of bytes write a
// character beyond U+FFFF as two escapes (pairs), those of characters as it is.
func appendJSONString[T string | []byte](dst []byte, text T, pairs bool) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(text); {
		b := text[i]
		switch {
		case b < 0x80:
			if escapes[b] == 0 {
				i++
				continue
			}
			dst = append(append(dst, text[start:i]...), '\\', escapes[b])
			if escapes[b] == 'u' {
				dst = append(dst, '0', '0', upperHex[b>>4], upperHex[b&15])
			}
			i++
			start = i
		case b >= 0xf0 && pairs || b == 0xed: // beyond U+FFFF, or perhaps a lone surrogate
			r, n := decodeRune([]byte(text[i:min(i+4, len(text))]))
			if r < surrogateFirst || r > surrogateLast && r <= 0xffff || n == 1 {
				i += n
				continue
			}
			dst = append(dst, text[start:i]...)
			if r > 0xffff {
				r -= 0x10000
				dst = appendUnit(dst, surrogateFirst+r>>10)
				r = 0xdc00 + r&0x3ff
			}
			dst = appendUnit(dst, r)
			i += n
			start = i
		default:
			i++
		}
	}
	return append(append(dst, text[start:]...), '"')
}

func appendUnit(dst []byte, u rune) []byte {
	return append(dst, '\\', 'u', upperHex[u>>12&15], upperHex[u>>8&15], upperHex[u>>4&15], upperHex[u&15])
}

// JSON is the schema as JsonConverter writes it. Equal schemas have equal JSON,
// so it also serves as a key for a cache of schemas.
func (s *Schema) JSON() []byte { return s.json(false) }

// json caches what it makes: a schema is written with each record.
func (s *Schema) json(numeric bool) []byte {
	slot := &s.encoded[0]
	if numeric {
		slot = &s.encoded[1]
	}
	if cached := slot.Load(); cached != nil {
		return *cached
	}
	out := s.appendJSON(nil, numeric)
	slot.Store(&out)
	return out
}

func (s *Schema) appendJSON(dst []byte, numeric bool) []byte {
	dst = append(append(append(dst, `{"type":"`...), s.Type.jsonName()...), '"')
	switch s.Type {
	case Array:
		dst = append(append(dst, `,"items":`...), s.Elem.json(numeric)...)
	case Map:
		dst = append(append(dst, `,"keys":`...), s.Key.json(numeric)...)
		dst = append(append(dst, `,"values":`...), s.Elem.json(numeric)...)
	case Struct:
		dst = append(dst, `,"fields":[`...)
		for i, f := range s.Fields {
			if i > 0 {
				dst = append(dst, ',')
			}
			member := f.Schema.json(numeric)
			dst = append(append(dst, member[:len(member)-1]...), `,"field":`...)
			dst = append(appendJSONString(dst, f.Name, true), '}')
		}
		dst = append(dst, ']')
	default: // nothing nested
	}
	dst = strconv.AppendBool(append(dst, `,"optional":`...), s.Optional)
	if s.Name != "" {
		dst = appendJSONString(append(dst, `,"name":`...), s.Name, true)
	}
	if s.Version != nil {
		dst = strconv.AppendInt(append(dst, `,"version":`...), int64(*s.Version), 10)
	}
	if s.Doc != "" {
		dst = appendJSONString(append(dst, `,"doc":`...), s.Doc, true)
	}
	for i, p := range s.Parameters {
		if i == 0 {
			dst = append(dst, `,"parameters":{`...)
		} else {
			dst = append(dst, ',')
		}
		dst = append(appendJSONString(dst, p.Name, true), ':')
		dst = appendJSONString(dst, p.Value, true)
	}
	if len(s.Parameters) > 0 {
		dst = append(dst, '}')
	}
	if s.Default != nil {
		c := &jsonConverter{bare: true, numeric: numeric}
		if out, err := c.append(append(dst, `,"default":`...), s, *s.Default); err == nil { // NewCodec checks defaults against the schema
			dst = out
		}
	}
	return append(dst, '}')
}

func (t Type) jsonName() string {
	switch t {
	case Float32:
		return "float"
	case Float64:
		return "double"
	default:
		return strings.ToLower(t.String())
	}
}
