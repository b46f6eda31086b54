package status

import (
	"slices"
	"testing"
	"time"
)

func TestSum_IsTheWorstOfAll(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	good := Status{State: Streaming, Slot: "s_3_0", LSN: LSNs{Server: 90, Received: 80, Published: 70, Confirmed: 60}, LagBytes: new(int64(30)), LagSeconds: new(0.0),
		EventsPublished: 5, Topics: []string{"b", "a"}, LastEvent: at, LastTick: at, SourceConnected: true, SinkConnected: true, SourceReached: true, SinkReached: true}
	behind := good
	behind.LSN = LSNs{Server: 100, Received: 75, Published: 50, Confirmed: 40}
	behind.LagBytes, behind.LagSeconds, behind.LastTick, behind.Topics = new(int64(60)), new(2.0), at.Add(-time.Minute), []string{"c", "a"}
	starting := Status{State: Starting, LastTick: at}
	blocked := behind
	blocked.State, blocked.Reason, blocked.Message, blocked.SourceConnected = Blocked, "slot_lost", "the slot is lost", false
	standby := Status{State: Standby, Reason: "slot_in_use", LastTick: at}
	late := good
	late.Reason, late.Message = "kafka_unreachable", "no broker"
	names := []string{"shard 0", "shard 1", "shard 2"}

	for _, tt := range []struct {
		all            []Status
		state          State
		reason, saying string
		ready          bool
	}{
		{[]Status{good, behind}, Streaming, "", "", true},
		{[]Status{good, starting}, Starting, "", "", false},
		{[]Status{good, blocked, starting}, Blocked, "slot_lost", "shard 1: the slot is lost", false},
		{[]Status{standby, good}, Streaming, "", "", true},
		{[]Status{standby, standby}, Standby, "slot_in_use", "", true},
		{[]Status{good, behind, late}, Streaming, "kafka_unreachable", "shard 2: no broker", true},
	} {
		st := Sum(tt.all, names, time.Now())
		if st.State != tt.state || st.Reason != tt.reason || st.Message != tt.saying || st.Ready() != tt.ready || len(st.Shards) != len(tt.all) {
			t.Errorf("%s (%s) %q, ready %v; want %s (%s) %q", st.State, st.Reason, st.Message, st.Ready(), tt.state, tt.reason, tt.saying)
		}
	}

	st := Sum([]Status{good, behind}, names, time.Now())
	if st.LSN != (LSNs{Server: 100, Received: 75, Published: 50, Confirmed: 40}) || st.LagBytes == nil || *st.LagBytes != 60 || st.LagSeconds == nil || *st.LagSeconds != 2 || st.EventsPublished != 10 ||
		!slices.Equal(st.Topics, []string{"a", "b", "c"}) || !st.LastTick.Equal(at.Add(-time.Minute)) || !st.SourceReached {
		t.Errorf("%+v", st)
	}
	if st := Sum([]Status{good, starting}, names, time.Now()); st.LSN.Confirmed != 60 || st.SourceReached || st.LagSeconds != nil || st.LagBytes != nil {
		t.Errorf("a shard that knows no position yet: %+v", st)
	}
	for _, tt := range []struct {
		slots []*Slot
		first int // -1: none is known
	}{
		{[]*Slot{nil, nil}, -1},
		{[]*Slot{nil, {WALStatus: "reserved"}}, 1},
		{[]*Slot{{WALStatus: "reserved"}, {WALStatus: "extended", SafeWALBytes: new(int64(7))}}, 1},
		{[]*Slot{{SafeWALBytes: new(int64(6))}, {SafeWALBytes: new(int64(7))}}, 0},
		{[]*Slot{{SafeWALBytes: new(int64(-1))}, {WALStatus: "lost"}}, 1},
		{[]*Slot{{WALStatus: "lost"}, {WALStatus: "unreserved", SafeWALBytes: new(int64(-1))}}, 0},
	} {
		one, other := good, behind
		one.SlotState, other.SlotState = tt.slots[0], tt.slots[1]
		var want *Slot
		if tt.first >= 0 {
			want = tt.slots[tt.first]
		}
		if st := Sum([]Status{one, other}, names, time.Now()); st.SlotState != want {
			t.Errorf("of %+v and %+v the first to be lost is %+v", tt.slots[0], tt.slots[1], st.SlotState)
		}
	}
	if st := Sum([]Status{behind, standby}, names, time.Now()); st.LagSeconds == nil || *st.LagSeconds != 2 {
		t.Errorf("a shard that another process streams hides this one's lag: %+v", st)
	}
}
