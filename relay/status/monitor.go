package status

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/wording"
	"github.com/rs/zerolog"
)

// Monitor is what the relay shows of itself. Every method is safe from any goroutine; no server
// is waited for while the lock is held.
type Monitor struct {
	Counters

	log     zerolog.Logger
	changed func(from, to State, reason string) // may be nil
	of      Pipeline

	mu sync.Mutex // guards the following

	state      State // by the relay; what is shown may differ, see view
	reason     string
	message    string
	announced  announced
	blockedRow *blockedRow // nil: none is known
	tries      tries

	session Session  // nil between sessions
	read    progress // of the session, or of the last one
	reading openTransaction
	backlog backlog // of the session
	density density
	ended   lastKnown // of the last session
	waiting unconfirmed

	sink     sink.Sink // nil: it was dropped
	brokers  brokers
	snapshot *watch.Snapshot // nil: nobody looked yet
	budget   budget
	source   bool      // PostgreSQL was good once
	looked   time.Time // when snapshot was seen
	silent   bool      // PostgreSQL did not answer at the last look
	counted  counted
}

// Counters are counted by the relay, by any goroutine of it.
type Counters struct {
	Published   atomic.Int64 // records that were acknowledged
	rowsRead    atomic.Int64
	Rejected    atomic.Int64
	DeadLetters atomic.Int64
	Reconnects  atomic.Int64
	LostForks   atomic.Int64 // forks behind which something was delivered: rows that exist in Kafka alone
	LastEvent   atomic.Int64 // unix nanoseconds of the last acknowledgement
	LastTick    atomic.Int64 // unix nanoseconds at which the loops were last seen turning
}

// Pipeline is what of a relay's status never changes.
type Pipeline struct {
	Name        string
	Version     string
	Guarantee   string
	Slot        string
	Publication string
	WindowBytes int
	LookEvery   time.Duration // how often PostgreSQL is looked at; zero: not known
}

// Session is what the monitor asks of the session that runs, with its lock held.
type Session interface {
	Lineage() wal.Lineage
	Start() wal.LSN
	Positions() LSNs
	Stats() checkpoint.Stats

	// ToRepeat counts rows that are acknowledged, and that a start sends again.
	ToRepeat(stats checkpoint.Stats) int

	// Acked counts the records of unfinished batches that are durable.
	Acked() int

	// NewestCommit is the commit time of the row that was read last, and how long ago that was;
	// the zero time: none was.
	NewestCommit(now time.Time) (commit time.Time, ago time.Duration)

	// LastConfirm is when the confirmed position moved last; the zero time: it did not.
	LastConfirm() time.Time

	// Silent is how long the stream has heard nothing of the server; zero: it does not listen, as its
	// rows are not taken.
	Silent() time.Duration

	// BlockedFor is how long nothing more can be taken, and whether that is because a topic's
	// partitions are not known.
	BlockedFor(now time.Time) (full time.Duration, loading bool)
}

// announced is the state that log and events had last.
type announced struct {
	state    State
	reason   string
	since    time.Time // of state
	whySince time.Time // of reason; zero when that is empty
	logged   time.Time // when the log had it last
	skipHint bool      // the log has how the row is given up, which is known only once those before it are delivered
}

// lastKnown is what is shown of a session that is over.
type lastKnown struct {
	positions LSNs
	toRepeat  int
}

// brokers is what is known of Kafka.
type brokers struct {
	reached   bool      // it was good once
	away      time.Time // when no broker was last seen to answer
	incidents incidents // of sinks that were dropped
}

// incidents are what a sink counts of the brokers' misbehaviour.
type incidents struct{ recreated, dataLoss, overtaken int64 }

// NewMonitor returns one of a relay that starts now. changed, which may be nil, is called for
// each change that users see.
func NewMonitor(of Pipeline, log zerolog.Logger, changed func(from, to State, reason string)) *Monitor {
	now := time.Now()
	b := &Monitor{
		log: log, changed: changed, of: of, state: Starting,
		announced: announced{state: Starting, since: now},
		counted:   newCounted(),
	}
	b.LastTick.Store(now.UnixNano())
	return b
}

// maxTopics bounds the list of topics in the status.
const maxTopics = 1000

// Reached remembers that PostgreSQL, or Kafka, was good once.
func (b *Monitor) Reached(source, brokers bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.source, b.brokers.reached = b.source || source, b.brokers.reached || brokers
}

// SinkReached reports whether Kafka was good once.
func (b *Monitor) SinkReached() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.brokers.reached
}

// SetSink shows a sink from now on; nil: it was dropped.
func (b *Monitor) SetSink(s sink.Sink) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s == nil {
		b.brokers.incidents = b.allIncidents()
	}
	b.sink = s
}

// Sink is the sink that is shown; nil: there is none.
func (b *Monitor) Sink() sink.Sink {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sink
}

// allIncidents adds those of the present sink to those of dropped ones. Call it
// with the lock held.
func (b *Monitor) allIncidents() incidents {
	all := b.brokers.incidents
	if s, ok := b.sink.(sink.Incidents); ok {
		all.recreated += s.TopicsRecreated()
		all.dataLoss += s.DataLoss()
		all.overtaken += s.Overtaken()
	}
	return all
}

// SetSession shows a session from now on; nil: it is over.
func (b *Monitor) SetSession(s Session) {
	b.mu.Lock()
	switch {
	case s != nil:
		b.enter(s)
	case b.session != nil:
		b.leave(b.session)
	}
	b.session = s
	b.mu.Unlock()
	if s != nil {
		b.sayBehind(s)
	}
}

// muchBehind is from how much WAL on the log has how far a slot is behind when a session begins.
const muchBehind = 1 << 20

func (b *Monitor) sayBehind(s Session) {
	start, at := s.Start(), s.Positions()
	if behind := int64(at.Server) - int64(start); behind >= muchBehind {
		b.log.Info().Str("slot", b.of.Slot).Stringer("lsn", start).Int64("lag_bytes", behind).
			Msg("slot is " + wording.Bytes(behind) + " behind the end of the WAL; reading on from its position")
	}
}

// SlotAt is how far the probe last saw the slot, zero where that is beyond limit: somebody
// else moved it then.
func (b *Monitor) SlotAt(limit wal.LSN) wal.LSN {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.snapshot == nil || b.snapshot.Drift != nil || b.snapshot.Slot.Confirmed > limit {
		return 0
	}
	return b.snapshot.Slot.Confirmed
}

// SawTopics counts records that are durable, by topic.
func (b *Monitor) SawTopics(records []record.Record) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for begin := 0; begin < len(records); {
		topic, end := records[begin].Topic, begin+1
		for end < len(records) && records[end].Topic == topic {
			end++
		}
		b.counted.topics.of(topic).add(end-begin, now)
		begin = end
	}
}

// SetState sets the state of the relay's loop, and reports whether the log has the message
// with it. Stopping is final.
func (b *Monitor) SetState(s State, reason, message string) (logged bool) {
	b.mu.Lock()
	if b.state != Stopping {
		b.state, b.reason, b.message = s, reason, message
	}
	b.mu.Unlock()
	return strings.Contains(b.announce(), message)
}

// SetBlocked shows the relay as blocked. It and ClearBlocked move between Blocked and
// Streaming only, so that they cannot hide a stop.
func (b *Monitor) SetBlocked(reason string, cause error) { b.SetState(Blocked, reason, cause.Error()) }

// ClearBlocked ends what SetBlocked began.
func (b *Monitor) ClearBlocked() {
	b.mu.Lock()
	blocked := b.state == Blocked
	b.mu.Unlock()
	if blocked {
		b.SetState(Streaming, "", "")
	}
}

// Kafka has to stall for that long before the relay is shown as blocked: short back-pressure is
// normal.
const (
	fullUnreachable = time.Second
	fullSilent      = 10 * time.Second
)

// view is the state as users see it: the state that Run's goroutine set, and how a
// blocked row ahead, the window and the brokers change it. Call it with the lock held.
//
// A connection that comes and goes changes nothing about a blocked row, which waits
// for a person: the message names both. If another relay has the slot, the row is that relay's,
// and the message names only the slot.
func (b *Monitor) view(now time.Time) (State, string, string) {
	away := b.reachable(now)
	if o := b.blockedRow; o != nil && b.state == Streaming {
		return Blocked, o.reason, o.message
	} else if o != nil && b.state == Reconnecting {
		return Blocked, o.reason, o.message + "; at present also: " + b.advise(b.reason, b.message)
	}
	if b.state != Streaming || b.session == nil || b.sink == nil {
		return b.state, b.reason, b.advise(b.reason, b.message)
	}
	full, loading := b.session.BlockedFor(now)
	if away != nil {
		state, reason, message := Streaming, fault.ReasonKafkaUnreachable, away.Error()
		if refused, ok := errors.AsType[*sink.Error](away); ok {
			reason = refused.Reason
		}
		if full > fullUnreachable {
			state = Blocked
			if loading {
				message += "; reading is paused: no broker has given the partitions of a topic that the relay has not sent to since it connected"
			}
		}
		return state, reason, b.advise(reason, message)
	}
	// The time in which no broker answered is no silence of theirs.
	if full = min(full, now.Sub(b.brokers.away)); full > fullSilent {
		message := "the brokers answer but have not acknowledged a record for " + full.Round(time.Second).String() + ": look at min.insync.replicas and the partitions' leaders"
		if loading {
			message = "the brokers answer but have not said for " + full.Round(time.Second).String() + " where the partitions of a topic are: look at the partitions' leaders"
		}
		return Blocked, fault.ReasonKafkaNotAcknowledging, message
	}
	if reason, message, ok := b.standsStill(now); ok && b.reason == "" {
		return Streaming, reason, message
	}
	return b.state, b.reason, b.message
}

// reachable returns why no broker answers, and remembers when. Call it with the lock held.
func (b *Monitor) reachable(now time.Time) error {
	if b.sink == nil {
		return nil
	}
	err := b.sink.Reachable()
	if err != nil {
		b.brokers.away = now
	}
	return err
}

// DrainBlocker describes what a drain was waiting for. The state stopping hides every other.
func (b *Monitor) DrainBlocker(now time.Time) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if away := b.reachable(now); away != nil {
		return "and no broker answered: " + b.advise(fault.ReasonKafkaUnreachable, away.Error())
	}
	if o := b.blockedRow; o != nil && o.reason != "" {
		return "and the relay was blocked (" + o.reason + "): " + o.message
	}
	if b.session == nil {
		return "and there was no session with PostgreSQL"
	}
	return fmt.Sprintf("with %s unacknowledged or unconfirmed; check the brokers, or raise relay.drain_timeout", wording.Count(b.session.Stats().Rows, "row"))
}

// advise adds the next step to the message of brokers that do not answer, and how much time is
// left for it. Call it with the lock held.
func (b *Monitor) advise(reason, message string) string {
	if reason != fault.ReasonKafkaUnreachable {
		return message
	}
	message += "; start the brokers, or correct kafka.brokers or the addresses that they advertise"
	if b.snapshot == nil || b.snapshot.Drift != nil || b.snapshot.Slot.Restart == 0 {
		return message
	}
	slot := b.snapshot.Slot
	kept := wording.Bytes(max(0, int64(b.snapshot.WALEnd)-int64(slot.Restart)))
	if now := time.Now(); b.unanswered(now) {
		return message + "; PostgreSQL kept " + kept + " of WAL when it answered last, " + now.Sub(b.looked).Round(time.Second).String() + " ago"
	}
	if slot.SafeWAL == nil {
		return message + "; nothing is lost: PostgreSQL keeps the WAL, " + kept + " so far"
	}
	return message + "; nothing is lost before another " + wording.Bytes(max(0, *slot.SafeWAL)) + " of WAL: PostgreSQL keeps " + kept + " so far"
}

// Announce logs a change of the shown state, and calls the event.
func (b *Monitor) Announce() { b.announce() }

// announce returns the message that it logged; empty: it logged none.
func (b *Monitor) announce() string {
	b.mu.Lock()
	now := time.Now()
	a := &b.announced
	from, was, blockedSince := a.state, a.reason, a.since
	state, reason, message := b.view(now)
	changed := state != from || reason != was
	hint := state == Blocked && strings.Contains(message, MoveSlot)
	more := !changed && hint && !a.skipHint
	if changed || more {
		a.skipHint, a.logged = hint, now
	}
	if changed {
		if state != from {
			a.since = now
		}
		if reason != was {
			a.whySince = now
		}
		if reason == "" {
			a.whySince = time.Time{}
		}
		a.state, a.reason = state, reason
		if reason == "" || reason != was {
			b.tries = tries{}
		}
	}
	b.mu.Unlock()
	if !changed && !more {
		return ""
	}
	switch {
	case more: // the block itself is logged
		b.log.Warn().Str("state", string(state)).Str("reason", reason).Msg("everything before the row that blocks is delivered: " + message)
	case state == Blocked:
		b.log.Error().Str("state", string(state)).Str("from", string(from)).Str("reason", reason).Msg("blocked: " + reason + ": " + message)
	default:
		b.logChange(from, state, was, reason, message, now.Sub(blockedSince))
	}
	if changed && b.changed != nil {
		b.changed(from, state, reason)
	}
	return message
}

// MoveSlot is PostgreSQL's function that gives up the transaction of a row. A message that
// has it is the whole advice.
const MoveSlot = "pg_replication_slot_advance"

// logChange logs a change to a state that is not Blocked.
func (b *Monitor) logChange(from, state State, was, reason, message string, held time.Duration) {
	line := b.log.Info()
	if reason != "" && state != Standby {
		line = b.log.Warn()
	}
	line = line.Str("state", string(state))
	what := "state changed"
	switch {
	case from == Blocked && state == Streaming:
		what = "no longer blocked, after " + held.Round(time.Second).String()
		line = line.Str("from", string(from))
	case state != from:
		line = line.Str("from", string(from))
	case reason == "" && state == Streaming && was == fault.ReasonConfirmedNotMoving:
		what = "the confirmed position moves again"
	case reason == "" && state == Streaming: // what view says of them alone has a reason there
		what = "the brokers answer again"
	default:
		what = "reason changed"
	}
	if was != "" && (state == from || from == Blocked) {
		line = line.Str("was", was)
	}
	if reason != "" {
		line = line.Str("reason", reason).Str("err", message)
	}
	line.Msg(what)
}

// Tick keeps what is shown current: it logs a change of the state, what still stands in the way,
// and how a backlog goes. Call it every moment.
func (b *Monitor) Tick(now time.Time) {
	b.Announce()
	b.remind(now)
	b.follow(now)
	b.count(now)
	b.weigh(now)
}

// remindEvery is how often the log repeats what stands in the way.
const remindEvery = time.Minute

// remind repeats in the log what the relay is blocked at, and that no broker answers, with
// how long that has been so and what it costs PostgreSQL. A log of the last ten minutes has
// it, and so has an alert on lines.
func (b *Monitor) remind(now time.Time) {
	b.mu.Lock()
	state, reason, message := b.view(now)
	blocked := state == Blocked
	due := now.Sub(b.announced.logged) >= remindEvery && (blocked || reason == fault.ReasonKafkaUnreachable || reason == fault.ReasonConfirmedNotMoving)
	since, kept := b.announced.whySince, ""
	if due {
		b.announced.logged = now
		if reason != fault.ReasonKafkaUnreachable { // which has it already
			kept = b.kept(now)
		}
	}
	b.mu.Unlock()
	if !due {
		return
	}
	line := b.log.Warn()
	if blocked {
		line = b.log.Error()
	}
	line.Str("state", string(state)).Str("reason", reason).
		Msg(fmt.Sprintf("still %s, for %s: %s: %s%s", state, now.Sub(since).Round(time.Second), reason, message, kept))
}

// kept describes how much WAL PostgreSQL keeps for the slot, and how much is left until the slot
// is lost.
// Call it with the lock held.
func (b *Monitor) kept(now time.Time) string {
	if b.snapshot == nil || b.snapshot.Drift != nil || b.snapshot.Slot.Restart == 0 {
		return ""
	}
	slot := b.snapshot.Slot
	kept := wording.Bytes(max(0, int64(b.snapshot.WALEnd)-int64(slot.Restart))) + " of WAL for the slot"
	if b.unanswered(now) {
		return "; PostgreSQL kept " + kept + " when it answered last, " + now.Sub(b.looked).Round(time.Second).String() + " ago"
	}
	text := "; PostgreSQL keeps " + kept
	if slot.SafeWAL == nil {
		return text
	}
	text += ", which is lost after another " + wording.Bytes(max(0, *slot.SafeWAL))
	if lasts, known := b.budget.lasts(*slot.SafeWAL); known {
		text += ", in about " + lasts.String() + " at the present pace"
	}
	return text
}

// BeginSnapshot is called before the slot is read. The function that it returns takes what was seen, and warns
// when the slot's WAL runs out.
func (b *Monitor) BeginSnapshot() func(*watch.Snapshot) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ahead := b.blockedRow
	return func(snapshot *watch.Snapshot) {
		now := time.Now()
		b.mu.Lock()
		b.snapshot, b.looked, b.silent = snapshot, now, false
		if b.session != nil {
			b.sawWALEnd(snapshot.WALEnd, now)
		} else {
			b.confirmed(snapshot.Slot.Confirmed)
		}
		if ahead != nil && ahead == b.blockedRow && ahead.bound == 0 {
			ahead.bound = snapshot.WALEnd
		}
		low := b.budget.observe(now, snapshot)
		b.mu.Unlock()
		b.warn(low)
	}
}

// Unanswered takes note of a look that failed.
func (b *Monitor) Unanswered(err error) {
	b.log.Debug().Err(err).Msg("look at slot and publication")
	b.mu.Lock()
	defer b.mu.Unlock()
	b.silent = true
}

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
