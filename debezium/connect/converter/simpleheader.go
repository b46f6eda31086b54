package converter

import (
	"encoding/base64"

	"github.com/cdc-relay/cdc-relay/debezium/connect"
	"github.com/cdc-relay/cdc-relay/debezium/connect/java"
)

// simpleHeaderConverter is Connect's default for headers.
type simpleHeaderConverter struct{}

func (simpleHeaderConverter) Append(dst []byte, _ *connect.Schema, v connect.Value) ([]byte, bool, error) {
	if v.Kind() == connect.KindNull {
		return dst, true, nil
	}
	start := len(dst)
	return java.ReplaceSurrogates(appendSimple(dst, v, false), start), false, nil
}

// appendSimple appends the text of Connect's Values class. Only strings and
// bytes inside another value are quoted.
func appendSimple(dst []byte, v connect.Value, embedded bool) []byte {
	switch v.Kind() {
	case connect.KindNull:
		return append(dst, "null"...)
	case connect.KindString:
		if embedded {
			return appendSimpleQuoted(dst, v.Data())
		}
		return append(dst, v.Data()...)
	case connect.KindBuffer, connect.KindBytes:
		if embedded {
			dst = append(dst, '"')
			dst = base64.StdEncoding.AppendEncode(dst, v.Data())
			return append(dst, '"')
		}
		return base64.StdEncoding.AppendEncode(dst, v.Data())
	case connect.KindDate:
		return appendSimpleDate(dst, v.Int())
	case connect.KindArray:
		dst = append(dst, '[')
		for i, item := range v.Items() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendSimple(dst, item, true)
		}
		return append(dst, ']')
	case connect.KindMap:
		dst = append(dst, '{')
		for i := 0; i+1 < len(v.Items()); i += 2 {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendSimple(dst, v.Items()[i], true), ':')
			dst = appendSimple(dst, v.Items()[i+1], true)
		}
		return append(dst, '}')
	case connect.KindStruct:
		dst = append(dst, '{')
		for i, item := range v.Items() {
			field := v.StructSchema().Fields[i]
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendSimpleQuoted(dst, []byte(field.Name)), ':')
			dst = appendSimple(dst, field.Schema.Or(item), true)
		}
		return append(dst, '}')
	default:
		return v.AppendScalar(dst)
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

// appendSimpleDate guesses from the number alone whether it is a time, a date
// or both, as Connect does.
func appendSimpleDate(dst []byte, millis int64) []byte {
	days, rest := java.FloorDiv(millis, java.MillisPerDay)
	switch {
	case millis < java.MillisPerDay:
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
	if dst = java.AppendISODate(dst, days); dst[start] == '+' {
		dst = append(dst[:start], dst[start+1:]...)
	}
	return dst
}

func appendClockMillis(dst []byte, millis int64) []byte {
	dst = java.AppendClock(dst, millis/1000)
	dst = append(dst, '.')
	return append(java.AppendPadded(dst, millis%1000, 3), 'Z')
}
