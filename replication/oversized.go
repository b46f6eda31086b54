package replication

import (
	"encoding/binary"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// aboutMessage is how much of a message over the limit is read: enough for a row's table, and for
// a prefix of any reasonable length.
const aboutMessage = 4 << 10

// oversized decides about the message at r from its first bytes. It refuses a message that would
// become a row. A message that is not delivered may have any size: it is counted, and its body is
// dropped as it comes. ok is false until enough bytes are there to decide.
func (s *Stream) oversized() (ok bool, err error) {
	size, _, err := s.frames.pending()
	if err != nil {
		return false, s.violation(err)
	}
	head := s.frames.head()
	if len(head) < min(size, frameHeader+walHeader+aboutMessage) {
		return false, nil
	}
	if head[0] != 'd' || size <= frameHeader+walHeader || head[frameHeader] != 'w' {
		s.frames.whole = true
		return true, nil
	}
	data := head[frameHeader:]
	counted, err := s.dec.Oversized(data[walHeader:], size-frameHeader-walHeader, s.opt.MaxRowBytes, wal.LSN(binary.BigEndian.Uint64(data[1:])))
	if err != nil {
		return false, err
	}
	if counted {
		s.sawWAL(data)
		s.frames.skip()
	} else {
		s.frames.whole = true
	}
	return true, nil
}
