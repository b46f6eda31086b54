package pgoutput

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/pgoutput/pgoutputtest"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// A batch says where the transaction ends that the one before left open, whatever
// else it holds.
func TestDecoder_BatchNamesTheEndOfTheTransactionItCloses(t *testing.T) {
	d := NewDecoder(Options{Tables: []wal.Table{{Schema: "public", Name: "outbox"}}})
	decode := func(messages ...pgoutputtest.Message) {
		t.Helper()
		for _, m := range messages {
			if err := d.Decode(m, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	take := func(what string, closes wal.LSN, open bool) {
		t.Helper()
		b := d.Take()
		if b == nil || b.Closes != closes || b.Open != open {
			t.Fatalf("%s: batch %+v, want closes %s, open %t", what, b, closes, open)
		}
		b.Release()
	}
	decode(pgoutputtest.Relation(7, "public", "outbox", "id"), pgoutputtest.Begin(0x100, 1), pgoutputtest.Commit(0x100, 0x130), pgoutputtest.Begin(0x200, 2), pgoutputtest.Insert(7, "a"))
	take("one whole, one begun", 0, true)
	decode(pgoutputtest.Commit(0x200, 0x230), pgoutputtest.Begin(0x300, 3), pgoutputtest.Insert(7, "b"), pgoutputtest.Commit(0x300, 0x330), pgoutputtest.Begin(0x400, 4))
	take("closed, and more behind it", 0x230, true)
	decode(pgoutputtest.Insert(7, "c"))
	take("in the middle", 0, true)
	decode(pgoutputtest.Commit(0x400, 0x430))
	take("closed alone", 0x430, false)
	decode(pgoutputtest.Begin(0x500, 5), pgoutputtest.Commit(0x500, 0x530))
	take("nothing was open", 0, false)
}
