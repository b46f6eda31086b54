package connect

import (
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/debezium/connect/java"
)

// JSON writes JSON the way Jackson's byte generator does. It is Connect's JsonConverter; the
// zero JSON has that one's defaults.
type JSON struct {
	WithoutSchema bool // schemas.enable=false
	Numeric       bool // decimal.format=NUMERIC
	KeepNull      bool // replace.null.with.default=false
}

// Append appends a value under its schema, both as they are in a record.
func (c *JSON) Append(dst []byte, s *Schema, v Value) ([]byte, bool, error) {
	if s == nil && v.kind == KindNull {
		return dst, true, nil
	}
	if c.WithoutSchema {
		out, err := c.append(dst, s, v)
		return out, false, err
	}
	dst = append(dst, `{"schema":`...)
	if s == nil {
		dst = append(dst, "null"...)
	} else {
		dst = append(dst, s.json(c.Numeric)...)
	}
	dst = append(dst, `,"payload":`...)
	out, err := c.append(dst, s, v)
	if err != nil {
		return out, false, err
	}
	return append(out, '}'), false, nil
}

func (c *JSON) append(dst []byte, s *Schema, v Value) ([]byte, error) {
	if v.kind == KindNull {
		switch {
		case s == nil:
			return append(dst, "null"...), nil
		case s.Default != nil && !c.KeepNull:
			return c.append(dst, s, *s.Default)
		case s.Optional:
			return append(dst, "null"...), nil
		default:
			return dst, DataErrorf("Conversion error: null value for field that is required and has no default value")
		}
	}
	if s != nil {
		if logical := s.logicalKind(); logical != KindNull {
			return c.appendLogical(dst, s, v, logical)
		}
		if !s.Type.Fits(v.kind) {
			return dst, DataErrorf("Invalid type for %s: %s", s.Type, v.kind)
		}
	}
	switch v.kind {
	case KindString:
		return java.AppendJSONString(dst, v.data, true), nil
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
		return dst, DataErrorf("Java %s does not have corresponding schema type.", v.kind)
	default:
		return v.AppendScalar(dst), nil
	}
}

func (c *JSON) appendLogical(dst []byte, s *Schema, v Value, want Kind) ([]byte, error) {
	if v.kind != want {
		return dst, DataErrorf("Invalid type for %s, expected %s but was %s", s.Name[strings.LastIndexByte(s.Name, '.')+1:], want, v.kind)
	}
	switch {
	case want == KindDecimal && c.Numeric:
		return v.AppendScalar(dst), nil
	case want == KindDecimal:
		var scratch [32]byte
		return appendJSONBytes(dst, java.AppendUnscaled(scratch[:0], v.data)), nil
	case s.Name == DateName:
		days, rest := java.FloorDiv(v.num, java.MillisPerDay)
		if rest != 0 {
			return dst, DataErrorf("Kafka Connect Date type should not have any time fields set to non-zero values.")
		}
		return strconv.AppendInt(dst, days, 10), nil
	case s.Name == TimeName && (v.num < 0 || v.num > java.MillisPerDay):
		return dst, DataErrorf("Kafka Connect Time type should not have any date fields set to non-zero values.")
	default:
		return strconv.AppendInt(dst, v.num, 10), nil
	}
}

func (c *JSON) appendArray(dst []byte, s *Schema, v Value) (_ []byte, err error) {
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
func (c *JSON) appendMap(dst []byte, s *Schema, v Value) (_ []byte, err error) {
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

func (c *JSON) appendStruct(dst []byte, s *Schema, v Value) (_ []byte, err error) {
	if s != nil && !v.node.schema.Equal(s) {
		return dst, DataErrorf("Mismatching schema.")
	}
	dst = append(dst, '{')
	for i, item := range v.node.items {
		if i > 0 {
			dst = append(dst, ',')
		}
		field := v.node.schema.Fields[i]
		dst = append(java.AppendJSONString(dst, field.Name, true), ':')
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
		return append(v.AppendScalar(dst), '"')
	}
	return v.AppendScalar(dst)
}
