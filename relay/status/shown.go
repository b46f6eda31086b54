package status

import (
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
)

// Status is a consistent snapshot.
func (b *Monitor) Status() Status {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	st := Status{
		Since: b.announced.since, Version: b.of.Version, Pipeline: b.of.Name,
		Guarantee: b.of.Guarantee, Slot: b.of.Slot, Publication: b.of.Publication,
		LSN:                b.ended.positions,
		InFlightLimitBytes: b.of.WindowBytes,
		EventsToRepeat:     b.ended.toRepeat,
		RowsRead:           b.rowsRead.Load(),
		EventsPublished:    b.Published.Load(),
		EventsRejected:     b.Rejected.Load(),
		DeadLetters:        b.DeadLetters.Load(),
		Reconnects:         b.Reconnects.Load(),
		Topics:             make([]string, 0, len(b.counted.topics.byName)),
		SourceConnected:    b.session != nil,
		SinkConnected:      b.brokers.reached && b.sink != nil && b.sink.Reachable() == nil,
		SourceReached:      b.source,
		SinkReached:        b.brokers.reached,
		LastTick:           time.Unix(0, b.LastTick.Load()),
	}
	st.State, st.Reason, st.Message = b.view(now)
	if st.Reason == b.announced.reason {
		st.ReasonSince = b.announced.whySince
	} else if st.Reason != "" {
		st.ReasonSince = now // announced in a moment
	}
	seen := b.allIncidents()
	st.TopicsRecreated, st.DataLoss, st.Overtaken = seen.recreated, seen.dataLoss+b.LostForks.Load(), seen.overtaken
	for topic := range b.counted.topics.byName {
		st.Topics = append(st.Topics, topic)
	}
	slices.Sort(st.Topics)
	if at := b.LastEvent.Load(); at != 0 {
		st.LastEvent = time.Unix(0, at)
	}
	if b.session != nil {
		showSession(&st, b.session, now)
	}
	b.showSlot(&st)
	if b.unanswered(now) {
		b.forget(&st)
	}
	st.LagBytes = st.lagBytes()
	if lag, known := b.lag(now); known {
		st.LagSeconds = &lag
	}
	if st.Reason == fault.ReasonConfirmedNotMoving {
		held := b.notMoving(now).Seconds()
		st.NotMoving = &held
	}
	if st.State == Streaming {
		st.LongTransaction = b.longTransaction(now, notMovingAfter)
	}
	st.CatchUp = b.backlog.catchUp()
	st.RowsBehind = b.rowsBehind(&st)
	st.Obstacle = b.obstacle(&st)
	st.Tables, st.TopicRates = b.counted.tables.list(), b.counted.topics.list()
	st.Headline = Headline(&st, now)
	return st
}

// showSession fills in what only a session knows.
func showSession(st *Status, s Session, now time.Time) {
	st.LSN = s.Positions()
	stats := s.Stats()
	st.InFlightEvents, st.InFlightBytes = max(0, stats.Rows-s.Acked()), stats.Bytes
	st.EventsToRepeat = s.ToRepeat(stats)
	oldest := 0.0
	if !stats.Oldest.IsZero() {
		oldest = now.Sub(stats.Oldest).Seconds()
	}
	st.OldestUnacked = &oldest
	st.LastConfirm = s.LastConfirm()
}

// showSlot fills in what the probe saw last.
func (b *Monitor) showSlot(st *Status) {
	if b.snapshot == nil {
		return
	}
	slot := b.snapshot.Slot
	st.LSN.Server = max(st.LSN.Server, Position(b.snapshot.WALEnd))
	if st.LSN.Confirmed == 0 { // a standby has reported nothing, but the slot has a position
		st.LSN.Confirmed = Position(slot.Confirmed)
	}
	if postgres.Reason(b.snapshot.Drift) == fault.ReasonSlotMissing {
		return
	}
	if slot.Restart != 0 {
		st.RetainedWALBytes = max(0, int64(b.snapshot.WALEnd)-int64(slot.Restart))
	}
	st.SlotState = &Slot{
		Active: slot.Active, WALStatus: slot.WALStatus,
		Confirmed: Position(slot.Confirmed), Restart: Position(slot.Restart),
		SafeWALBytes: slot.SafeWAL, SpilledBytes: slot.Spilled,
		RetainedBytes: st.RetainedWALBytes, WALPace: int64(b.budget.pace),
	}
	if slot.SafeWAL != nil {
		if lasts, known := b.budget.lasts(*slot.SafeWAL); known {
			seconds := lasts.Seconds()
			st.SlotState.SafeSeconds = &seconds
		}
	}
}
