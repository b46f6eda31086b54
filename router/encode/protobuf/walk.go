package protobuf

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/cdc-relay/cdc-relay/router/encode/tape"
)

// Encoder encodes by a message of a schema. It has one owner.
type Encoder struct {
	root  *message
	index []byte // which message of the schema it is, as registries write it
	drop  bool

	tape    tape.Tape
	members []member // of the objects that are open, as a stack
	objects uint64
	scratch []byte
}

// member is one of an object: the index of its field, and below that the node of its value. As a
// number it is sorted without code of its own.
type member = int64

func memberOf(field int, value uint32) member { return member(field)<<32 | member(value) }

func parts(one member) (field int, value uint32) { return int(one >> 32), uint32(one) }

// Append appends what a payload of JSON becomes, with the number of the message in its schema in
// front. Its errors are *tape.Mismatch.
func (e *Encoder) Append(dst, payload []byte) ([]byte, error) {
	if err := e.tape.Read(payload); err != nil {
		return dst, err
	}
	e.members = e.members[:0]
	return e.message(append(dst, e.index...), e.root, 0)
}

// message writes the fields of the value at node i. Fields stand in the order of their numbers.
func (e *Encoder) message(dst []byte, m *message, i uint32) (_ []byte, err error) {
	if m.special != plain {
		return e.wellKnown(dst, m, i)
	}
	if k := e.tape.Nodes[i].Kind; k != tape.Object {
		return dst, unlike(m.name, k)
	}
	first := len(e.members)
	if err := e.collect(m, i); err != nil {
		return dst, err
	}
	for at := first; at < len(e.members); at++ { // deeper objects use what is behind, and give it back
		which, value := parts(e.members[at])
		f := m.fields[which]
		if e.missing(f, value) {
			continue
		}
		if dst, err = e.field(dst, f, value); err != nil {
			return dst, tape.In(err, e.step(value))
		}
	}
	e.members = e.members[:first]
	return dst, nil
}

// missing reports whether a member is as good as none.
func (e *Encoder) missing(f *field, value uint32) bool {
	return e.tape.Nodes[value].Kind == tape.Null && !f.takesNull()
}

// step is the step to a member, whose name stands in front of it.
func (e *Encoder) step(value uint32) string {
	return tape.Member(string(e.tape.Plain(nil, &e.tape.Nodes[value-1])))
}

// collect puts the members of an object on the stack, in the order of their fields, and looks at
// what an object as a whole has to be.
func (e *Encoder) collect(m *message, i uint32) error {
	t, first, sorted := &e.tape, len(e.members), true
	for at, nth := i+1, 0; at < t.Nodes[i].Next; nth++ {
		value := at + 1
		f := e.find(m, &t.Nodes[at], nth)
		switch {
		case f >= 0:
			one := memberOf(f, value)
			sorted = sorted && (len(e.members) == first || e.members[len(e.members)-1] < one)
			e.members = append(e.members, one)
		case !e.drop:
			return tape.In(tape.Unfit("is not in the schema; add it there, or set schema.unknown_fields: drop"), e.step(value))
		}
		at = t.Nodes[value].Next
	}
	members := e.members[first:]
	if !sorted {
		slices.Sort(members)
	}
	e.objects++
	required, last := 0, -1
	for _, one := range members {
		which, value := parts(one)
		f := m.fields[which]
		switch {
		case which == last:
			return tape.In(tape.Unfit("is there twice"), tape.Member(f.name))
		case e.missing(f, value):
		case f.oneof >= 0 && m.oneofs[f.oneof] == e.objects:
			return tape.In(tape.Unfit("is there beside another member of the same oneof"), e.step(value))
		case f.oneof >= 0:
			m.oneofs[f.oneof] = e.objects
		case f.required:
			required++
		}
		last = which
	}
	if required < m.required {
		return e.lacks(m, members)
	}
	return nil
}

// lacks names a required field that is missing.
func (e *Encoder) lacks(m *message, members []member) error {
	for i, f := range m.fields {
		has := false
		for len(members) > 0 {
			which, value := parts(members[0])
			if which > i {
				break
			}
			has = has || which == i && !e.missing(f, value)
			members = members[1:]
		}
		if f.required && !has {
			return tape.In(tape.Unfit("is missing, and the schema requires it"), tape.Member(f.name))
		}
	}
	return nil // cannot be: fewer were counted
}

// find gives the field of a member, or -1, and remembers it for the next object: members mostly come
// in the same order.
func (e *Encoder) find(m *message, name *tape.Node, nth int) int {
	text := e.tape.Raw(name)
	if name.Escaped {
		e.scratch = e.tape.Plain(e.scratch[:0], name)
		text = e.scratch
	}
	if nth < len(m.order) {
		if one := &m.names[m.order[nth]]; string(text) == one.name {
			return int(one.field)
		}
	}
	at, ok := m.index[string(text)]
	if !ok {
		return -1
	}
	if nth < len(m.order) {
		m.order[nth] = at
	}
	return int(m.names[at].field)
}

// field writes the value at node i with its tag, as often as it has one.
func (e *Encoder) field(dst []byte, f *field, i uint32) ([]byte, error) {
	switch {
	case f.isMap():
		return e.entries(dst, f, i)
	case f.repeated:
		return e.list(dst, f, i)
	}
	return e.single(dst, f, i, f.always)
}

// single writes one value with its tag. Without always a value that is zero is left out.
func (e *Encoder) single(dst []byte, f *field, i uint32, always bool) (_ []byte, err error) {
	start := len(dst)
	dst = protowire.AppendTag(dst, f.number, f.form.wire())
	switch f.form {
	case formMessage:
		dst = append(dst, 0)
		at := len(dst)
		dst, err = e.message(dst, f.message, i)
		return closeLength(dst, at), err
	case formGroup:
		dst, err = e.message(dst, f.message, i)
		return protowire.AppendTag(dst, f.number, protowire.EndGroupType), err
	case formString, formBytes:
		text, err := e.text(f, i)
		if err != nil || !always && len(text) == 0 {
			return dst[:start], err
		}
		return protowire.AppendBytes(dst, text), nil
	default:
		v, err := e.number(f, i)
		if err != nil || !always && v == 0 {
			return dst[:start], err
		}
		return appendNumber(dst, f.form, v), nil
	}
}

// closeLength puts the length of what was written from at on in front of it, where one byte is kept.
func closeLength(dst []byte, at int) []byte {
	n := len(dst) - at
	if n < 0x80 {
		dst[at-1] = byte(n)
		return dst
	}
	more := protowire.SizeVarint(uint64(n)) - 1
	dst = append(dst, make([]byte, more)...)
	copy(dst[at+more:], dst[at:at+n])
	protowire.AppendVarint(dst[:at-1], uint64(n))
	return dst
}

func (e *Encoder) list(dst []byte, f *field, i uint32) (_ []byte, err error) {
	n := e.tape.Nodes[i]
	if n.Kind != tape.Array {
		return dst, unlike("an array of "+f.typeName(), n.Kind)
	}
	if n.Count == 0 {
		return dst, nil
	}
	start := 0
	if f.packed {
		dst = append(protowire.AppendTag(dst, f.number, protowire.BytesType), 0)
		start = len(dst)
	}
	for at, nth := i+1, 0; at < n.Next; nth++ {
		if f.packed {
			var v uint64
			v, err = e.number(f, at)
			dst = appendNumber(dst, f.form, v)
		} else {
			dst, err = e.single(dst, f, at, true)
		}
		if err != nil {
			return dst, tape.In(err, tape.Element(nth))
		}
		at = e.tape.Nodes[at].Next
	}
	if f.packed {
		dst = closeLength(dst, start)
	}
	return dst, nil
}

// pair is an entry of a map.
type pair struct {
	text  string
	value uint64 // of keys that are no text
	node  uint32 // of the value
}

// entries writes a map, in the order of its keys.
func (e *Encoder) entries(dst []byte, f *field, i uint32) (_ []byte, err error) {
	t, n := &e.tape, e.tape.Nodes[i]
	if n.Kind != tape.Object {
		return dst, unlike("a map of "+f.message.fields[1].typeName(), n.Kind)
	}
	key, value := f.message.fields[0], f.message.fields[1]
	pairs := make([]*pair, 0, n.Count)
	for at := i + 1; at < n.Next; at = t.Nodes[at+1].Next {
		one := &pair{text: string(t.Plain(nil, &t.Nodes[at])), node: at + 1}
		if key.form != formString {
			var ok bool
			if one.value, ok = mapKey(key.form, one.text); !ok {
				return dst, tape.In(tape.Unfit("the schema wants keys of type %s, the payload has a key in another format", written[key.form]), tape.Entry)
			}
			one.text = ""
		}
		pairs = append(pairs, one)
	}
	slices.SortFunc(pairs, func(a, b *pair) int {
		if key.form.signed() {
			return cmp.Compare(int64(a.value), int64(b.value))
		}
		return cmp.Or(cmp.Compare(a.value, b.value), strings.Compare(a.text, b.text))
	})
	for k, one := range pairs {
		if k > 0 && pairs[k-1].value == one.value && pairs[k-1].text == one.text {
			return dst, tape.In(tape.Unfit("is there twice"), tape.Entry)
		}
		dst = append(protowire.AppendTag(dst, f.number, protowire.BytesType), 0)
		at := len(dst)
		dst = protowire.AppendTag(dst, 1, key.form.wire())
		if key.form == formString {
			dst = protowire.AppendString(dst, one.text)
		} else {
			dst = appendNumber(dst, key.form, one.value)
		}
		if dst, err = e.single(dst, value, one.node, true); err != nil {
			return dst, tape.In(err, tape.Entry)
		}
		dst = closeLength(dst, at)
	}
	return dst, nil
}

func mapKey(f form, text string) (uint64, bool) {
	switch {
	case f == formBool && text == "true":
		return 1, true
	case f == formBool:
		return 0, text == "false"
	case f.signed():
		v, err := strconv.ParseInt(text, 10, f.bits())
		return uint64(v), err == nil
	}
	v, err := strconv.ParseUint(text, 10, f.bits())
	return v, err == nil
}

// signed reports whether a whole number may be below zero.
func (f form) signed() bool {
	switch f {
	case formInt32, formInt64, formSint32, formSint64, formSfixed32, formSfixed64:
		return true
	default:
		return false
	}
}

// bits is the size of a number.
func (f form) bits() int {
	switch f {
	case formInt64, formUint64, formSint64, formFixed64, formSfixed64, formDouble:
		return 64
	default:
		return 32
	}
}

// appendNumber writes the bits of number.
func appendNumber(dst []byte, f form, v uint64) []byte {
	switch f.wire() {
	case protowire.Fixed32Type:
		return protowire.AppendFixed32(dst, uint32(v))
	case protowire.Fixed64Type:
		return protowire.AppendFixed64(dst, v)
	default:
		if f == formSint32 || f == formSint64 {
			v = protowire.EncodeZigZag(int64(v))
		}
		return protowire.AppendVarint(dst, v)
	}
}

// number is a value of a fixed size, as 64 bits.
func (e *Encoder) number(f *field, i uint32) (uint64, error) {
	n := &e.tape.Nodes[i]
	switch {
	case f.form == formBool && n.Kind == tape.Boolean:
		if e.tape.Text[n.Start] == 't' {
			return 1, nil
		}
		return 0, nil
	case f.form == formEnum:
		return e.symbol(f, n)
	case f.form == formBool || n.Kind != tape.Number && n.Kind != tape.Text:
		return 0, unlike(f.typeName(), n.Kind)
	}
	text := e.tape.Raw(n)
	if n.Kind == tape.Text {
		if n.Escaped {
			e.scratch = e.tape.Plain(e.scratch[:0], n)
			text = e.scratch
		}
		if v, ok := unusual[string(text)]; ok && (f.form == formDouble || f.form == formFloat) {
			return floatBits(f.form, v), nil
		}
		if !tape.IsNumber(text) {
			return 0, tape.Unfit("the schema wants %s, the payload has a string that is no number", f.typeName())
		}
	}
	if f.form == formDouble || f.form == formFloat {
		v, err := strconv.ParseFloat(string(text), f.form.bits())
		if err != nil {
			return 0, tape.Unfit("the schema wants %s, the payload has a number out of range", f.typeName())
		}
		return floatBits(f.form, v), nil
	}
	v, ok := whole(f.form, text)
	if !ok {
		return 0, tape.Unfit("the schema wants %s, the payload has a number with a fraction, or out of range", f.typeName())
	}
	return v, nil
}

// unusual are the numbers that JSON has not.
var unusual = map[string]float64{"NaN": math.NaN(), "Infinity": math.Inf(1), "-Infinity": math.Inf(-1)}

func floatBits(f form, v float64) uint64 {
	if f == formFloat {
		return uint64(math.Float32bits(float32(v)))
	}
	return math.Float64bits(v)
}

// whole reads a whole number that has to fit.
func whole(f form, text []byte) (uint64, bool) {
	if v, ok := tape.Integer(text); ok {
		switch {
		case f.signed():
			return uint64(v), f.bits() == 64 || v == int64(int32(v))
		default:
			return uint64(v), v >= 0 && (f.bits() == 64 || v <= math.MaxUint32)
		}
	}
	if f.signed() || f.bits() == 32 {
		return 0, false
	}
	return tape.Unsigned(text)
}

// symbol is the number of a value of an enum, which JSON has by its name or its number.
func (e *Encoder) symbol(f *field, n *tape.Node) (uint64, error) {
	switch n.Kind {
	case tape.Text:
		v, ok := f.enum.numbers[string(e.tape.Plain(nil, n))]
		if !ok {
			return 0, tape.Unfit("the schema wants a value of %s, the payload has an unknown name", f.enum.name)
		}
		return uint64(int64(v)), nil
	case tape.Number:
		v, ok := whole(formInt32, e.tape.Raw(n))
		if _, known := f.enum.names[int32(v)]; !ok || f.enum.closed && !known {
			return 0, tape.Unfit("the schema wants a value of %s, the payload has an unknown number", f.enum.name)
		}
		return v, nil
	case tape.Null:
		if f.enum.null {
			return 0, nil
		}
	default:
	}
	return 0, unlike(f.enum.name, n.Kind)
}

// text is a value of string or bytes. It is good until the next one.
func (e *Encoder) text(f *field, i uint32) ([]byte, error) {
	n := &e.tape.Nodes[i]
	if n.Kind != tape.Text {
		return nil, unlike(f.typeName(), n.Kind)
	}
	text := e.tape.Raw(n)
	if n.Escaped {
		e.scratch = e.tape.Plain(e.scratch[:0], n)
		text = e.scratch
	}
	if f.form == formString {
		return text, nil
	}
	encoding := base64.StdEncoding
	if bytes.ContainsAny(text, "-_") {
		encoding = base64.URLEncoding
	}
	if len(text)%4 != 0 {
		encoding = encoding.WithPadding(base64.NoPadding)
	}
	made, err := encoding.AppendDecode(nil, text)
	if err != nil {
		return nil, tape.Unfit("the schema wants bytes, the payload has a string that is not base64")
	}
	return made, nil
}
