package sink

import (
	"encoding/binary"
	"math/bits"
)

// The rules of a block: a match has minMatch bytes at least, begins matchMargin bytes
// before the end at the latest, and ends literalTail bytes before it. See
// https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md.
const (
	minMatch    = 4
	matchMargin = 12
	literalTail = 5
)

// lz4Skip is how soon the search for a match takes larger steps: after 1<<lz4Skip
// positions without one by one more.
const lz4Skip = 4

// lz4Table finds where bytes were seen before in a block of 64 KiB at most. Its 16 KiB
// stay in the processor's first cache; the library's has eight times as much, and
// looks at three positions where this one looks at one.
type lz4Table [1 << 13]uint16

// placeOf is where six of the next eight bytes have their place. Of fewer, more would be
// found, but short matches take longer to write than they save.
func placeOf(eight uint64) uint64 { return (eight << 16) * 227718039650203 >> (64 - 13) }

// appendBlock appends src, compressed, to dst, which grows by
// len(src)+len(src)/255+16 bytes at most.
func (t *lz4Table) appendBlock(dst, src []byte) []byte {
	clear(t[:])
	anchor, end := 0, len(src)-literalTail
	for at, tries := 1, 1<<lz4Skip; at <= len(src)-matchMargin; {
		eight := binary.LittleEndian.Uint64(src[at:])
		place := placeOf(eight)
		ref := int(t[place])
		t[place] = uint16(at)
		if binary.LittleEndian.Uint32(src[ref:]) != uint32(eight) {
			at += tries >> lz4Skip
			tries++
			continue
		}
		tries = 1 << lz4Skip
		for at > anchor && ref > 0 && src[at-1] == src[ref-1] {
			at, ref = at-1, ref-1
		}
		n := minMatch + alike(src[at+minMatch:end], src[ref+minMatch:])
		dst = appendLiterals(dst, src[anchor:at], n-minMatch)
		dst = append(dst, byte(at-ref), byte((at-ref)>>8))
		if n-minMatch >= 15 {
			dst = appendLength(dst, n-minMatch-15)
		}
		at += n
		anchor = at
		if at <= len(src)-matchMargin {
			t[placeOf(binary.LittleEndian.Uint64(src[at-2:]))] = uint16(at - 2)
		}
	}
	return appendLiterals(dst, src[anchor:], 0)
}

// alike is how many bytes a has in common with b, which is not shorter.
func alike(a, b []byte) int {
	b = b[:len(a)] // with it and the loop's condition as they are, the compiler leaves out the checks of bounds
	n := 0
	for ; n <= len(a)-8; n += 8 {
		if x := binary.LittleEndian.Uint64(a[n:]) ^ binary.LittleEndian.Uint64(b[n:]); x != 0 {
			return n + bits.TrailingZeros64(x)/8
		}
	}
	for n < len(a) && a[n] == b[n] {
		n++
	}
	return n
}

// appendLiterals appends the first byte of a sequence, which has the length of the match
// after it beyond minMatch, and its literals.
func appendLiterals(dst, literals []byte, match int) []byte {
	low := byte(min(match, 15))
	if n := len(literals); n < 15 {
		dst = append(dst, byte(n)<<4|low)
	} else {
		dst = appendLength(append(dst, 15<<4|low), n-15)
	}
	return append(dst, literals...)
}

// appendLength appends what a length has beyond the 15 of its half byte.
func appendLength(dst []byte, n int) []byte {
	for ; n >= 255; n -= 255 {
		dst = append(dst, 255)
	}
	return append(dst, byte(n))
}
