package connect

import (
	"encoding/base64"
	"strconv"
	"unicode/utf8"
)

func decodeUTF8(text []byte) (rune, int) { return utf8.DecodeRune(text) }

// AppendText appends Java's toString of v. For an array of bytes Java prints an
// identity hash, which differs in each run; here it is a hash of the bytes.
func (v Value) AppendText(dst []byte) []byte {
	switch v.kind {
	case KindNull:
		return append(dst, "null"...)
	case KindString:
		return append(dst, v.data...)
	case KindBuffer:
		n := int64(len(v.data))
		dst = strconv.AppendInt(append(dst, "java.nio.HeapByteBuffer[pos=0 lim="...), n, 10)
		return append(strconv.AppendInt(append(dst, " cap="...), n, 10), ']')
	case KindBytes:
		return strconv.AppendUint(append(dst, "[B@"...), uint64(uint32(hashCode(v.data))), 16)
	case KindDate:
		return appendDate(dst, v.num)
	case KindArray:
		dst = append(dst, '[')
		for i, item := range v.node.items {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = item.AppendText(dst)
		}
		return append(dst, ']')
	case KindMap:
		dst = append(dst, '{')
		for i := 0; i+1 < len(v.node.items); i += 2 {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = append(v.node.items[i].AppendText(dst), '=')
			dst = v.node.items[i+1].AppendText(dst)
		}
		return append(dst, '}')
	case KindStruct:
		return v.appendStructText(dst)
	default:
		return v.appendScalar(dst)
	}
}

// appendScalar appends toString of a number or a boolean.
func (v Value) appendScalar(dst []byte) []byte {
	switch v.kind {
	case KindBoolean:
		return strconv.AppendBool(dst, v.num != 0)
	case KindFloat32:
		return appendFloat32(dst, float32(v.Float()))
	case KindFloat64:
		return appendDouble(dst, v.Float())
	case KindDecimal:
		return appendDecimal(dst, v.data, int(v.num))
	default:
		return strconv.AppendInt(dst, v.num, 10)
	}
}

// appendStructText leaves out null members, and does not know defaults.
func (v Value) appendStructText(dst []byte) []byte {
	dst = append(dst, "Struct{"...)
	first := true
	for i, item := range v.node.items {
		if item.kind == KindNull {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(append(dst, v.node.schema.Fields[i].Name...), '=')
		dst = item.AppendText(dst)
	}
	return append(dst, '}')
}

// IsBlank reports whether v is null or its text has nothing but characters up
// to U+0020, Java's trim: what the EventRouter calls an empty payload.
func (v Value) IsBlank() bool {
	switch v.kind {
	case KindNull:
		return true
	case KindString:
		for _, b := range v.data {
			if b > ' ' {
				return false
			}
		}
		return true
	default:
		return false
	}
}

// simpleHeaderConverter is Connect's default for headers.
type simpleHeaderConverter struct{}

func (simpleHeaderConverter) Append(dst []byte, _ *Schema, v Value) ([]byte, bool, error) {
	if v.kind == KindNull {
		return dst, true, nil
	}
	start := len(dst)
	return replaceSurrogates(v.appendSimple(dst, false), start), false, nil
}

// appendSimple appends the text of Connect's Values class. Only strings and
// bytes inside another value are quoted.
func (v Value) appendSimple(dst []byte, embedded bool) []byte {
	switch v.kind {
	case KindNull:
		return append(dst, "null"...)
	case KindString:
		if embedded {
			return appendSimpleQuoted(dst, v.data)
		}
		return append(dst, v.data...)
	case KindBuffer, KindBytes:
		if embedded {
			dst = append(dst, '"')
			dst = base64.StdEncoding.AppendEncode(dst, v.data)
			return append(dst, '"')
		}
		return base64.StdEncoding.AppendEncode(dst, v.data)
	case KindDate:
		return appendSimpleDate(dst, v.num)
	case KindArray:
		dst = append(dst, '[')
		for i, item := range v.node.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = item.appendSimple(dst, true)
		}
		return append(dst, ']')
	case KindMap:
		dst = append(dst, '{')
		for i := 0; i+1 < len(v.node.items); i += 2 {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(v.node.items[i].appendSimple(dst, true), ':')
			dst = v.node.items[i+1].appendSimple(dst, true)
		}
		return append(dst, '}')
	case KindStruct:
		dst = append(dst, '{')
		for i, item := range v.node.items {
			field := v.node.schema.Fields[i]
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendSimpleQuoted(dst, []byte(field.Name)), ':')
			dst = field.Schema.Or(item).appendSimple(dst, true)
		}
		return append(dst, '}')
	default:
		return v.appendScalar(dst)
	}
}

func appendSimpleQuoted(dst, text []byte) []byte {
	dst = append(dst, '"')
	for _, b := range text {
		if b == '"' || b == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, b)
	}
	return append(dst, '"')
}

const millisPerDay = 86_400_000

// appendSimpleDate guesses from the number alone whether it is a time, a date
// or both, as Connect does.
func appendSimpleDate(dst []byte, millis int64) []byte {
	days, rest := floorDiv(millis, millisPerDay)
	switch {
	case millis < millisPerDay:
		return appendClockMillis(dst, rest)
	case rest == 0:
		return appendPlainDate(dst, days)
	default:
		return appendClockMillis(append(appendPlainDate(dst, days), 'T'), rest)
	}
}

// appendPlainDate appends a date after 1970; a year beyond 9999 has no sign.
func appendPlainDate(dst []byte, days int64) []byte {
	start := len(dst)
	if dst = appendISODate(dst, days); dst[start] == '+' {
		dst = append(dst[:start], dst[start+1:]...)
	}
	return dst
}

func appendClockMillis(dst []byte, millis int64) []byte {
	dst = appendClock(dst, millis/1000)
	dst = append(dst, '.')
	return append(appendPadded(dst, millis%1000, 3), 'Z')
}
