package wal_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/pgoutput"
	"github.com/cdc-relay/cdc-relay/replication/pgoutput/pgoutputtest"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// What the slabs hold must be near what their batches are charged with: the
// relay's window counts the latter.
func TestSlabsHoldLittleMoreThanTheirBatchesCount(t *testing.T) {
	for _, payload := range []int{20, 300, 3000, 12_000} {
		t.Run(fmt.Sprint(payload), func(t *testing.T) {
			d := pgoutput.NewDecoder(pgoutput.Options{Tables: []wal.Table{{"public", "outbox"}}})
			decode := func(messages ...pgoutputtest.Message) {
				for _, m := range messages {
					if err := d.Decode(m, 0x100); err != nil {
						t.Fatal(err)
					}
				}
			}
			row := pgoutputtest.Insert(pgoutputtest.OutboxOID, "1", "orders", "4711", "OrderPlaced", strings.Repeat("x", payload), "2026-11-21 10:00:00+00", "\x00")
			decode(pgoutputtest.Begin(0x200, 7), pgoutputtest.Relation(pgoutputtest.OutboxOID, "public", "outbox", "id", "type", "key", "event", "payload", "created", "published"))
			charged, held := 0, map[*wal.Slab]int{}
			for charged < 8<<20 {
				decode(row)
				if d.Full() {
					b := d.Take()
					charged += b.Bytes
					slab, taken := b.Held()
					held[slab] = taken
				}
			}
			taken := 0
			for _, n := range held {
				taken += n
			}
			if taken > charged+charged/4 {
				t.Errorf("%d slabs take %d bytes, their batches are charged with %d", len(held), taken, charged)
			}
		})
	}
}
