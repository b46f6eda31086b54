package status

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// batch has rows of one transaction.
func batch(commit, through wal.LSN, firstOrdinal, rows int) *wal.Batch {
	b, txn := &wal.Batch{Through: through}, &wal.Txn{Commit: commit, Time: time.Unix(1000, 0)}
	for i := range rows {
		b.Rows = append(b.Rows, wal.Row{Txn: txn, Ordinal: uint64(firstOrdinal + i)})
	}
	return b
}

func TestObstacle_IsPassedByWhatLiesBehindIt(t *testing.T) {
	// The row that cannot be read is the third of a transaction that commits at 200.
	unread := blockedRow{unread: true, read: progress{row: wal.Place{Commit: 200, Ordinal: 2}, through: 150}}
	looked, first := unread, unread
	looked.bound = 300
	first.read.row = wal.Place{Commit: 120, Ordinal: 9} // nothing of its transaction was read
	committed := func(through wal.LSN) *wal.Batch {
		return &wal.Batch{Through: through, ThroughTime: time.Unix(1, 0)}
	}
	for name, c := range map[string]struct {
		o    blockedRow
		b    *wal.Batch
		past bool
	}{
		"the rows before it":                         {unread, batch(200, 0, 1, 2), false},
		"it":                                         {unread, batch(200, 0, 1, 3), true},
		"it, in a batch of its own":                  {unread, batch(200, 0, 3, 1), true},
		"a later transaction":                        {unread, batch(260, 270, 1, 1), true},
		"a transaction from long before":             {unread, batch(110, 115, 1, 1), false},
		"a commit that was read":                     {unread, committed(150), false},
		"a commit that was not":                      {unread, committed(210), true},
		"a keep-alive, which may lie before it":      {unread, &wal.Batch{Through: 900}, false},
		"a keep-alive behind a look at the server":   {looked, &wal.Batch{Through: 300}, true},
		"a keep-alive before what was looked at":     {looked, &wal.Batch{Through: 299}, false},
		"rows from long before, of another session":  {first, batch(140, 145, 1, 1), false},
		"its transaction, when it was the first row": {first, batch(200, 0, 1, 1), true},
		"rows, when it waits to be delivered":        {blockedRow{row: wal.Place{Commit: 200, Ordinal: 3}}, batch(260, 270, 1, 1), false},
	} {
		if got := c.o.readPast(c.b); got != c.past {
			t.Errorf("%s: past %t", name, got)
		}
	}
	waits := blockedRow{row: wal.Place{Commit: 200, Ordinal: 3}}
	for _, c := range []struct {
		o     blockedRow
		start wal.LSN
		past  bool
	}{{unread, 900, false}, {looked, 299, false}, {looked, 300, true}, {waits, 200, false}, {waits, 201, true}} {
		if got := c.o.startsPast(c.start); got != c.past {
			t.Errorf("a session from %s, unread %t: past %t", c.start, c.o.unread, got)
		}
	}
	for _, c := range []struct {
		o      blockedRow
		commit wal.LSN
		first  int
		past   bool
	}{{waits, 200, 1, false}, {waits, 200, 2, true}, {waits, 200, 3, true}, {waits, 200, 4, false}, {waits, 260, 1, false}, {unread, 200, 2, false}} {
		if got := c.o.deliveredWith(batch(c.commit, 0, c.first, 2).Rows); got != c.past {
			t.Errorf("with rows %d and %d of %s durable, unread %t: past %t", c.first, c.first+1, c.commit, c.o.unread, got)
		}
	}
}
