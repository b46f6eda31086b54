package avro

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/router/encode/tape"
)

// errCut is a value that ends too soon, or is none of the schema.
var errCut = errors.New("the value is not one of its schema")

// Decode gives plain JSON, as payloads have it.
func (b *Encoder) Decode(src []byte) ([]byte, error) {
	r := &reader{src: src}
	out := r.value(nil, b.root, 0)
	switch {
	case r.bad:
		return nil, errCut
	case len(r.src) > 0:
		return nil, fmt.Errorf("%d bytes are behind the record", len(r.src))
	}
	return out, nil
}

// reader reads a value. It goes on with zeros behind the first mistake.
type reader struct {
	src []byte
	bad bool
}

func (r *reader) fail() { r.bad, r.src = true, nil }

func (r *reader) long() int64 {
	v, n := binary.Varint(r.src)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.src = r.src[n:]
	return v
}

func (r *reader) take(n int64) []byte {
	if n < 0 || n > int64(len(r.src)) {
		r.fail()
		return nil
	}
	p := r.src[:n]
	r.src = r.src[n:]
	return p
}

func (r *reader) value(dst []byte, a *avroType, depth int) []byte {
	if r.bad || depth > tape.MaxDepth || len(dst) > maxGrowth {
		r.fail()
		return dst
	}
	switch a.form {
	case formUnion:
		i := r.long()
		if i < 0 || i >= int64(len(a.branches)) {
			r.fail()
			return dst
		}
		return r.value(dst, a.branches[i], depth) // no level of JSON, and none is in another
	case formRecord:
		dst = append(dst, '{')
		for i := range a.fields {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = r.value(append(tape.Quoted(dst, a.fields[i].name), ':'), a.fields[i].typ, depth+1)
		}
		return append(dst, '}')
	case formArray:
		return append(r.blocks(append(dst, '['), func(dst []byte) []byte { return r.value(dst, a.inner, depth+1) }), ']')
	case formMap:
		return append(r.blocks(append(dst, '{'), func(dst []byte) []byte {
			return r.value(append(tape.Quoted(dst, string(r.take(r.long()))), ':'), a.inner, depth+1)
		}), '}')
	default:
		return r.leaf(dst, a)
	}
}

// blocks reads what arrays and maps consist of.
func (r *reader) blocks(dst []byte, one func([]byte) []byte) []byte {
	first := true
	for n := r.long(); n != 0 && !r.bad; n = r.long() {
		if n < 0 {
			n = -n
			r.long() // the size in bytes
		}
		for ; n > 0 && !r.bad; n-- {
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst = one(dst)
		}
	}
	return dst
}

func (r *reader) leaf(dst []byte, a *avroType) []byte {
	switch a.form {
	case formNull:
		return append(dst, "null"...)
	case formBoolean:
		return strconv.AppendBool(dst, string(r.take(1)) == "\x01")
	case formInt, formLong:
		return strconv.AppendInt(dst, r.long(), 10)
	case formFloat:
		if p := r.take(4); p != nil {
			return strconv.AppendFloat(dst, float64(math.Float32frombits(binary.LittleEndian.Uint32(p))), 'g', -1, 32)
		}
	case formDouble:
		if p := r.take(8); p != nil {
			return strconv.AppendFloat(dst, math.Float64frombits(binary.LittleEndian.Uint64(p)), 'g', -1, 64)
		}
	case formEnum:
		if i := r.long(); i >= 0 && i < int64(len(a.ordered)) {
			return tape.Quoted(dst, a.ordered[i])
		}
		r.fail()
	case formString:
		return tape.Quoted(dst, string(r.take(r.long())))
	case formDate, formTime, formTimestamp:
		return tape.Quoted(dst, a.timeText(r.long()))
	default:
		n := int64(a.size)
		if n == 0 {
			n = r.long()
		}
		return a.bytesText(dst, r.take(n))
	}
	return dst
}

// timeText is a time as payloads have it.
func (a *avroType) timeText(v int64) string {
	switch a.form {
	case formDate:
		return time.Unix(0, 0).UTC().AddDate(0, 0, int(v)).Format(time.DateOnly)
	case formTime:
		return time.Unix(0, 0).UTC().Add(time.Duration(v) * time.Duration(1e9/a.per)).Format("15:04:05.999999999")
	default:
	}
	seconds, rest := v/a.per, v%a.per
	at := time.Unix(seconds, rest*(1e9/a.per)).UTC()
	if a.local {
		return at.Format("2006-01-02T15:04:05.999999999")
	}
	return at.Format(time.RFC3339Nano)
}

func (a *avroType) bytesText(dst, p []byte) []byte {
	switch {
	case a.form == formUUID && a.size > 0 && len(p) == 16:
		h := hex.EncodeToString(p)
		return tape.Quoted(dst, strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-"))
	case a.form == formUUID:
		return tape.Quoted(dst, string(p))
	case a.form == formDecimal:
		v := new(big.Int).SetBytes(p)
		if len(p) > 0 && p[0]&0x80 != 0 {
			v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(8*len(p))))
		}
		return appendPoint(dst, v.String(), a.scale)
	case a.base64:
		return tape.Quoted(dst, base64.StdEncoding.EncodeToString(p))
	}
	runes := make([]rune, len(p))
	for i, c := range p {
		runes[i] = rune(c)
	}
	return tape.Quoted(dst, string(runes))
}

// appendPoint writes a whole number with a point before its last digits.
func appendPoint(dst []byte, digits string, scale int) []byte {
	if digits[0] == '-' {
		dst, digits = append(dst, '-'), digits[1:]
	}
	if missing := scale + 1 - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	dst = append(dst, digits[:len(digits)-scale]...)
	if scale > 0 {
		dst = append(append(dst, '.'), digits[len(digits)-scale:]...)
	}
	return dst
}
