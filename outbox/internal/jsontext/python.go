package jsontext

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

var (
	errPythonJSON   = errors.New("not JSON")
	errPythonUTF8   = errors.New("not UTF-8")
	errPythonDigits = errors.New("an integer of more than 4300 digits, which Python does not read")
	ErrDepth        = errors.New("nested deeper than 512 levels")
	errPythonNaN    = errors.New("NaN, which JSON does not have")
)

const (
	pythonDepth  = 512
	pythonDigits = 4300
)

// AppendPython writes v as Python's json.dumps(v, sort_keys=True) does. v is JSON ([]byte,
// json.RawMessage) or a Go value made of nil, bool, string, json.Number, numbers, []any and
// map[string]any.
func AppendPython(b []byte, v any) ([]byte, error) { return appendPython(b, v, 0) }

func appendPython(b []byte, v any, depth int) ([]byte, error) {
	if depth > pythonDepth {
		return nil, ErrDepth
	}
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case string:
		if !utf8.ValidString(v) {
			return nil, errPythonUTF8
		}
		return appendPythonString(b, v), nil
	case []byte:
		return appendPythonJSON(b, v, depth)
	case json.RawMessage:
		return appendPythonJSON(b, v, depth)
	case json.Number:
		return appendPythonJSON(b, []byte(v), depth)
	case []any:
		b = append(b, '[')
		for i, element := range v {
			if i > 0 {
				b = append(b, ", "...)
			}
			var err error
			if b, err = appendPython(b, element, depth+1); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	case map[string]any:
		return appendPythonMap(b, v, depth)
	}
	return appendPythonNumber(b, v)
}

func appendPythonMap(b []byte, m map[string]any, depth int) ([]byte, error) {
	b = append(b, '{')
	for i, name := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b = append(b, ", "...)
		}
		if !utf8.ValidString(name) {
			return nil, errPythonUTF8
		}
		b = append(appendPythonString(b, name), ": "...)
		var err error
		if b, err = appendPython(b, m[name], depth+1); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

func appendPythonNumber(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case int:
		return strconv.AppendInt(b, int64(v), 10), nil
	case int8:
		return strconv.AppendInt(b, int64(v), 10), nil
	case int16:
		return strconv.AppendInt(b, int64(v), 10), nil
	case int32:
		return strconv.AppendInt(b, int64(v), 10), nil
	case int64:
		return strconv.AppendInt(b, v, 10), nil
	case uint:
		return strconv.AppendUint(b, uint64(v), 10), nil
	case uint8:
		return strconv.AppendUint(b, uint64(v), 10), nil
	case uint16:
		return strconv.AppendUint(b, uint64(v), 10), nil
	case uint32:
		return strconv.AppendUint(b, uint64(v), 10), nil
	case uint64:
		return strconv.AppendUint(b, v, 10), nil
	case float32:
		return appendPythonFloat(b, float64(v))
	case float64:
		return appendPythonFloat(b, v)
	}
	return nil, fmt.Errorf("a Go value of type %T; marshal it, and give the bytes", v)
}

// appendPythonFloat writes repr(f).
func appendPythonFloat(b []byte, f float64) ([]byte, error) {
	switch {
	case math.IsNaN(f):
		return nil, errPythonNaN
	case math.IsInf(f, 1):
		return append(b, "Infinity"...), nil
	case math.IsInf(f, -1):
		return append(b, "-Infinity"...), nil
	}
	if abs := math.Abs(f); abs != 0 && (abs < 1e-4 || abs >= 1e16) {
		return strconv.AppendFloat(b, f, 'e', -1, 64), nil
	}
	start := len(b)
	b = strconv.AppendFloat(b, f, 'f', -1, 64)
	if !slices.Contains(b[start:], '.') {
		b = append(b, ".0"...)
	}
	return b, nil
}

// appendPythonString writes a string as json.dumps does. s is UTF-8, in which a lone
// surrogate may stand as three bytes.
func appendPythonString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c <= '~' {
			if c == '"' || c == '\\' {
				b = append(b, '\\')
			}
			b = append(b, c)
			i++
			continue
		}
		r, size := decode(s[i:])
		i += size
		b = appendPythonEscape(b, r)
	}
	return append(b, '"')
}

func appendPythonEscape(b []byte, r rune) []byte {
	switch r {
	case '\b':
		return append(b, '\\', 'b')
	case '\f':
		return append(b, '\\', 'f')
	case '\n':
		return append(b, '\\', 'n')
	case '\r':
		return append(b, '\\', 'r')
	case '\t':
		return append(b, '\\', 't')
	}
	if r >= 0x10000 {
		r -= 0x10000
		b = appendUnit(b, 0xd800+r>>10)
		r = 0xdc00 + r&0x3ff
	}
	return appendUnit(b, r)
}

func appendUnit(b []byte, unit rune) []byte {
	const digits = "0123456789abcdef"
	return append(b, '\\', 'u', digits[unit>>12&15], digits[unit>>8&15], digits[unit>>4&15], digits[unit&15])
}

// decode is utf8.DecodeRuneInString for a text in which surrogates may stand too.
func decode(s string) (rune, int) {
	if len(s) >= 3 && s[0] == 0xed && s[1] >= 0xa0 {
		return rune(s[0]&15)<<12 | rune(s[1]&63)<<6 | rune(s[2]&63), 3
	}
	return utf8.DecodeRuneInString(s)
}

// appendRune is utf8.AppendRune, but for a surrogate, which becomes three bytes.
func appendRune(b []byte, r rune) []byte {
	if r >= 0xd800 && r <= 0xdfff {
		return append(b, byte(0xe0|r>>12), byte(0x80|r>>6&63), byte(0x80|r&63))
	}
	return utf8.AppendRune(b, r)
}
