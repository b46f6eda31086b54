package replication

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/jackc/pglogrepl"
)

// aboutMessage is how much of a message over the limit is looked at: enough for a
// row's table, and for a prefix of any reasonable length.
const aboutMessage = 4 << 10

// oversized refuses the message at hand from its first bytes if it would become a
// row. What is only read past may be as large as the server likes, as it is kept for
// no longer than that. Until enough is there to tell, it
// does nothing.
func (s *Stream) oversized() error {
	size, _, err := s.frames.pending()
	if err != nil {
		return s.violation(err)
	}
	head := s.frames.begins()
	if len(head) < min(size, frameHeader+walHeader+aboutMessage) {
		return nil
	}
	var subject string
	if head[0] == 'd' && size > frameHeader+walHeader && head[frameHeader] == 'w' {
		subject = s.dec.becomesRow(head[frameHeader+walHeader:])
	}
	if subject == "" {
		s.frames.pass = true
		return nil
	}
	past := "it"
	if s.dec.open {
		past = "the transaction, committing at " + s.dec.txn.Commit.String()
	}
	return &Error{
		Kind: KindProtocol, Reason: ReasonRowTooLarge, Op: "read row of", Subject: subject,
		LSN: s.dec.position(pglogrepl.LSN(binary.BigEndian.Uint64(head[frameHeader+1:]))),
		Err: fmt.Errorf("row %d of its transaction takes %d bytes, the limit is %d", s.dec.ordinal+1, size-frameHeader-walHeader, s.cfg.MaxRowBytes),
		Hint: "it was not read and nothing past it is confirmed; raise relay.max_row_bytes if the relay has four times as much memory, " +
			"or move the slot past " + past + "; a CHECK on the payload's length keeps such rows out",
	}
}

// becomesRow names the table or the prefix of a message of which the beginning is at
// hand, or is empty for one that is read past.
func (d *Decoder) becomesRow(head []byte) string {
	const flagsAndLSN = 1 + 1 + 8
	if len(head) < flagsAndLSN {
		return ""
	}
	switch head[0] {
	case 'I', 'U', 'D':
		r := d.relations[binary.BigEndian.Uint32(head[1:])]
		if r == nil || r.Table < 0 || head[0] == 'U' && !d.wants[r.Table].Update || head[0] == 'D' && !d.wants[r.Table].Delete {
			return ""
		}
		return r.qualified()
	case 'M':
		prefix, _, whole := bytes.Cut(head[flagsAndLSN:], []byte{0})
		if whole && (d.byPrefix[string(prefix)] != nil || d.byPrefix[AnyPrefix] != nil) {
			return fmt.Sprintf("message %q", prefix)
		}
	}
	return ""
}
