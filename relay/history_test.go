package relay

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

func TestHistory_OtherServersAreRefusedAndFailoversFollowed(t *testing.T) {
	was := wal.Origin{SystemID: "7000", Timeline: 2, Forks: []wal.Fork{{Timeline: 1, At: 50}}}
	for _, tt := range []struct {
		name   string
		now    wal.Origin
		state  status.State
		reason string
		signal int64
	}{
		{"the same", was, status.Streaming, "", 0},
		{"another cluster", wal.Origin{SystemID: "8000", Timeline: 2}, status.Blocked, "foreign_server", 0},
		{"the old primary", wal.Origin{SystemID: "7000", Timeline: 1}, status.Reconnecting, "stale_primary", 0},
		{"a failover behind what was confirmed", wal.Origin{SystemID: "7000", Timeline: 3, Forks: []wal.Fork{{Timeline: 1, At: 50}, {Timeline: 2, At: 200}}}, status.Streaming, "", 0},
		{"a failover that lost rows", wal.Origin{SystemID: "7000", Timeline: 3, Forks: []wal.Fork{{Timeline: 1, At: 50}, {Timeline: 2, At: 119}}}, status.Streaming, "", 1},
		{"another promoted under the same number", wal.Origin{SystemID: "7000", Timeline: 2, Forks: []wal.Fork{{Timeline: 1, At: 60}}}, status.Blocked, "foreign_timeline", 0},
		{"a descendant of that one", wal.Origin{SystemID: "7000", Timeline: 3, Forks: []wal.Fork{{Timeline: 1, At: 60}, {Timeline: 2, At: 200}}}, status.Blocked, "foreign_timeline", 0},
		{"not a descendant", wal.Origin{SystemID: "7000", Timeline: 4, Forks: []wal.Fork{{Timeline: 1, At: 50}, {Timeline: 3, At: 200}}}, status.Blocked, "foreign_timeline", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(fixed(110, 120, 1, "order/a/1"))
				server.origin = was
				b := start(t, Config{}, server)
				pass(time.Second)
				if server.position() != 120 {
					t.Fatalf("confirmed %s", server.position())
				}
				server.mu.Lock()
				server.origin = tt.now
				server.mu.Unlock()
				server.cut()
				pass(time.Minute)
				if st := b.relay.Status(); st.State != tt.state || st.Reason != tt.reason || st.DataLoss != tt.signal {
					t.Fatalf("status %+v", st)
				}
				if tt.state != status.Streaming {
					if opens := server.opens.Load(); opens < 3 {
						t.Fatalf("%d attempts: it has to heal when the right server is back", opens)
					}
					server.mu.Lock()
					server.origin = was
					server.mu.Unlock()
					pass(time.Minute)
				}
				if st := b.relay.Status(); st.State != status.Streaming {
					t.Fatalf("status in the end %+v", st)
				}
				b.stop(t)
			})
		})
	}
}

// A failover lost the transaction that added a column. Rows without it come after the
// position at which the relay had seen the column.
func TestHistory_AFailoverTakesAColumnBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		without := func(commit, through wal.LSN, spec string) func() *wal.Batch {
			return func() *wal.Batch {
				b := batch(commit, through, 1, spec)
				row := &b.Rows[0]
				row.Relation = &wal.Relation{OID: 1, Namespace: "public", Name: "outbox", Columns: append(outbox.Columns[:3:3], outbox.Columns[4])}
				row.Values = append(row.Values[:3:3], row.Values[4])
				return b
			}
		}
		server := newServer(fixed(110, 120, 1, "order/a/1"))
		server.origin = wal.Origin{SystemID: "7000", Timeline: 1}
		b := start(t, Config{}, server)
		pass(time.Second)
		server.mu.Lock()
		server.origin = wal.Origin{SystemID: "7000", Timeline: 2, Forks: []wal.Fork{{Timeline: 1, At: 105}}}
		server.batches = []func() *wal.Batch{without(130, 140, "order/a/2")}
		server.mu.Unlock()
		server.cut()
		pass(time.Minute)
		if st := b.relay.Status(); st.State != status.Streaming {
			t.Errorf("%s (%s): %s", st.State, st.Reason, st.Message)
		}
		b.stop(t)
		if got := b.values(); got != "1 2" {
			t.Errorf("delivered %q", got)
		}
	})
}

func TestHistory_ASlotThatIsMovedUnderTheStreamBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(probe)
		p.snapshot.Store(&watch.Snapshot{WALEnd: 900, Slot: catalog.SlotInfo{Confirmed: 100}})
		b := &bench{server: newServer(fixed(110, 120, 1, "order/a/1")), sink: new(sinktest.Recorder), probe: p, result: make(chan error, 1)}
		b.start(t, Config{})
		pass(time.Minute)
		if st := b.relay.Status(); st.State != status.Streaming || b.server.position() != 120 {
			t.Fatalf("status %+v", st)
		}
		p.snapshot.Store(&watch.Snapshot{WALEnd: 900, Slot: catalog.SlotInfo{Confirmed: 500}})
		pass(time.Minute)
		if st := b.relay.Status(); st.State != status.Blocked || st.Reason != "slot_moved" || !strings.Contains(st.Message, "0/1F4") || !strings.Contains(st.Message, "0/78") {
			t.Fatalf("status %+v", st)
		}
		b.stop(t)
		if b.server.position() != 120 {
			t.Fatalf("confirmed %s", b.server.position())
		}
	})
}

// A relay that was suspended while another took its slot sees that one's position
// before it sees that its own connection is gone.
func TestHistory_ASlotThatAnotherRelayTookIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(probe)
		p.snapshot.Store(&watch.Snapshot{WALEnd: 900, Slot: catalog.SlotInfo{Confirmed: 100, Active: true}})
		b := &bench{server: newServer(fixed(110, 120, 1, "order/a/1")), sink: new(sinktest.Recorder), probe: p, result: make(chan error, 1)}
		b.start(t, Config{})
		pass(time.Minute)
		sessions := b.server.opens.Load()
		p.snapshot.Store(&watch.Snapshot{WALEnd: 900, Slot: catalog.SlotInfo{Confirmed: 500, Active: true}})
		pass(6 * time.Second)
		p.snapshot.Store(&watch.Snapshot{WALEnd: 900, Slot: catalog.SlotInfo{Confirmed: 120, Active: true}})
		pass(time.Minute)
		if st := b.relay.Status(); st.State != status.Streaming || b.server.opens.Load() == sessions {
			t.Errorf("%d sessions, then %d, status %+v", sessions, b.server.opens.Load(), st)
		}
		b.stop(t)
		if b.server.position() != 120 {
			t.Errorf("confirmed %s", b.server.position())
		}
	})
}
