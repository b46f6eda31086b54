package connect

import (
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/debezium/connect/java"
)

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
			dst = append(java.AppendJSONString(dst, f.Name, true), '}')
		}
		dst = append(dst, ']')
	default: // nothing nested
	}
	dst = strconv.AppendBool(append(dst, `,"optional":`...), s.Optional)
	if s.Name != "" {
		dst = java.AppendJSONString(append(dst, `,"name":`...), s.Name, true)
	}
	if s.Version != nil {
		dst = strconv.AppendInt(append(dst, `,"version":`...), int64(*s.Version), 10)
	}
	if s.Doc != "" {
		dst = java.AppendJSONString(append(dst, `,"doc":`...), s.Doc, true)
	}
	for i, p := range s.Parameters {
		if i == 0 {
			dst = append(dst, `,"parameters":{`...)
		} else {
			dst = append(dst, ',')
		}
		dst = append(java.AppendJSONString(dst, p.Name, true), ':')
		dst = java.AppendJSONString(dst, p.Value, true)
	}
	if len(s.Parameters) > 0 {
		dst = append(dst, '}')
	}
	if s.Default != nil {
		c := &JSON{WithoutSchema: true, Numeric: numeric}
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
