package avro

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/router/encode/tape"
)

// Append appends what a payload of JSON becomes. Its errors are *tape.Mismatch.
func (b *Encoder) Append(dst, payload []byte) ([]byte, error) {
	if err := b.tape.Read(payload); err != nil {
		return dst, err
	}
	b.seen = b.seen[:0]
	dst, _, err := b.walk(dst, b.root, &b.tape, 0)
	return dst, err
}

// maxGrowth bounds a record that defaults make far larger than its payload.
const maxGrowth = 64 << 20

// walk writes the value at node i as type a, and returns the node behind it.
func (b *Encoder) walk(dst []byte, a *avroType, t *tape.Tape, i uint32) ([]byte, uint32, error) {
	n := &t.Nodes[i]
	switch a.form {
	case formUnion:
		return b.union(dst, a, t, i)
	case formRecord:
		if n.Kind == tape.Object {
			return b.record(dst, a, t, i)
		}
	case formArray:
		if n.Kind == tape.Array {
			return b.array(dst, a, t, i)
		}
	case formMap:
		if n.Kind == tape.Object {
			return b.entries(dst, a, t, i)
		}
	case formNull:
		if n.Kind == tape.Null {
			return dst, n.Next, nil
		}
	case formBoolean:
		if n.Kind == tape.Boolean {
			return appendBool(dst, t.Text[n.Start] == 't'), n.Next, nil
		}
	default:
		var err error
		switch n.Kind {
		case tape.Number:
			dst, err = a.fromNumber(dst, t.Raw(n))
		case tape.Text:
			value := t.Raw(n)
			if n.Escaped {
				b.scratch = t.Plain(b.scratch[:0], n)
				value = b.scratch
			}
			dst, err = a.fromText(dst, value)
		default:
			err = a.unlike(n.Kind)
		}
		return dst, n.Next, err
	}
	return dst, n.Next, a.unlike(n.Kind)
}

// unlike is the mismatch of a value of another kind.
func (a *avroType) unlike(k tape.Kind) error {
	return tape.Unfit("the schema wants %s, the payload has %s", a.name, tape.Named[k])
}

func (b *Encoder) record(dst []byte, a *avroType, t *tape.Tape, i uint32) ([]byte, uint32, error) {
	first := len(b.seen)
	for range a.fields {
		b.seen = append(b.seen, -1)
	}
	end := t.Nodes[i].Next
	for at, nth := i+1, 0; at < end; nth++ {
		value := at + 1
		field := b.field(a, t, &t.Nodes[at], nth)
		switch {
		case field < 0 && !b.drop:
			return dst, end, tape.In(tape.Unfit("is not in the schema; add it there, or set schema.unknown_fields: drop"), tape.Member(string(t.Plain(nil, &t.Nodes[at]))))
		case field < 0:
		case b.seen[first+field] >= 0:
			return dst, end, tape.In(tape.Unfit("is there twice"), tape.Member(a.fields[field].name))
		default:
			b.seen[first+field] = int32(value)
		}
		at = t.Nodes[value].Next
	}
	for f := range a.fields {
		field, value := &a.fields[f], b.seen[first+f]
		switch {
		case value >= 0:
			var err error
			if dst, _, err = b.walk(dst, field.typ, t, uint32(value)); err != nil {
				return dst, end, tape.In(err, tape.Member(field.name))
			}
		case field.fallback == nil:
			return dst, end, tape.In(tape.Unfit("is missing, and the schema has no default for it"), tape.Member(field.name))
		default:
			if len(dst) > maxGrowth {
				return dst, end, tape.Unfit("the defaults of the schema make the record larger than %d bytes", maxGrowth)
			}
			dst = append(dst, field.fallback...)
		}
	}
	b.seen = b.seen[:first]
	return dst, end, nil
}

// field finds the field of a member, and remembers it for the next record: members mostly come in
// the same order.
func (b *Encoder) field(a *avroType, t *tape.Tape, name *tape.Node, nth int) int {
	written := t.Raw(name)
	if nth < len(a.order) && !name.Escaped {
		if f := a.order[nth]; string(written) == a.fields[f].name {
			return int(f)
		}
	}
	if name.Escaped {
		written = t.Plain(b.scratch[:0], name)
	}
	f, ok := a.index[string(written)]
	if !ok {
		return -1
	}
	if nth < len(a.order) {
		a.order[nth] = int32(f)
	}
	return f
}

func (b *Encoder) array(dst []byte, a *avroType, t *tape.Tape, i uint32) ([]byte, uint32, error) {
	end, count := t.Nodes[i].Next, t.Nodes[i].Count
	if count > 0 {
		dst = appendLong(dst, int64(count))
	}
	var err error
	for at, nth := i+1, 0; at < end; nth++ {
		if dst, at, err = b.walk(dst, a.inner, t, at); err != nil {
			return dst, end, tape.In(err, tape.Element(nth))
		}
	}
	return append(dst, 0), end, nil
}

// entries writes a map.
func (b *Encoder) entries(dst []byte, a *avroType, t *tape.Tape, i uint32) ([]byte, uint32, error) {
	end, count := t.Nodes[i].Next, t.Nodes[i].Count
	if count > 0 {
		dst = appendLong(dst, int64(count))
	}
	if b.repeats(t, i) {
		return dst, end, tape.In(tape.Unfit("is there twice"), tape.Entry)
	}
	var err error
	for at := i + 1; at < end; {
		key := t.Plain(nil, &t.Nodes[at])
		dst = append(appendLong(dst, int64(len(key))), key...)
		if dst, at, err = b.walk(dst, a.inner, t, at+1); err != nil {
			return dst, end, tape.In(err, tape.Entry)
		}
	}
	return append(dst, 0), end, nil
}

// repeats reports whether an object has a name twice.
func (b *Encoder) repeats(t *tape.Tape, i uint32) bool {
	end, count := t.Nodes[i].Next, t.Nodes[i].Count
	if count < 2 {
		return false
	}
	if b.keys == nil {
		b.keys = make(map[string]struct{})
	}
	defer clear(b.keys)
	for at := i + 1; at < end; at = t.Nodes[at+1].Next {
		b.keys[string(t.Plain(nil, &t.Nodes[at]))] = struct{}{}
	}
	twice := len(b.keys) < int(count)
	if count > 1024 {
		b.keys = nil
	}
	return twice
}

func (b *Encoder) union(dst []byte, a *avroType, t *tape.Tape, i uint32) ([]byte, uint32, error) {
	n := &t.Nodes[i]
	branch := a.branch[n.Kind]
	if branch >= 0 {
		return b.walk(appendLong(dst, int64(branch)), a.branches[branch], t, i)
	}
	tagged := n.Kind == tape.Object && n.Count == 1 && (branch == tagBranch || a.tagged())
	switch {
	case tagged:
		name := t.Plain(nil, &t.Nodes[i+1])
		tag, ok := a.tags[string(name)]
		if !ok {
			return dst, n.Next, tape.Unfit("the schema wants %s, and the object's one member names none of them", a.name)
		}
		dst, _, err := b.walk(appendLong(dst, int64(tag)), a.branches[tag], t, i+2)
		return dst, n.Next, tape.In(err, tape.Member(string(name)))
	case branch == tagBranch:
		return dst, n.Next, tape.Unfit("the schema wants %s, and more than one takes %s; write which, as {\"name\": value}", a.name, tape.Named[n.Kind])
	}
	return dst, n.Next, a.unlike(n.Kind)
}

// tagged reports whether values of a kind say which branch they are.
func (a *avroType) tagged() bool {
	for _, branch := range a.branch {
		if branch == tagBranch {
			return true
		}
	}
	return false
}

func (a *avroType) fromNumber(dst, written []byte) ([]byte, error) {
	switch a.form {
	case formInt, formLong, formDate, formTime, formTimestamp:
		v, ok := tape.Integer(written)
		switch {
		case !ok:
			return dst, tape.Unfit("the schema wants %s, the payload has a number with a fraction, or out of range", a.name)
		case (a.form == formInt || a.form == formDate || a.form == formTime && a.per == 1e3) && (v < math.MinInt32 || v > math.MaxInt32):
			return dst, tape.Unfit("the schema wants %s, the payload has a number out of range", a.name)
		}
		return appendLong(dst, v), nil
	case formFloat:
		v, err := strconv.ParseFloat(string(written), 32)
		if err != nil {
			return dst, tape.Unfit("the schema wants %s, the payload has a number out of range", a.name)
		}
		return appendFloat(dst, float32(v)), nil
	case formDouble:
		v, err := strconv.ParseFloat(string(written), 64)
		if err != nil {
			return dst, tape.Unfit("the schema wants %s, the payload has a number out of range", a.name)
		}
		return appendDouble(dst, v), nil
	case formDecimal:
		return a.appendDecimal(dst, written)
	default:
		return dst, a.unlike(tape.Number)
	}
}

func (a *avroType) fromText(dst, value []byte) ([]byte, error) {
	switch a.form {
	case formString:
		return append(appendLong(dst, int64(len(value))), value...), nil
	case formEnum:
		symbol, ok := a.symbols[string(value)]
		if !ok {
			return dst, tape.Unfit("the schema wants a symbol of %s, the payload has an unknown symbol", a.name)
		}
		return appendLong(dst, symbol), nil
	case formBytes, formFixed:
		return a.appendBytes(dst, value)
	case formUUID:
		return a.appendUUID(dst, value)
	case formDecimal:
		if !tape.IsNumber(value) {
			return dst, tape.Unfit("the schema wants %s, the payload has a string that is no number", a.name)
		}
		return a.appendDecimal(dst, value)
	case formDate, formTime, formTimestamp:
		return a.appendTime(dst, value)
	default:
		return dst, a.unlike(tape.Text)
	}
}

func (a *avroType) appendBytes(dst, value []byte) ([]byte, error) {
	var made []byte
	if a.base64 {
		var err error
		if made, err = base64.StdEncoding.AppendDecode(nil, value); err != nil {
			return dst, tape.Unfit("the schema wants %s, the payload has a string that is not base64", a.name)
		}
	} else {
		for len(value) > 0 {
			r, n := utf8.DecodeRune(value)
			if r > 0xff {
				return dst, tape.Unfit("the schema wants %s, the payload has a string with a character beyond U+00FF", a.name)
			}
			made, value = append(made, byte(r)), value[n:]
		}
	}
	if a.form == formBytes {
		return append(appendLong(dst, int64(len(made))), made...), nil
	}
	if len(made) != a.size {
		return dst, tape.Unfit("the schema wants %s of %d bytes, the payload has %d", a.name, a.size, len(made))
	}
	return append(dst, made...), nil
}

func (a *avroType) appendUUID(dst, value []byte) ([]byte, error) {
	var digits [32]byte
	ok := len(value) == 36 && value[8] == '-' && value[13] == '-' && value[18] == '-' && value[23] == '-'
	var made [16]byte
	if ok {
		bare := append(append(append(append(append(digits[:0], value[:8]...), value[9:13]...), value[14:18]...), value[19:23]...), value[24:]...)
		_, err := hex.Decode(made[:], bare)
		ok = err == nil
	}
	switch {
	case !ok:
		return dst, tape.Unfit("the schema wants a UUID, the payload has a string in another format")
	case a.size > 0:
		return append(dst, made[:]...), nil
	}
	return append(appendLong(dst, 36), value...), nil
}

// appendTime takes what PostgreSQL and RFC 3339 write. Digits of a second that the type has no room
// for are cut off.
func (a *avroType) appendTime(dst, value []byte) ([]byte, error) {
	if len(value) > 64 {
		return dst, tape.Unfit("the schema wants %s, the payload has a string in another format", a.described())
	}
	if a.form == formTimestamp && !a.local {
		var at time.Time
		if at.UnmarshalText(value) == nil { // the usual case, for which no memory is needed
			return a.appendStamp(dst, at)
		}
	}
	written := bytes.Clone(value)
	if a.form == formTimestamp && len(written) > 10 && written[10] == ' ' {
		written[10] = 'T'
	}
	layout := time.RFC3339Nano
	switch {
	case a.form == formDate:
		layout = time.DateOnly
	case a.form == formTime:
		layout = "15:04:05.999999999"
	case a.local:
		layout = "2006-01-02T15:04:05.999999999"
	}
	at, err := time.Parse(layout, string(written))
	if err != nil {
		return dst, tape.Unfit("the schema wants %s, the payload has a string in another format", a.described())
	}
	switch a.form {
	case formDate:
		return appendLong(dst, at.Unix()/86400), nil // whole days, before 1970 too
	case formTime:
		since := at.Sub(time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC))
		return appendLong(dst, int64(since)/(1e9/a.per)), nil
	default:
		return a.appendStamp(dst, at)
	}
}

func (a *avroType) appendStamp(dst []byte, at time.Time) ([]byte, error) {
	if a.per == 1e9 && (at.Year() < 1678 || at.Year() > 2261) {
		return dst, tape.Unfit("the schema wants nanoseconds since 1970 in 64 bits, the payload has a time out of range")
	}
	return appendLong(dst, at.Unix()*a.per+int64(at.Nanosecond())/(1e9/a.per)), nil
}

// described names what a time is written as.
func (a *avroType) described() string {
	switch {
	case a.form == formDate:
		return "a date such as 2026-01-31, or a number of days"
	case a.form == formTime:
		return "a time such as 12:00:00.5, or a number"
	case a.local:
		return "a time without zone such as 2026-01-31T12:00:00, or a number"
	}
	return "a time such as 2026-01-31T12:00:00Z, or a number"
}
