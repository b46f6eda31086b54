package status

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/rs/zerolog"
)

// A server that waits for a standby sends nothing, however little it has: the status names the standby.
func TestNotMoving_NamesTheStandbyThatTheServerWaitsFor(t *testing.T) {
	for away, want := range map[string]string{"synchronized_standby_slots names slot \"sb\"; start it": "confirmed_not_moving", "": ""} {
		synctest.Test(t, func(t *testing.T) {
			b := NewMonitor(Pipeline{Slot: "cdc_relay"}, zerolog.Nop(), nil)
			b.Reached(true, true)
			b.SetSink(reachedSink{})
			b.SetSession(&stuckSession{received: 0x1000, confirmed: 0x1000})
			b.SetState(Streaming, "", "")
			for range 20 {
				b.BeginSnapshot()(&watch.Snapshot{WALEnd: wal.LSN(0x1000 + 9<<10), Slot: catalog.SlotInfo{Confirmed: 0x1000, Restart: 0x800}, Away: away})
				b.Tick(time.Now())
				<-time.After(10 * time.Second)
			}
			if st := b.Status(); st.Reason != want || !strings.HasSuffix(st.Message, away) || want != "" && !strings.Contains(st.Message, "the server waits for a standby before it sends rows: ") {
				t.Errorf("%s: %s", st.Reason, st.Message)
			}
		})
	}
}
