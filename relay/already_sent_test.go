package relay

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

// Rows that somebody else delivered are confirmed without a record, each in its
// place: between rows that are sent, at both ends of a batch, and alone.
func TestRelay_WhatIsDeliveredElsewhereIsConfirmedAndNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{server: newServer(
			fixed(110, 120, 1, "order/a/1", "order/a/2"),
			fixed(130, 140, 1, "order/a/3", "order/a/4", "order/a/5"),
			fixed(150, 160, 1, "order/a/6"),
		), sink: new(sinktest.Recorder), result: make(chan error, 1)}
		b.sink.Hold()
		b.server.origin = wal.Origin{SystemID: "7", Timeline: 1}
		b.start(t, Config{AlreadySentIn: b.server.origin, AlreadySent: func(row *wal.Row) bool {
			return row.Txn.Commit == 110 || row.Txn.Commit == 130 && row.Ordinal != 2
		}})
		pass(time.Second)
		if got := b.server.position(); got != 120 {
			t.Fatalf("confirmed %s, want 120: the first transaction needs no acknowledgement", got)
		}
		b.sink.Release()
		b.stop(t)
		if got := b.values(); got != "4 6" || b.server.position() != 160 {
			t.Fatalf("delivered %q, confirmed %s", got, b.server.position())
		}
		if got := b.relay.AlreadySentRows(); got != 4 {
			t.Errorf("%d rows are counted as filtered, want 4", got)
		}
	})
}

// A row that cannot be sent does not block when it was sent already.
func TestRelay_ADeliveredRowIsNotRouted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(fixed(110, 120, 1, "/a/bad", "order/a/2"))
		server.origin = wal.Origin{SystemID: "7", Timeline: 1}
		b := start(t, Config{AlreadySentIn: server.origin, AlreadySent: func(row *wal.Row) bool { return row.Ordinal == 1 }}, server)
		pass(time.Second)
		b.stop(t)
		if got := b.values(); got != "2" || b.server.position() != 120 {
			t.Fatalf("delivered %q, confirmed %s", got, b.server.position())
		}
	})
}

// What is delivered is known of one history. A server that left it has other rows at the
// positions behind the fork, and those are sent.
func TestRelay_WhatIsDeliveredElsewhereHoldsUpToTheFork(t *testing.T) {
	here := wal.Origin{SystemID: "7", Timeline: 1}
	for name, tt := range map[string]struct {
		now  wal.Origin
		want string
		warn bool
	}{
		"the same":          {here, "", false},
		"a later timeline":  {wal.Origin{SystemID: "7", Timeline: 2, Forks: []wal.Fork{{Timeline: 1, At: 130}}}, "2 3", true},
		"another cluster":   {wal.Origin{SystemID: "8", Timeline: 1}, "1 2 3", true},
		"an earlier branch": {wal.Origin{SystemID: "7", Timeline: 3, Forks: []wal.Fork{{Timeline: 2, At: 130}}}, "1 2 3", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(fixed(110, 120, 1, "order/a/1"), fixed(130, 140, 1, "order/a/2"), fixed(150, 160, 1, "order/a/3"))
				server.origin = tt.now
				log := new(journal)
				b := &bench{server: server, sink: new(sinktest.Recorder), result: make(chan error, 1), log: log}
				b.start(t, Config{AlreadySentIn: here, AlreadySent: func(*wal.Row) bool { return true }})
				pass(time.Second)
				b.stop(t)
				if warned := log.has("every row that commits at lsn or later is sent"); warned != tt.warn {
					t.Errorf("warned is %t, want %t", warned, tt.warn)
				}
				if got := b.values(); got != tt.want || b.server.position() != 160 {
					t.Fatalf("delivered %q, confirmed %s; want %q and 160", got, b.server.position(), tt.want)
				}
			})
		})
	}
}
