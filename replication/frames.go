package replication

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cdc-relay/cdc-relay/replication/socket"
)

const (
	frameHeader = 5         // type byte and a length that counts itself
	frameLimit  = 1<<30 + 1 // PostgreSQL builds no message of 1 GiB or more
	frameBuffer = 256 << 10
)

// frames cuts a byte stream into protocol messages, in place. A body is valid
// until the next readMore. For a message larger than its buffer it grows as bytes
// arrive, however large the length field says it is, and shrinks back after it.
//
// A message over limit is read only once whole is set: next returns errOversized.
type frames struct {
	src   io.Reader
	buf   []byte
	r, w  int // unread bytes are buf[r:w]
	limit int
	whole bool // the message at r is read whatever its size
	left  int  // bytes left of a message that is skipped

	more func() bool // reports whether src can give another piece, of at most socket.MaxTLSRecord bytes, at once; nil: not known
}

var errOversized = errors.New("message is over the limit")

func newFrames(src io.Reader) *frames {
	return &frames{src: src, buf: make([]byte, frameBuffer), limit: frameLimit + 1}
}

// next gives the next complete message; ok is false when readMore is needed.
func (f *frames) next() (kind byte, body []byte, ok bool, err error) {
	if f.left > 0 && !f.dropSkipped() {
		return 0, nil, false, nil
	}
	size, known, err := f.pending()
	if err == nil && size > f.limit && !f.whole {
		err = errOversized
	}
	if err != nil || !known || f.w-f.r < size {
		return 0, nil, false, err
	}
	f.whole = false
	kind, body = f.buf[f.r], f.buf[f.r+frameHeader:f.r+size:f.r+size]
	f.r += size
	return kind, body, true, nil
}

// pending is the size of the message at r, with its header.
func (f *frames) pending() (size int, known bool, err error) {
	if f.w-f.r < frameHeader {
		return frameHeader, false, nil
	}
	n := binary.BigEndian.Uint32(f.buf[f.r+1:])
	if n < frameHeader-1 || n > frameLimit {
		return 0, false, fmt.Errorf("message %q has length %d", f.buf[f.r], n)
	}
	return int(n) + 1, true, nil
}

// head is the part of the message at r that was read.
func (f *frames) head() []byte { return f.buf[f.r:f.w] }

// unread is how many bytes were read and not given out.
func (f *frames) unread() int { return f.w - f.r }

// at reports whether the message at r has this kind, and a body that begins so.
func (f *frames) at(kind, body byte) bool {
	head := f.head()
	return f.left == 0 && len(head) > frameHeader && head[0] == kind && head[frameHeader] == body
}

// drop drops the messages of a kind that are at hand, the last one as its bytes come. more is false
// when a message of another kind is next.
func (f *frames) drop(kind byte) (more bool, err error) {
	for {
		if f.left > 0 && !f.dropSkipped() {
			return true, nil
		}
		if f.w-f.r < frameHeader {
			return true, nil
		}
		if f.buf[f.r] != kind {
			return false, nil
		}
		if _, _, err := f.pending(); err != nil {
			return false, err
		}
		f.whole = false
		f.skip()
	}
}

// skip drops the message at r, whose length is known, as its bytes come.
func (f *frames) skip() {
	f.left, _, _ = f.pending()
}

// dropSkipped drops what is at hand of a message that is skipped, and reports whether that was its end.
func (f *frames) dropSkipped() bool {
	n := min(f.left, f.w-f.r)
	f.r, f.left = f.r+n, f.left-n
	return f.left == 0
}

// readMore reads once, and then what more says is at hand. It is called when next has nothing more.
func (f *frames) readMore() (int, error) {
	f.makeRoom()
	n, err := f.src.Read(f.buf[f.w:])
	f.w += n
	for read := n; read > 0 && f.more != nil && len(f.buf)-f.w >= socket.MaxTLSRecord && f.more(); {
		read, _ = f.src.Read(f.buf[f.w:]) // the next call returns its error
		f.w, n = f.w+read, n+read
	}
	if n > 0 {
		err = nil // the next Read returns it, without bytes
	}
	return n, err
}

func (f *frames) makeRoom() {
	unread := f.w - f.r
	switch {
	case len(f.buf) > frameBuffer && unread <= frameBuffer/2 && f.fits(frameBuffer):
		f.move(make([]byte, frameBuffer))
	case unread == len(f.buf):
		f.move(make([]byte, 2*len(f.buf)))
	case f.r > 0 && (unread == 0 || len(f.buf)-f.w < len(f.buf)/2):
		f.move(f.buf)
	}
}

// fits reports whether the message at r needs no more than n bytes.
func (f *frames) fits(n int) bool {
	size, _, err := f.pending()
	return err == nil && size <= n
}

func (f *frames) move(to []byte) {
	f.w = copy(to, f.buf[f.r:f.w])
	f.r, f.buf = 0, to
}
