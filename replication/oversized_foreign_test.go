package replication

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/pgoutput"
	"github.com/cdc-relay/cdc-relay/replication/pgoutput/pgoutputtest"
)

// flood is one message: the head, then zeros.
type flood struct {
	head []byte
	left int
}

func (f *flood) Read(p []byte) (int, error) {
	if len(f.head) > 0 {
		n := copy(p, f.head)
		f.head = f.head[n:]
		return n, nil
	}
	n := min(len(p), f.left)
	clear(p[:n])
	f.left -= n
	return n, nil
}

// A message that is not delivered takes no memory, however large it is, and counts as one
// of its kind: an insert into a table that nobody configured (a publication FOR ALL TABLES),
// an update of an outbox row, a logical message of another prefix.
func TestOversizedMessagesOfOthersTakeNoMemory(t *testing.T) {
	const size = 400 << 20
	update := append(pgoutputtest.Message{'U'}.U32(pgoutputtest.OutboxOID), 'N', 0, 2)
	for name, tt := range map[string]struct {
		m              pgoutputtest.Message
		foreign, other int
		ordinal        uint64
	}{
		"insert":  {pgoutputtest.Insert(pgoutputtest.OtherOID, ""), 1, 0, 1},
		"update":  {update, 0, 1, 0},
		"delete":  {append(pgoutputtest.Message{'D'}.U32(pgoutputtest.OutboxOID), 'O', 0, 2), 0, 1, 0},
		"message": {logical("other.prefix", ""), 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dec := pgoutput.NewDecoder(pgoutput.Options{Tables: testTables})
			for _, m := range []pgoutputtest.Message{pgoutputtest.Begin(0x300, 7), outboxRelation(), pgoutputtest.Relation(pgoutputtest.OtherOID, "public", "other", "body")} {
				if err := dec.Decode(m, 0); err != nil {
					t.Fatal(err)
				}
			}
			head := []byte{'d', 0, 0, 0, 0}
			binary.BigEndian.PutUint32(head[1:], uint32(4+walHeader+size))
			head = append(head, pgoutputtest.InWAL(0x200, pgoutputtest.Micros, tt.m)...)
			s := &Stream{dec: dec, frames: newFrames(&flood{head: head, left: frameHeader + walHeader + size - len(head)})}
			s.opt = Options{}.withDefaults(0)
			s.frames.limit = s.opt.MaxRowBytes + frameHeader + walHeader
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if err := readOne(s); err != nil {
				t.Fatal(err)
			}
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
				t.Errorf("reading past it took %d MiB", n>>20)
			}
			if err := dec.Decode(pgoutputtest.Insert(pgoutputtest.OutboxOID, "1", "next"), 0); err != nil {
				t.Fatal(err)
			}
			b := dec.Take()
			if ordinal := b.Rows[0].Ordinal - 1; b.Foreign != tt.foreign || b.OtherOps != tt.other || ordinal != tt.ordinal || b.Received < size {
				t.Errorf("foreign %d, other operations %d, ordinal %d, received %d", b.Foreign, b.OtherOps, ordinal, b.Received)
			}
		})
	}
}

// readOne reads until the source has nothing more.
func readOne(s *Stream) error {
	source := s.frames.src.(*flood)
	for {
		kind, body, ok, err := s.frames.next()
		if errors.Is(err, errOversized) {
			if ok, err = s.oversized(); err != nil {
				return err
			}
			if ok {
				continue
			}
		}
		switch {
		case err != nil && !errors.Is(err, errOversized):
			return err
		case ok:
			return fmt.Errorf("message %q with %d bytes was read whole", kind, len(body))
		case source.left == 0 && len(source.head) == 0 && s.frames.r == s.frames.w:
			return nil
		}
		if _, err := s.frames.readMore(); err != nil {
			return err
		}
	}
}
