package relay

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Another relay had the slot while this one was without a connection, and let it go
// before it was asked for: what that one sent last was overtaken.
func TestStandby_SendsBehindARelayThatItDidNotMeet(t *testing.T) {
	for name, now := range map[string]wal.Origin{
		"on the same server":            {SystemID: "7000", Timeline: 1},
		"on a standby that took over":   {SystemID: "7000", Timeline: 2, Forks: []wal.Fork{{Timeline: 1, At: 125}}},
		"on one that lost transactions": {SystemID: "7000", Timeline: 2, Forks: []wal.Fork{{Timeline: 1, At: 115}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(fixed(110, 120, 1, "order/a/1"))
				server.origin = wal.Origin{SystemID: "7000", Timeline: 1}
				b := start(t, Config{}, server)
				pass(10 * time.Second)
				sessions := b.server.opens.Load()
				b.server.report(130) // by the other one
				b.server.mu.Lock()
				b.server.origin = now
				b.server.batches = append(b.server.batches, fixed(140, 150, 1, "order/a/3"))
				b.server.mu.Unlock()
				b.server.cut()
				for b.server.opens.Load() == sessions {
					pass(time.Millisecond)
				}
				pass(standbyGrace / 2)
				if got := b.values(); got != "1" {
					t.Errorf("delivered %q at once", got)
				}
				pass(standbyGrace)
				b.stop(t)
				if got := b.values(); got != "1 3" {
					t.Errorf("delivered %q", got)
				}
			})
		})
	}
}
