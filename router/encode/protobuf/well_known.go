package protobuf

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/cdc-relay/cdc-relay/router/encode/tape"
)

// special is a JSON form that a well-known type has instead of an object of its fields.
type special byte

const (
	plain special = iota
	timestamp
	duration
	fieldMask
	wrapper
	structure // google.protobuf.Struct
	listValue
	anyValue // google.protobuf.Value
	refused  // google.protobuf.Any
)

const google = "google.protobuf."

// addWellKnown takes up the types that schemas name without a reference.
func (c *Compiler) addWellKnown() {
	add := func(name string, s special, fields ...*field) *message {
		m := &message{name: google + name, special: s, fields: fields}
		for i := range fields {
			fields[i].number, fields[i].oneof = protowire.Number(i+1), -1
		}
		c.messages[m.name] = m
		return m
	}
	null := &enum{name: google + "NullValue", null: true, numbers: map[string]int32{"NULL_VALUE": 0}, names: map[int32]string{0: "NULL_VALUE"}}
	c.enums[null.name] = null
	seconds := []*field{{form: formInt64}, {form: formInt32}}
	add("Timestamp", timestamp, seconds...)
	add("Duration", duration, seconds...)
	add("FieldMask", fieldMask, &field{form: formString, repeated: true})
	add("Any", refused)
	add("Empty", plain)
	for name, f := range map[string]form{
		"DoubleValue": formDouble, "FloatValue": formFloat, "Int64Value": formInt64, "UInt64Value": formUint64, "Int32Value": formInt32,
		"UInt32Value": formUint32, "BoolValue": formBool, "StringValue": formString, "BytesValue": formBytes,
	} {
		add(name, wrapper, &field{form: f})
	}
	value := add("Value", anyValue, &field{form: formEnum, enum: null}, &field{form: formDouble}, &field{form: formString}, &field{form: formBool}, &field{form: formMessage}, &field{form: formMessage})
	entry := add("Struct.FieldsEntry", plain, &field{form: formString}, &field{form: formMessage, message: value})
	entry.entry = true
	value.fields[4].message = add("Struct", structure, &field{form: formMessage, message: entry, repeated: true})
	value.fields[5].message = add("ListValue", listValue, &field{form: formMessage, message: value, repeated: true})
}

// wellKnown writes the value at node i as a type with a JSON form of its own.
func (e *Encoder) wellKnown(dst []byte, m *message, i uint32) ([]byte, error) {
	n := &e.tape.Nodes[i]
	switch m.special {
	case wrapper:
		return e.single(dst, m.fields[0], i, false)
	case structure:
		return e.entries(dst, m.fields[0], i)
	case listValue:
		return e.list(dst, m.fields[0], i)
	case anyValue:
		which := [tape.Kinds]int{tape.Null: 0, tape.Number: 1, tape.Text: 2, tape.Boolean: 3, tape.Object: 4, tape.Array: 5}[n.Kind]
		return e.single(dst, m.fields[which], i, true)
	case refused:
		return dst, tape.Unfit("the schema wants %s, which a payload cannot give", m.name)
	default: // a string
	}
	if n.Kind != tape.Text {
		return dst, unlike(m.name, n.Kind)
	}
	text := e.tape.Plain(nil, n)
	if m.special == fieldMask {
		return appendFieldMask(dst, m, string(bytes.TrimSpace(text)))
	}
	var seconds, nanos int64
	var ok bool
	shape := "a time such as 2026-01-31T12:00:00Z"
	if m.special == timestamp {
		seconds, nanos, ok = parseTimestamp(text)
	} else {
		seconds, nanos, ok = parseDuration(string(text))
		shape = "a duration such as 1.5s"
	}
	if !ok {
		return dst, tape.Unfit("the schema wants %s, the payload has a string in another format", shape)
	}
	if seconds != 0 {
		dst = appendNumber(protowire.AppendTag(dst, 1, protowire.VarintType), formInt64, uint64(seconds))
	}
	if nanos != 0 {
		dst = appendNumber(protowire.AppendTag(dst, 2, protowire.VarintType), formInt32, uint64(nanos))
	}
	return dst, nil
}

// Bounds of google.protobuf.Timestamp and Duration, in seconds.
const (
	minTimestamp = -62135596800
	maxTimestamp = 253402300799
	maxDuration  = 315576000000
)

func parseTimestamp(text []byte) (seconds, nanos int64, ok bool) {
	var at time.Time
	if at.UnmarshalText(text) != nil {
		return 0, 0, false
	}
	if i := bytes.IndexByte(text, '.'); i >= 0 && bytes.IndexAny(text[i:], "Z-+") > len(".999999999") {
		return 0, 0, false
	}
	seconds = at.Unix()
	return seconds, int64(at.Nanosecond()), seconds >= minTimestamp && seconds <= maxTimestamp
}

// parseDuration reads what Protobuf's JSON has: -1.5s, 0.1s, 3s.
func parseDuration(text string) (seconds, nanos int64, ok bool) {
	text, ok = strings.CutSuffix(text, "s")
	digits, negative := strings.CutPrefix(text, "-")
	if !negative {
		digits = strings.TrimPrefix(digits, "+")
	}
	before, after, _ := strings.Cut(digits, ".")
	if !ok || !isDigits(before) || before == "" && after == "" || len(after) > 9 || !isDigits(after) || len(before) > 12 || len(before) > 1 && before[0] == '0' {
		return 0, 0, false
	}
	seconds, _ = strconv.ParseInt("0"+before, 10, 64)
	nanos, _ = strconv.ParseInt((after + "000000000")[:9], 10, 64)
	if negative {
		seconds, nanos = -seconds, -nanos
	}
	return seconds, nanos, seconds >= -maxDuration && seconds <= maxDuration
}

func isDigits(text string) bool { return strings.Trim(text, "0123456789") == "" }

// appendFieldMask writes paths, which JSON has with a comma between them and in lowerCamelCase.
func appendFieldMask(dst []byte, m *message, text string) ([]byte, error) {
	if text == "" {
		return dst, nil
	}
	for path := range strings.SplitSeq(text, ",") {
		snake := make([]byte, 0, len(path)+8)
		for i := range len(path) {
			if c := path[i]; 'A' <= c && c <= 'Z' {
				snake = append(snake, '_', c+('a'-'A'))
			} else {
				snake = append(snake, c)
			}
		}
		if strings.Contains(path, "_") || !isFullName(string(snake)) {
			return dst, tape.Unfit("the schema wants %s, the payload has a string in another format", m.name)
		}
		dst = protowire.AppendBytes(protowire.AppendTag(dst, 1, protowire.BytesType), snake)
	}
	return dst, nil
}

func isFullName(name string) bool {
	for part := range strings.SplitSeq(name, ".") {
		if part == "" || '0' <= part[0] && part[0] <= '9' || strings.Trim(strings.ToLower(part), "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
			return false
		}
	}
	return true
}
