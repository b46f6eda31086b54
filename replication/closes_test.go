package replication

import (
	"testing"

	"github.com/jackc/pglogrepl"
)

// A batch says where the transaction ends that the one before left open, whatever
// else it holds.
func TestDecoder_BatchNamesTheEndOfTheTransactionItCloses(t *testing.T) {
	d := NewDecoder(DecoderOptions{Tables: []Table{{"public", "outbox"}}})
	decode := func(messages ...msg) {
		t.Helper()
		for _, m := range messages {
			if err := d.Decode(m, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	take := func(what string, closes pglogrepl.LSN, open bool) {
		t.Helper()
		b := d.Take()
		if b == nil || b.Closes != closes || b.Open != open {
			t.Fatalf("%s: batch %+v, want closes %s, open %t", what, b, closes, open)
		}
		b.Release()
	}
	decode(relationMsg(7, "public", "outbox", "id"), begin(0x100, 1), commit(0x100, 0x130), begin(0x200, 2), insert(7, "a"))
	take("one whole, one begun", 0, true)
	decode(commit(0x200, 0x230), begin(0x300, 3), insert(7, "b"), commit(0x300, 0x330), begin(0x400, 4))
	take("closed, and more behind it", 0x230, true)
	decode(insert(7, "c"))
	take("in the middle", 0, true)
	decode(commit(0x400, 0x430))
	take("closed alone", 0x430, false)
	decode(begin(0x500, 5), commit(0x500, 0x530))
	take("nothing was open", 0, false)
}
