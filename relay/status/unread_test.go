package status

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/rs/zerolog"
)

// Of a row that cannot be read its transaction's beginning is known, and with it how old it is.
func TestUnread_ShowsTableCommitAndAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewMonitor(Pipeline{Slot: "cdc_relay"}, zerolog.Nop(), nil)
		err := &fault.Error{
			Kind: fault.KindProtocol, Reason: fault.ReasonRowTooLarge, Err: errors.New("too large"),
			Row: &fault.Row{Table: "public.outbox", Commit: 0x300, Time: time.Now(), Number: 2},
		}
		look := func(when string, lag time.Duration) {
			t.Helper()
			st := b.Status()
			if st.Obstacle == nil || st.Obstacle.Row == nil || *st.Obstacle.Row != (BlockedRow{Table: "public.outbox", Commit: 0x300, Number: 2}) || !strings.Contains(st.Headline, " at a row of public.outbox: the row is larger than relay.max_row_bytes (row_too_large)") {
				t.Errorf("%s: %+v; %s", when, st.Obstacle, st.Headline)
			}
			if st.LagSeconds == nil || *st.LagSeconds != lag.Seconds() {
				t.Errorf("%s: lag %v, want %s", when, st.LagSeconds, lag)
			}
		}
		<-time.After(8 * time.Second)
		b.Unread(wal.Lineage{}, err)
		b.SetState(Blocked, fault.ReasonRowTooLarge, err.Error())
		look("between two sessions", 8*time.Second)
		b.SetSession(&fixedSession{server: 0x400, start: 0x200})
		b.SetState(Streaming, "", "")
		<-time.After(4 * time.Second)
		look("in the next session", 12*time.Second)
		b.SetSession(nil)
		b.SetSession(&fixedSession{server: 0x400, start: 0x400}) // somebody moved the slot
		if st := b.Status(); st.LagSeconds == nil || *st.LagSeconds != 0 {
			t.Errorf("past the row: lag %v", st.LagSeconds)
		}
	})
}
