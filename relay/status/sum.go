package status

import (
	"cmp"
	"slices"
	"time"
)

// gravity orders states: the first of the list that a shard is in is that of all. A
// process that has some of the slots, and stands by for those of another, streams.
var gravity = []State{Stopping, Blocked, Reconnecting, Starting, Streaming, Standby}

// Sum joins the snapshots of at least one shard: the worst state, the most behind position, the
// longest backlog, the slot that is lost first, and sums of what is counted. names are the shards',
// for messages.
func Sum(all []Status, names []string, now time.Time) Status {
	worst := 0
	grave := func(i int) int {
		g := 2 * slices.Index(gravity, all[i].State)
		if all[i].Reason == "" {
			g++ // of two in the same state, the one that has something to say
		}
		return g
	}
	for i := range all {
		if grave(i) < grave(worst) {
			worst = i
		}
	}
	st := all[worst]
	st.Shards = all
	if st.Message != "" {
		st.Message = names[worst] + ": " + st.Message
	}
	st.SlotState = nil
	st.LSN = LSNs{}
	st.LagBytes, st.RetainedWALBytes, st.LagSeconds, st.OldestUnacked, st.LastLook = nil, 0, nil, nil, nil
	st.InFlightEvents, st.InFlightBytes, st.EventsToRepeat, st.ParkedKeys = 0, 0, 0, 0
	st.RowsRead, st.EventsPublished, st.EventsRejected, st.DeadLetters, st.Reconnects = 0, 0, 0, 0, 0
	st.TopicsRecreated, st.DataLoss, st.Overtaken = 0, 0, 0
	st.SourceConnected, st.SinkConnected, st.SourceReached, st.SinkReached = true, true, true, true
	st.CatchUp, st.RowsBehind, st.LongTransaction = nil, nil, nil
	st.Topics, st.Tables, st.TopicRates = []string{}, []Flow{}, []Flow{}
	unknown, uncounted := false, false
	for i := range all {
		st.add(&all[i])
		unknown = unknown || all[i].LagSeconds == nil && all[i].State != Standby // its rows are another process's
		uncounted = uncounted || all[i].LagBytes == nil && all[i].State != Standby
	}
	if unknown {
		st.LagSeconds = nil
	}
	if uncounted {
		st.LagBytes = nil
	}
	st.Tables, st.TopicRates = joined(st.Tables), joined(st.TopicRates)
	slices.Sort(st.Topics)
	st.Topics = slices.Compact(st.Topics)
	if len(st.Topics) > maxTopics {
		st.Topics = st.Topics[:maxTopics]
	}
	st.Headline = Headline(&st, now)
	return st
}

// add takes one shard's numbers into the sum.
func (s *Status) add(one *Status) {
	s.LSN.Server = max(s.LSN.Server, one.LSN.Server)
	s.LSN.Received = lesser(s.LSN.Received, one.LSN.Received)
	s.LSN.Published = lesser(s.LSN.Published, one.LSN.Published)
	s.LSN.Confirmed = lesser(s.LSN.Confirmed, one.LSN.Confirmed)
	s.LagBytes = more(s.LagBytes, one.LagBytes)
	s.RetainedWALBytes = max(s.RetainedWALBytes, one.RetainedWALBytes)
	if one.SlotState != nil && (s.SlotState == nil || one.SlotState.lostBefore(s.SlotState)) {
		s.SlotState = one.SlotState
	}
	s.LagSeconds = more(s.LagSeconds, one.LagSeconds)
	s.OldestUnacked = more(s.OldestUnacked, one.OldestUnacked)
	if s.LastLook == nil || one.LastLook != nil && one.LastLook.At.Before(s.LastLook.At) {
		s.LastLook = one.LastLook
	}
	if s.CatchUp == nil || one.CatchUp != nil && one.CatchUp.longer(s.CatchUp) {
		s.CatchUp = one.CatchUp
	}
	if s.LongTransaction == nil || one.LongTransaction != nil && one.LongTransaction.Seconds > s.LongTransaction.Seconds {
		s.LongTransaction = one.LongTransaction
	}
	if one.RowsBehind != nil { // each shard has rows of its own
		rows := *one.RowsBehind
		if s.RowsBehind != nil {
			rows += *s.RowsBehind
		}
		s.RowsBehind = &rows
	}
	s.InFlightEvents += one.InFlightEvents
	s.InFlightBytes += one.InFlightBytes
	s.EventsToRepeat += one.EventsToRepeat
	s.ParkedKeys += one.ParkedKeys
	s.RowsRead += one.RowsRead
	s.EventsPublished += one.EventsPublished
	s.EventsRejected += one.EventsRejected
	s.DeadLetters += one.DeadLetters
	s.Reconnects += one.Reconnects
	s.TopicsRecreated += one.TopicsRecreated
	s.DataLoss += one.DataLoss
	s.Overtaken += one.Overtaken
	s.Topics = append(s.Topics, one.Topics...)
	s.Tables = append(s.Tables, one.Tables...)
	s.TopicRates = append(s.TopicRates, one.TopicRates...)
	s.SourceConnected = s.SourceConnected && one.SourceConnected
	s.SinkConnected = s.SinkConnected && one.SinkConnected
	s.SourceReached = s.SourceReached && one.SourceReached
	s.SinkReached = s.SinkReached && one.SinkReached
	if one.LastEvent.After(s.LastEvent) {
		s.LastEvent = one.LastEvent
	}
	if one.LastConfirm.Before(s.LastConfirm) {
		s.LastConfirm = one.LastConfirm
	}
	if one.LastTick.Before(s.LastTick) {
		s.LastTick = one.LastTick
	}
}

// lostBefore reports whether the slot is lost before the other one: its WAL is lost already, or fewer
// bytes of WAL may still be written.
func (s *Slot) lostBefore(other *Slot) bool {
	const lost = "lost"
	if s.WALStatus == lost || other.WALStatus == lost {
		return other.WALStatus != lost
	}
	return s.SafeWALBytes != nil && (other.SafeWALBytes == nil || *s.SafeWALBytes < *other.SafeWALBytes)
}

// lesser is the lesser of two positions, of which zero is unknown.
func lesser(a, b Position) Position {
	if a == 0 || b == 0 {
		return cmp.Or(a, b)
	}
	return min(a, b)
}

// more is the greater of two numbers, of which nil is unknown.
func more[T cmp.Ordered](a, b *T) *T {
	if a == nil || b != nil && *b > *a {
		return b
	}
	return a
}
