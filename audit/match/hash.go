package match

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"strings"

	"github.com/cdc-relay/cdc-relay/router/record"
)

// ID is the hash of an event id.
type ID [16]byte

// Content is what is compared of a record beside its topic.
type Content struct {
	Key     uint64 // hash of the record's key
	NoKey   bool   // the key is null
	NoValue bool   // the value is null
	Rest    uint64 // hash of value and headers
	Value   uint16 // of the hash of the value; tells which part differs
	Headers uint16
}

// Same reports whether two contents are equal.
func (c *Content) Same(other *Content) bool { return c.Key == other.Key && c.Rest == other.Rest }

// differs names the part that is not equal.
func (c *Content) differs(other *Content) string {
	switch value, headers := c.Value != other.Value, c.Headers != other.Headers; {
	case c.Key != other.Key:
		return "key"
	case value && headers:
		return "value and headers"
	case value:
		return "value"
	case headers:
		return "headers"
	}
	return "value or headers"
}

// Hasher hashes with a seed that no other one has. One goroutine uses it.
type Hasher struct {
	high, low maphash.Seed
	scratch   []byte
}

// NewHasher draws the seed.
func NewHasher() *Hasher { return &Hasher{high: maphash.MakeSeed(), low: maphash.MakeSeed()} }

// ID hashes an event id.
func (h *Hasher) ID(id []byte) (sum ID) {
	binary.BigEndian.PutUint64(sum[:8], maphash.Bytes(h.high, id))
	binary.BigEndian.PutUint64(sum[8:], maphash.Bytes(h.low, id))
	return sum
}

// Sampled selects one of n events, and the same ones on both sides.
func (id *ID) Sampled(n uint64) bool { return n <= 1 || binary.BigEndian.Uint64(id[8:])%n == 0 }

// Content hashes a record. What the time of producing decides is left out: the headers of the
// relay itself, those of a trace, and the attribute time of a CloudEvent.
func (h *Hasher) Content(key, value []byte, headers []record.Header) Content {
	c := Content{Key: h.nullable(key), NoKey: key == nil, NoValue: value == nil}
	structured, binaryMode := false, false
	for i := range headers {
		switch headers[i].Key {
		case "content-type":
			structured = bytes.HasPrefix(headers[i].Value, []byte("application/cloudevents+json"))
		case "ce_specversion":
			binaryMode = true
		}
	}
	buf := h.scratch[:0]
	for i := range headers {
		name := headers[i].Key
		if leftOut(name) || binaryMode && name == "ce_time" {
			continue
		}
		buf = binary.AppendUvarint(buf, uint64(len(name)))
		buf = append(buf, name...)
		if headers[i].Value == nil {
			buf = append(buf, 0)
			continue
		}
		buf = binary.AppendUvarint(append(buf, 1), uint64(len(headers[i].Value)))
		buf = append(buf, headers[i].Value...)
	}
	h.scratch = buf
	var parts [16]byte
	hashed := maphash.Bytes(h.high, buf)
	binary.BigEndian.PutUint64(parts[:8], hashed)
	c.Headers = uint16(hashed)
	if structured {
		before, behind := withoutTime(value)
		h.scratch = append(append(buf[:0], before...), behind...)
		hashed = maphash.Bytes(h.high, h.scratch)
	} else {
		hashed = h.nullable(value)
	}
	binary.BigEndian.PutUint64(parts[8:], hashed)
	c.Value = uint16(hashed)
	c.Rest = maphash.Bytes(h.low, parts[:])
	return c
}

// nullable distinguishes a null from what is empty.
func (h *Hasher) nullable(b []byte) uint64 {
	if b == nil {
		return maphash.String(h.low, "null")
	}
	return maphash.Bytes(h.high, b)
}

func leftOut(header string) bool {
	return strings.HasPrefix(header, record.OwnPrefix) || header == "traceparent" || header == "tracestate"
}

// withoutTime cuts the attribute time out of a structured CloudEvent as the relay writes it: a
// string without escapes, before the data. Nothing is left of it, as where there is none.
func withoutTime(event []byte) (before, behind []byte) {
	const member = `"time":"`
	depth, quoted := 0, false
	for i := 0; i < len(event); i++ {
		switch c := event[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			if !quoted && depth == 1 && bytes.HasPrefix(event[i:], []byte(member)) {
				end := bytes.IndexByte(event[i+len(member):], '"')
				if end < 0 {
					return event, nil
				}
				before, behind = event[:i], event[i+len(member)+end+1:]
				if rest, more := bytes.CutPrefix(behind, []byte(",")); more {
					return before, rest
				}
				return bytes.TrimSuffix(before, []byte(",")), behind
			}
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		}
	}
	return event, nil
}
