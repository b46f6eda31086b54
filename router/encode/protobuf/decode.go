package protobuf

import (
	"bytes"
	"encoding/base64"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/cdc-relay/cdc-relay/router/encode/tape"
)

// errCut is a value that ends too soon, or is none of the schema.
var errCut = errors.New("the value is not one of its schema")

// Decode gives JSON, as payloads have it.
func (e *Encoder) Decode(src []byte) ([]byte, error) {
	src, ok := bytes.CutPrefix(src, e.index)
	if !ok {
		return nil, errors.New("the value is another message of its schema")
	}
	r := reader{}
	out := r.message(nil, e.root, src, 0)
	if r.bad {
		return nil, errCut
	}
	return out, nil
}

// reader reads a value. It goes on with nothing behind the first mistake.
type reader struct{ bad bool }

// part is a field as it stands in a message.
type part struct {
	field int
	value uint64 // of numbers
	text  []byte
}

func (r *reader) fail(dst []byte) []byte {
	r.bad = true
	return dst
}

// parts are the fields of a message, in the order of their numbers.
func (r *reader) parts(m *message, b []byte) []part {
	var all []part
	for len(b) > 0 {
		number, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			r.bad = true
			return nil
		}
		at, ok := slices.BinarySearchFunc(m.fields, number, func(f *field, n protowire.Number) int { return int(f.number - n) })
		one := part{field: at}
		b = b[n:]
		switch typ {
		case protowire.BytesType:
			one.text, n = protowire.ConsumeBytes(b)
		case protowire.StartGroupType:
			one.text, n = protowire.ConsumeGroup(number, b)
		default:
			one.value, n = consume(typ, b)
		}
		if n < 0 || !ok || m.fields[at].form.wire() != typ && (!m.fields[at].packed || typ != protowire.BytesType) {
			r.bad = true
			return nil
		}
		all, b = append(all, one), b[n:]
	}
	order := make([]member, len(all))
	for i := range all {
		order[i] = memberOf(all[i].field, uint32(i))
	}
	slices.Sort(order)
	sorted := make([]part, len(all))
	for i, one := range order {
		_, at := parts(one)
		sorted[i] = all[at]
	}
	return sorted
}

// consume reads a number.
func consume(typ protowire.Type, b []byte) (uint64, int) {
	switch typ {
	case protowire.VarintType:
		return protowire.ConsumeVarint(b)
	case protowire.Fixed32Type:
		v, n := protowire.ConsumeFixed32(b)
		return uint64(v), n
	case protowire.Fixed64Type:
		return protowire.ConsumeFixed64(b)
	default:
		return 0, -1
	}
}

// maxDecoded bounds what a value becomes.
const maxDecoded = 64 << 20

func (r *reader) message(dst []byte, m *message, b []byte, depth int) []byte {
	if r.bad || depth > tape.MaxDepth || len(dst) > maxDecoded {
		return r.fail(dst)
	}
	all := r.parts(m, b)
	if m.special != plain {
		return r.wellKnown(dst, m, all, depth)
	}
	dst = append(dst, '{')
	for first := 0; first < len(all) && !r.bad; {
		f, end := m.fields[all[first].field], first+1
		for end < len(all) && all[end].field == all[first].field {
			end++
		}
		if first > 0 {
			dst = append(dst, ',')
		}
		dst = r.field(append(tape.Quoted(dst, f.name), ':'), f, all[first:end], depth)
		first = end
	}
	return append(dst, '}')
}

// field writes a field's value. Of several of one that is not repeated the last one counts.
func (r *reader) field(dst []byte, f *field, all []part, depth int) []byte {
	switch {
	case f.isMap():
		return r.entries(dst, f, all, depth)
	case !f.repeated:
		return r.value(dst, f, all[len(all)-1], depth)
	}
	dst = append(dst, '[')
	first := true
	one := func(p part) {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = r.value(dst, f, p, depth)
	}
	for _, p := range all {
		if !f.packed {
			one(p)
			continue
		}
		if p.text == nil {
			one(p)
		}
		for b := p.text; len(b) > 0 && !r.bad; {
			v, n := consume(f.form.wire(), b)
			if n < 0 {
				return r.fail(dst)
			}
			one(part{value: v})
			b = b[n:]
		}
	}
	return append(dst, ']')
}

func (r *reader) entries(dst []byte, f *field, all []part, depth int) []byte {
	dst = append(dst, '{')
	for i, p := range all {
		if i > 0 {
			dst = append(dst, ',')
		}
		sides := r.parts(f.message, p.text)
		if len(sides) != 2 || sides[0].field != 0 || sides[1].field != 1 {
			return r.fail(dst)
		}
		key := r.value(nil, f.message.fields[0], sides[0], depth)
		if len(key) == 0 || key[0] != '"' {
			key = append(append([]byte{'"'}, key...), '"')
		}
		dst = r.value(append(append(dst, key...), ':'), f.message.fields[1], sides[1], depth)
	}
	return append(dst, '}')
}

func (r *reader) value(dst []byte, f *field, p part, depth int) []byte {
	switch f.form {
	case formMessage, formGroup:
		return r.message(dst, f.message, p.text, depth+1)
	case formString:
		return tape.Quoted(dst, string(p.text))
	case formBytes:
		return tape.Quoted(dst, base64.StdEncoding.EncodeToString(p.text))
	case formBool:
		return strconv.AppendBool(dst, p.value != 0)
	case formEnum:
		if f.enum.null && p.value == 0 {
			return append(dst, "null"...)
		}
		if name, ok := f.enum.names[int32(p.value)]; ok {
			return tape.Quoted(dst, name)
		}
		return strconv.AppendInt(dst, int64(int32(p.value)), 10)
	case formDouble:
		return appendFloat(dst, math.Float64frombits(p.value), 64)
	case formFloat:
		return appendFloat(dst, float64(math.Float32frombits(uint32(p.value))), 32)
	default:
		return appendWhole(dst, f.form, p.value)
	}
}

func appendWhole(dst []byte, f form, v uint64) []byte {
	if f == formSint32 || f == formSint64 {
		v = uint64(protowire.DecodeZigZag(v))
	}
	switch {
	case f.signed() && f.bits() == 32:
		return strconv.AppendInt(dst, int64(int32(v)), 10)
	case f.signed():
		return append(strconv.AppendInt(append(dst, '"'), int64(v), 10), '"')
	case f.bits() == 32:
		return strconv.AppendUint(dst, uint64(uint32(v)), 10)
	}
	return append(strconv.AppendUint(append(dst, '"'), v, 10), '"')
}

func appendFloat(dst []byte, v float64, bits int) []byte {
	switch {
	case math.IsNaN(v):
		return append(dst, `"NaN"`...)
	case math.IsInf(v, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(v, -1):
		return append(dst, `"-Infinity"`...)
	}
	return strconv.AppendFloat(dst, v, 'g', -1, bits)
}

func (r *reader) wellKnown(dst []byte, m *message, all []part, depth int) []byte {
	zero := len(all) == 0
	switch m.special {
	case wrapper:
		p := part{}
		if !zero {
			p = all[len(all)-1]
		}
		return r.value(dst, m.fields[0], p, depth)
	case structure, listValue:
		return r.field(dst, m.fields[0], all, depth)
	case anyValue:
		if zero {
			return r.fail(dst)
		}
		p := all[len(all)-1]
		return r.value(dst, m.fields[p.field], p, depth)
	case refused:
		return r.fail(dst)
	case fieldMask:
		var paths []string
		for _, p := range all {
			paths = append(paths, camel(string(p.text)))
		}
		return tape.Quoted(dst, strings.Join(paths, ","))
	default: // a time
	}
	var seconds, nanos int64
	for _, p := range all {
		if p.field == 0 {
			seconds = int64(p.value)
		} else {
			nanos = int64(int32(p.value))
		}
	}
	if m.special == timestamp {
		return tape.Quoted(dst, time.Unix(seconds, nanos).UTC().Format(time.RFC3339Nano))
	}
	sign := ""
	if seconds < 0 || nanos < 0 {
		sign, seconds, nanos = "-", -seconds, -nanos
	}
	text := sign + strconv.FormatInt(seconds, 10)
	if nanos != 0 {
		text += "." + strings.TrimRight(strconv.FormatInt(1_000_000_000+nanos, 10)[1:], "0")
	}
	return tape.Quoted(dst, text+"s")
}
