package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"

	"github.com/cdc-relay/cdc-relay/debezium/connect"
	"github.com/cdc-relay/cdc-relay/debezium/connect/java"
)

var (
	errArray  = errors.New("not the text of an array")
	errHstore = errors.New("not the text of an hstore")
	errPoint  = errors.New("not the text of a point")
)

// decodeArray reads an array of one dimension in PostgreSQL's text form.
func decodeArray(text []byte, decode decoder) (connect.Value, error) {
	if bytes.HasPrefix(text, []byte("[")) { // a lower bound other than 1, which is lost
		_, text, _ = bytes.Cut(text, []byte("="))
	}
	if bytes.HasPrefix(text, []byte("{{")) {
		return connect.Null, errUnsure // several dimensions: nulls, or addresses in memory
	}
	if len(text) < 2 || text[0] != '{' {
		return connect.Null, errArray
	}
	rest := text[1:]
	if len(rest) == 1 && rest[0] == '}' {
		return connect.ArrayValue([]connect.Value{}), nil
	}
	items := make([]connect.Value, 0, bytes.Count(rest, []byte(","))+1)
	for {
		elem, after, quoted, err := arrayElement(rest)
		if err != nil {
			return connect.Null, err
		}
		item := connect.Null
		if quoted || !bytes.EqualFold(elem, []byte("NULL")) {
			if item, err = decode(elem); err != nil {
				return connect.Null, err
			}
		}
		items = append(items, item)
		switch {
		case len(after) == 1 && after[0] == '}':
			return connect.ArrayValue(items), nil
		case len(after) > 1 && after[0] == ',':
			rest = after[1:]
		default:
			return connect.Null, errArray
		}
	}
}

// arrayElement reads one element up to the comma or brace after it.
func arrayElement(text []byte) (elem, rest []byte, quoted bool, err error) {
	if len(text) > 0 && text[0] == '"' {
		elem, rest, err = quotedText(text)
		return elem, rest, true, err
	}
	end := bytes.IndexAny(text, ",}")
	if end <= 0 {
		return nil, nil, false, errArray
	}
	elem = text[:end]
	if bytes.ContainsAny(elem, `{"\`) {
		return nil, nil, false, errArray
	}
	return elem, text[end:], false, nil
}

// quotedText reads a string in double quotes with backslash escapes; without
// escapes it aliases text.
func quotedText(text []byte) (content, rest []byte, err error) {
	end := bytes.IndexAny(text[1:], `"\`) + 1
	if end > 0 && text[end] == '"' {
		return text[1:end:end], text[end+1:], nil
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '"':
			return content, text[i+1:], nil
		case '\\':
			i++
			if i == len(text) {
				return nil, nil, errArray
			}
		}
		content = append(content, text[i])
	}
	return nil, nil, errArray
}

// hstoreShape is JSON text or a map, in the order of Java's hash map.
func hstoreShape(m Modes) *shape {
	if m.HstoreMap {
		s := &connect.Schema{Type: connect.Map, Key: &connect.Schema{Type: connect.String}, Elem: &connect.Schema{Type: connect.String, Optional: true}}
		return &shape{schema: s, decode: func(text []byte) (connect.Value, error) {
			keys, values, err := parseHstore(text)
			if err != nil {
				return connect.Null, err
			}
			entries := make([]connect.Value, 0, 2*len(keys))
			for _, i := range java.HashOrder(keys) {
				entries = append(entries, connect.TextValue(keys[i]), values[i])
			}
			return connect.MapValue(entries), nil
		}}
	}
	return &shape{schema: named(connect.String, "io.debezium.data.Json"), decode: func(text []byte) (connect.Value, error) {
		keys, values, err := parseHstore(text)
		if err != nil {
			return connect.Null, err
		}
		out := append(make([]byte, 0, len(text)+2), '{')
		for n, i := range java.HashOrder(keys) {
			if n > 0 {
				out = append(out, ',')
			}
			out = append(java.AppendJSONString(out, keys[i], false), ':')
			if values[i].Kind() == connect.KindNull {
				out = append(out, "null"...)
			} else {
				out = java.AppendJSONString(out, values[i].Data(), false)
			}
		}
		return connect.TextValue(append(out, '}')), nil
	}}
}

// parseHstore reads "a"=>"1", "b"=>NULL.
func parseHstore(text []byte) (keys [][]byte, values []connect.Value, err error) {
	for len(text) > 0 {
		if len(keys) > 0 {
			var more bool
			if text, more = bytes.CutPrefix(text, []byte(", ")); !more {
				return nil, nil, errHstore
			}
		}
		if len(text) == 0 || text[0] != '"' {
			return nil, nil, errHstore
		}
		key, rest, kerr := quotedText(text)
		rest, arrow := bytes.CutPrefix(rest, []byte("=>"))
		if kerr != nil || !arrow {
			return nil, nil, errHstore
		}
		value := connect.Null
		if after, null := bytes.CutPrefix(rest, []byte("NULL")); null {
			text = after
		} else {
			if len(rest) == 0 || rest[0] != '"' {
				return nil, nil, errHstore
			}
			data, after, verr := quotedText(rest)
			if verr != nil {
				return nil, nil, errHstore
			}
			value, text = connect.TextValue(data), after
		}
		keys, values = append(keys, key), append(values, value)
	}
	return keys, values, nil
}

// pointShape is a struct with the coordinates and their well-known binary form.
func pointShape() *shape {
	s := named(connect.Struct, "io.debezium.data.geometry.Point")
	s.Doc = "Geometry (POINT)"
	s.Fields = []connect.Field{{Name: "x", Schema: &connect.Schema{Type: connect.Float64}}, {Name: "y", Schema: &connect.Schema{Type: connect.Float64}},
		{Name: "wkb", Schema: &connect.Schema{Type: connect.Bytes, Optional: true}}, {Name: "srid", Schema: &connect.Schema{Type: connect.Int32, Optional: true}}}
	value := func(x, y float64) connect.Value {
		wkb := append(make([]byte, 0, 21), 1, 1, 0, 0, 0)
		wkb = binary.LittleEndian.AppendUint64(wkb, math.Float64bits(x))
		wkb = binary.LittleEndian.AppendUint64(wkb, math.Float64bits(y))
		return connect.StructOf(s, []connect.Value{connect.Float64Value(x), connect.Float64Value(y), connect.BytesValue(wkb), connect.Null})
	}
	return &shape{schema: s, decode: func(text []byte) (connect.Value, error) {
		if len(text) < 5 || text[0] != '(' || text[len(text)-1] != ')' {
			return connect.Null, errPoint
		}
		first, second, _ := bytes.Cut(text[1:len(text)-1], []byte(","))
		x, ok1 := parseFloat(first, 64)
		y, ok2 := parseFloat(second, 64)
		if !ok1 || !ok2 {
			return connect.Null, errPoint
		}
		return value(x, y), nil
	}}
}
