package status

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
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
	if st := b.Status(); st.LSN.Server != 950 || st.LagBytes == nil || *st.LagBytes != 50 || st.RetainedWALBytes != 150 || st.SlotState == nil {
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

// A blocked relay does not read, so that it hears nothing of a server that has become silent. What the last look
// saw is shown as what it is: so old.
func TestSlot_IsShownWithItsAgeWhileABlockedRelayHasNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewMonitor(Pipeline{Slot: "cdc_relay", LookEvery: 5 * time.Second}, zerolog.Nop(), nil)
		b.Reached(true, true)
		b.SetSession(&fixedSession{server: 7 << 20, start: 1 << 20})
		b.BeginSnapshot()(&watch.Snapshot{WALEnd: 7 << 20, Slot: catalog.SlotInfo{Confirmed: 1 << 20, Restart: 1 << 20, SafeWAL: new(int64(4 << 20))}})
		b.SetBlocked("route", errors.New("row 1 has no topic"))
		<-time.After(9 * time.Second)
		if st := b.Status(); !st.SourceConnected || st.SlotState == nil || st.LastLook != nil || !strings.Contains(st.Headline, "PostgreSQL keeps 6.0 MiB") {
			t.Errorf("while the next look may be on its way: %s\n%s", st.Headline, Text(st, time.Now()))
		}
		<-time.After(3 * time.Second)
		st := b.Status()
		text := Text(st, time.Now())
		if st.SourceConnected || st.SlotState != nil || st.LagBytes != nil || st.RetainedWALBytes != 0 {
			t.Errorf("connected %t, slot %+v, lag %v, %d retained", st.SourceConnected, st.SlotState, st.LagBytes, st.RetainedWALBytes)
		}
		for _, says := range []string{"connected     PostgreSQL no, last seen 12s ago,", "12s ago: 6.0 MiB, WAL retained 6.0 MiB, lost after another 4.0 MiB", "PostgreSQL was last seen 12s ago, and kept 6.0 MiB of WAL then"} {
			if !strings.Contains(text, says) {
				t.Errorf("status does not say %q:\n%s", says, text)
			}
		}
		if strings.Contains(text, "PostgreSQL keeps") || strings.Contains(b.kept(time.Now()), "keeps") {
			t.Errorf("what is old is shown as if it were known:\n%s", text)
		}
		b.BeginSnapshot()(&watch.Snapshot{WALEnd: 8 << 20, Slot: catalog.SlotInfo{Confirmed: 1 << 20, Restart: 1 << 20}})
		if st := b.Status(); !st.SourceConnected || st.LastLook != nil || st.RetainedWALBytes != 7<<20 {
			t.Errorf("when it answers again: %s", Text(st, time.Now()))
		}
	})
}

// The look has a connection of its own, which the server may refuse while it streams.
func TestSlot_AStreamThatHearsTheServerIsConnected(t *testing.T) {
	b := NewMonitor(Pipeline{Slot: "cdc_relay"}, zerolog.Nop(), nil)
	b.Reached(true, true)
	b.SetSession(&fixedSession{server: 900, start: 850, silent: time.Second})
	b.BeginSnapshot()(&watch.Snapshot{WALEnd: 900, Slot: catalog.SlotInfo{Confirmed: 850, Restart: 800}})
	b.Unanswered(errors.New("too many connections"))
	if st := b.Status(); !st.SourceConnected || st.LagBytes == nil || *st.LagBytes != 50 || st.LastLook == nil || st.LastLook.RetainedWALBytes != 100 {
		t.Errorf("%s", Text(st, time.Now()))
	}
}

// The age of a row that waits is known without a server. How much WAL lies behind it is not.
func TestLag_IsShownWhilePostgreSQLIsAway(t *testing.T) {
	now := time.Now()
	st := Status{State: Reconnecting, Reason: fault.ReasonNetwork, Since: now.Add(-3 * time.Second), SourceReached: true, LagSeconds: new(7.03), LastLook: &LastLook{At: now.Add(-4 * time.Second)}}
	st.Headline = Headline(&st, now)
	text := Text(st, now)
	for _, says := range []string{"now           Reconnecting to PostgreSQL for 3s: ", "; 7.0 s behind.", "lag           7.03s, bytes not known: PostgreSQL does not answer; 4s ago: "} {
		if !strings.Contains(text, says) {
			t.Errorf("status does not say %q:\n%s", says, text)
		}
	}
	body, err := json.Marshal(st)
	if err != nil || !strings.Contains(string(body), `"lag_bytes":null`) {
		t.Errorf("%s, %v", body, err)
	}
}
