package status

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/rs/zerolog"
)

var relation = &wal.Relation{Namespace: "public", Name: "outbox"}

// part is a batch of some rows of a transaction, 1 MiB of the stream each.
func part(commit wal.LSN, open bool, rows int) *wal.Batch {
	txn := &wal.Txn{Commit: commit}
	b := &wal.Batch{Open: open, Received: rows * mib}
	for range rows {
		b.Rows = append(b.Rows, wal.Row{Relation: relation, Txn: txn})
	}
	return b
}

// read looks at the slot every ten seconds, each time after a batch was read, and keeps what was shown at
// the end.
func read(s *stuckSession, log *strings.Builder, looks int, next func(look int) *wal.Batch) *Status {
	b := NewMonitor(Pipeline{Slot: "cdc_relay"}, zerolog.New(log), nil)
	b.Reached(true, true)
	b.SetSink(reachedSink{})
	b.SetSession(s)
	b.SetState(Streaming, "", "")
	for i := range looks {
		if batch := next(i); batch != nil {
			b.Read(batch)
		}
		if s.stats.Rows > 0 && s.stats.Oldest.IsZero() {
			s.stats.Oldest = time.Now()
		}
		b.BeginSnapshot()(&watch.Snapshot{WALEnd: growing(i), Slot: catalog.SlotInfo{Confirmed: 0x1000, Restart: 0x800}})
		b.Tick(time.Now())
		<-time.After(10 * time.Second)
	}
	st := b.Status()
	return &st
}

const minute = 6 // looks

// A transaction whose rows arrive is no obstacle: what is read of it is said, and nothing else. One that
// takes half an hour is, with the same words and no advice to look for a fault.
func TestLongTransaction_IsSaidCalmlyWhileItsRowsArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s := &stuckSession{received: 5 * mib, confirmed: 0x1000, repeat: 40}
		arrives := func(int) *wal.Batch { return part(0x9000, true, 2) }
		st := read(s, &log, 10*minute, arrives)
		if st.Reason != "" || st.NotMoving != nil || st.Obstacle != nil || !strings.Contains(st.Headline, "reading a long transaction: 120 rows, 120.0 MiB so far") {
			t.Errorf("%q, %v, %+v: %s", st.Reason, st.NotMoving, st.Obstacle, st.Headline)
		}
		if l := st.LongTransaction; l == nil || l.Rows != 120 || l.Bytes != 120*mib || l.Seconds != 600 {
			t.Errorf("%+v", l)
		}
		if strings.Contains(log.String(), "confirmed_not_moving") {
			t.Error(log.String())
		}
		st = read(s, &log, 31*minute, arrives)
		if st.Reason != "confirmed_not_moving" || st.NotMoving == nil || !strings.Contains(st.Message, "the relay is reading a long transaction: 372 rows, 372.0 MiB so far") || strings.Contains(st.Message, "look at") {
			t.Errorf("%q, %v: %s", st.Reason, st.NotMoving, st.Message)
		}
	})
}

// What only looks like one is an obstacle as before.
func TestLongTransaction_IsNotSaidOf(t *testing.T) {
	always := func(int) *wal.Batch { return part(0x9000, true, 2) }
	for name, tt := range map[string]struct {
		session stuckSession
		next    func(look int) *wal.Batch
	}{
		"one of which nothing more arrives": {stuckSession{received: 5 * mib, confirmed: 0x1000}, func(look int) *wal.Batch {
			if look > minute {
				return nil
			}
			return always(look)
		}},
		"one that has ended":                          {stuckSession{received: 5 * mib, confirmed: 0x1000}, func(look int) *wal.Batch { return part(0x9000, look < 4*minute, 2) }},
		"rows before it that the brokers do not take": {stuckSession{received: 5 * mib, confirmed: 0x1000, stats: checkpoint.Stats{Rows: 1}}, always},
		"confirmations that do not arrive":            {stuckSession{received: 5 * mib, confirmed: 0x2000}, always},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				if st := read(&tt.session, &log, 5*minute, tt.next); st.Reason != "confirmed_not_moving" {
					t.Errorf("%q: %s", st.Reason, st.Headline)
				}
			})
		})
	}
}

// Short transactions, however many, and the one that a backlog is in are none.
func TestLongTransaction_IsOneAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s := &stuckSession{received: 5 * mib, confirmed: 0x1000}
		st := read(s, &log, 10*minute, func(look int) *wal.Batch { return part(wal.LSN(0x9000+look), true, 2) })
		if st.LongTransaction != nil {
			t.Errorf("%+v", st.LongTransaction)
		}
	})
}

// Of a batch with the end of other transactions only the open one's share is counted.
func TestOpenTransaction_CountsItsShareOfABatch(t *testing.T) {
	var o openTransaction
	mixed := part(0x8000, true, 3)
	mixed.Rows = append(mixed.Rows, part(0x9000, true, 1).Rows...)
	mixed.Received = 4000
	o.add(mixed, time.Unix(1, 0))
	o.add(&wal.Batch{Open: true, Received: 500}, time.Unix(2, 0)) // rows of other tables
	if o.commit != 0x9000 || o.rows != 1 || o.bytes != 1500 || o.from != time.Unix(1, 0) || o.last != time.Unix(2, 0) {
		t.Errorf("%+v", o)
	}
	if o.add(&wal.Batch{}, time.Unix(3, 0)); o != (openTransaction{}) {
		t.Errorf("%+v after its end", o)
	}
}
