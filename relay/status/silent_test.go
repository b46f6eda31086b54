package status

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/rs/zerolog"
)

// How far the slot is behind a server that does not answer is not known, and not zero.
func TestSlot_IsNotShownFromBeforePostgreSQLWasGone(t *testing.T) {
	b := NewMonitor(Pipeline{Slot: "cdc_relay"}, zerolog.Nop(), nil)
	b.Reached(true, true)
	b.SetSession(&fixedSession{server: 900, start: 900})
	b.SetSession(nil)
	b.BeginSnapshot()(&watch.Snapshot{WALEnd: 900, Slot: catalog.SlotInfo{Confirmed: 900, Restart: 800}})
	if st := b.Status(); st.LSN.Server != 900 || st.RetainedWALBytes != 100 {
		t.Errorf("while it answers: server %d, %d retained", st.LSN.Server, st.RetainedWALBytes)
	}
	b.Unanswered(errors.New("connection refused"))
	st := b.Status()
	if st.SlotState != nil || st.RetainedWALBytes != 0 {
		t.Errorf("while it does not: %d retained, slot %+v", st.RetainedWALBytes, st.SlotState)
	}
	if st.LSN.Server != 0 || !strings.Contains(Text(st, time.Now()), "not known: PostgreSQL does not answer") {
		t.Errorf("while it does not: server %d\n%s", st.LSN.Server, Text(st, time.Now()))
	}
	b.BeginSnapshot()(&watch.Snapshot{WALEnd: 950, Slot: catalog.SlotInfo{Confirmed: 900, Restart: 800}})
	if st := b.Status(); st.LSN.Server != 950 || st.LagBytes != 50 || st.RetainedWALBytes != 150 || st.SlotState == nil {
		t.Errorf("when it is back: server %d, lag %d", st.LSN.Server, st.LagBytes)
	}
}

// A slot that does not exist keeps no WAL.
func TestSlot_KeepsNoWALWhenItIsMissing(t *testing.T) {
	b := NewMonitor(Pipeline{Slot: "cdc_relay"}, zerolog.Nop(), nil)
	b.SetState(Blocked, fault.ReasonSlotMissing, "gone")
	b.BeginSnapshot()(&watch.Snapshot{WALEnd: 600 << 20, Drift: catalog.SlotGone("cdc_relay", wal.LSN(500<<20))})
	if st := b.Status(); st.RetainedWALBytes != 0 || st.SlotState != nil || strings.Contains(st.Headline, "WAL") {
		t.Errorf("%d retained, slot %+v: %s", st.RetainedWALBytes, st.SlotState, st.Headline)
	}
}
