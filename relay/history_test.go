package relay

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

func TestHistory_OtherServersAreRefusedAndFailoversFollowed(t *testing.T) {
	was := replication.Origin{SystemID: "7000", Timeline: 2, Forks: []replication.Fork{{Timeline: 1, At: 50}}}
	for _, tt := range []struct {
		name   string
		now    replication.Origin
		state  State
		reason string
		signal int64
	}{
		{"the same", was, Streaming, "", 0},
		{"another cluster", replication.Origin{SystemID: "8000", Timeline: 2}, Blocked, "foreign_server", 0},
		{"the old primary", replication.Origin{SystemID: "7000", Timeline: 1}, Reconnecting, "stale_primary", 0},
		{"a failover behind what was confirmed", replication.Origin{SystemID: "7000", Timeline: 3, Forks: []replication.Fork{{Timeline: 1, At: 50}, {Timeline: 2, At: 200}}}, Streaming, "", 0},
		{"a failover that lost rows", replication.Origin{SystemID: "7000", Timeline: 3, Forks: []replication.Fork{{Timeline: 1, At: 50}, {Timeline: 2, At: 119}}}, Streaming, "", 1},
		{"not a descendant", replication.Origin{SystemID: "7000", Timeline: 4, Forks: []replication.Fork{{Timeline: 1, At: 50}, {Timeline: 3, At: 200}}}, Blocked, "foreign_timeline", 0},
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
				if tt.state != Streaming {
					if opens := server.opens.Load(); opens < 3 {
						t.Fatalf("%d attempts: it has to heal when the right server is back", opens)
					}
					server.mu.Lock()
					server.origin = was
					server.mu.Unlock()
					pass(time.Minute)
				}
				if st := b.relay.Status(); st.State != Streaming {
					t.Fatalf("status in the end %+v", st)
				}
				b.stop(t)
			})
		})
	}
}

func TestHistory_ASlotThatIsMovedUnderTheStreamBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(probe)
		p.snapshot.Store(&replication.Snapshot{WALEnd: 900, Slot: replication.SlotInfo{Confirmed: 100}})
		b := &bench{server: newServer(fixed(110, 120, 1, "order/a/1")), sink: new(sinktest.Recorder), probe: p, result: make(chan error, 1)}
		b.start(t, Config{})
		pass(time.Minute)
		if st := b.relay.Status(); st.State != Streaming || b.server.position() != 120 {
			t.Fatalf("status %+v", st)
		}
		p.snapshot.Store(&replication.Snapshot{WALEnd: 900, Slot: replication.SlotInfo{Confirmed: 500}})
		pass(time.Minute)
		if st := b.relay.Status(); st.State != Blocked || st.Reason != "slot_moved" || !strings.Contains(st.Message, "0/1F4") || !strings.Contains(st.Message, "0/78") {
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
		p.snapshot.Store(&replication.Snapshot{WALEnd: 900, Slot: replication.SlotInfo{Confirmed: 100, Active: true}})
		b := &bench{server: newServer(fixed(110, 120, 1, "order/a/1")), sink: new(sinktest.Recorder), probe: p, result: make(chan error, 1)}
		b.start(t, Config{})
		pass(time.Minute)
		sessions := b.server.opens.Load()
		p.snapshot.Store(&replication.Snapshot{WALEnd: 900, Slot: replication.SlotInfo{Confirmed: 500, Active: true}})
		pass(6 * time.Second)
		p.snapshot.Store(&replication.Snapshot{WALEnd: 900, Slot: replication.SlotInfo{Confirmed: 120, Active: true}})
		pass(time.Minute)
		if st := b.relay.Status(); st.State != Streaming || b.server.opens.Load() == sessions {
			t.Errorf("%d sessions, then %d, status %+v", sessions, b.server.opens.Load(), st)
		}
		b.stop(t)
		if b.server.position() != 120 {
			t.Errorf("confirmed %s", b.server.position())
		}
	})
}
