package replication

import (
	"encoding/binary"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// aboutMessage is how much of a message over the limit is looked at: enough for a
// row's table, and for a prefix of any reasonable length.
const aboutMessage = 4 << 10

// oversized decides about the message at hand from its first bytes. It refuses one that
// would become a row. One that is not delivered may be as large as the server likes: it
// is counted, and its body is dropped as it comes. ok is false until enough is there to
// decide.
func (s *Stream) oversized() (ok bool, err error) {
	size, _, err := s.frames.pending()
	if err != nil {
		return false, s.violation(err)
	}
	head := s.frames.begins()
	if len(head) < min(size, frameHeader+walHeader+aboutMessage) {
		return false, nil
	}
	if head[0] != 'd' || size <= frameHeader+walHeader || head[frameHeader] != 'w' {
		s.frames.pass = true
		return true, nil
	}
	data := head[frameHeader:]
	counted, err := s.dec.Oversized(data[walHeader:], size-frameHeader-walHeader, s.opt.MaxRowBytes, wal.LSN(binary.BigEndian.Uint64(data[1:])))
	if err != nil {
		return false, err
	}
	if counted {
		s.sawWAL(data)
		s.frames.leaveOut()
	} else {
		s.frames.pass = true
	}
	return true, nil
}
