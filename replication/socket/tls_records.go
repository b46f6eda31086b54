package socket

import "encoding/binary"

// tlsRecords follows the TLS records in what a connection gives out. PostgreSQL's first answer is one
// byte, after which they begin; where TLS comes first, they begin at once. On a connection without
// TLS there are none.
//
// Source: PostgreSQL, Frontend/Backend Protocol, SSL Session Encryption; RFC 8446, 5.1.
type tlsRecords struct {
	begun, none bool
	left        int // bytes until the next record begins
}

const (
	tlsHeader    = 5
	MaxTLSRecord = tlsHeader + 1<<14 + 1<<8 // RFC 8446, 5.2
	tlsHandshake = 22
	tlsData      = 23
	acceptsTLS   = 'S'
)

// firstRecord is the size of the record at the beginning of buf, with its header, and its type. known is
// false where the header is not there yet, or is none.
func firstRecord(buf []byte) (size int, kind byte, known bool) {
	if len(buf) < tlsHeader {
		return 0, 0, false
	}
	size = tlsHeader + int(binary.BigEndian.Uint16(buf[3:]))
	return size, buf[0], buf[0] >= 20 && buf[0] <= 24 && buf[1] == 3 && size <= MaxTLSRecord
}

// next is how many bytes of buf may be given out now: none beyond the record at its beginning, so
// that TLS never holds part of a later one. Zero means that more bytes are needed to know.
func (r *tlsRecords) next(buf []byte) int {
	if !r.begun && !r.none {
		r.begin(buf[0])
	}
	if r.none {
		return len(buf)
	}
	if r.left == 0 {
		if len(buf) < tlsHeader {
			return 0
		}
		size, _, known := firstRecord(buf)
		if !known {
			r.none = true
			return len(buf)
		}
		r.left = size
	}
	return min(r.left, len(buf))
}

func (r *tlsRecords) begin(first byte) {
	switch first {
	case acceptsTLS:
		r.begun, r.left = true, 1
	case tlsHandshake:
		r.begun = true
	default:
		r.none = true
	}
}

// gave notes that bytes were given out, no more than next allowed.
func (r *tlsRecords) gave(n int) {
	if r.begun && !r.none {
		r.left -= n
	}
}

// holdsData reports whether buf begins with a whole record of data.
func (r *tlsRecords) holdsData(buf []byte) bool {
	size, kind, known := firstRecord(buf)
	return r.begun && !r.none && r.left == 0 && known && kind == tlsData && size <= len(buf)
}
