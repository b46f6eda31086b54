package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/wording"
	"github.com/jackc/pglogrepl"
)

// board is what the relay shows of itself. Every method is safe from any
// goroutine; nobody waits for a server while the lock is held.
type board struct {
	mu sync.Mutex // guards the following

	state     State // by Run's goroutine; shown may differ, see view
	reason    string
	message   string
	shown     State // last announced
	shownWhy  string
	since     time.Time // of shown
	whySince  time.Time // of shownWhy; zero when that is empty
	said      time.Time // when the log had it last
	saidWay   bool      // the log has how the row is given up, which is known only once those before it are delivered
	obstacle  *obstacle // nil: none is known
	session   *session  // nil between sessions
	last      LSNs      // of the last session, kept while there is none
	waiting   unconfirmed
	repeat    int // EventsToRepeat of the last session, kept while there is none
	sink      sink.Sink
	incidents incidents // of sinks that were dropped
	snapshot  *replication.Snapshot
	budget    budget
	source    bool      // PostgreSQL was good once
	brokers   bool      // Kafka was good once
	away      time.Time // when no broker was last seen to answer
	topics    map[string]struct{}
}

// maxTopics bounds the list of topics in the status.
const maxTopics = 1000

func (b *board) init(now time.Time) {
	b.state, b.shown, b.since = Starting, Starting, now
	b.topics = map[string]struct{}{}
}

func (b *board) reached(source, brokers bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.source, b.brokers = b.source || source, b.brokers || brokers
}

func (b *board) sinkReached() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.brokers
}

func (b *board) setSink(s sink.Sink) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s == nil {
		b.incidents = b.allIncidents()
	}
	b.sink = s
}

// incidents are what a sink counts of the brokers' misbehaviour.
type incidents struct{ recreated, dataLoss, overtaken int64 }

// allIncidents adds those of the present sink to those of dropped ones. Call it
// with the lock held.
func (b *board) allIncidents() incidents {
	all := b.incidents
	if s, ok := b.sink.(interface {
		TopicsRecreated() int64
		DataLoss() int64
		Overtaken() int64
	}); ok {
		all.recreated += s.TopicsRecreated()
		all.dataLoss += s.DataLoss()
		all.overtaken += s.Overtaken()
	}
	return all
}

func (b *board) setSession(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case s != nil:
		b.enter(s)
	case b.session != nil:
		b.leave(b.session)
	}
	b.session = s
}

// slotAt is how far the probe last saw the slot, zero where that is beyond limit: somebody
// else moved it then.
func (b *board) slotAt(limit pglogrepl.LSN) pglogrepl.LSN {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.snapshot == nil || b.snapshot.Drift != nil || b.snapshot.Slot.Confirmed > limit {
		return 0
	}
	return b.snapshot.Slot.Confirmed
}

func (b *board) sawTopics(records []router.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	last := ""
	for i := range records {
		if topic := records[i].Topic; topic != last {
			last = topic
			if len(b.topics) < maxTopics {
				b.topics[topic] = struct{}{}
			}
		}
	}
}

// setState is the word of Run's goroutine. A stop is final.
func (r *Relay) setState(s State, reason, message string) {
	r.board.mu.Lock()
	if r.board.state != Stopping {
		r.board.state, r.board.reason, r.board.message = s, reason, message
	}
	r.board.mu.Unlock()
	r.announce()
}

// setBlocked and clearBlocked move between Blocked and Streaming only, so that
// they cannot hide a stop.
func (r *Relay) setBlocked(reason string, cause error) {
	r.setState(Blocked, reason, cause.Error())
}

func (r *Relay) clearBlocked() {
	r.board.mu.Lock()
	blocked := r.board.state == Blocked
	r.board.mu.Unlock()
	if blocked {
		r.setState(Streaming, "", "")
	}
}

// Kafka is slow to be called blocked: back-pressure of a moment is normal.
const (
	fullUnreachable = time.Second
	fullSilent      = 10 * time.Second
)

const (
	reasonUnreachable = "kafka_unreachable"
	reasonSilent      = "kafka_not_acknowledging"
)

// view is the state as users see it: the state that Run's goroutine set, and what an
// obstacle ahead, the window and the brokers make of it. Call it with the lock held.
//
// A connection that comes and goes changes nothing about an obstacle, for which a person
// is waited for; it is said beside it. That another relay has the slot is said instead:
// the obstacle is that relay's then.
func (b *board) view(now time.Time) (State, string, string) {
	away := b.reachable(now)
	if o := b.obstacle; o != nil && b.state == Streaming {
		return Blocked, o.reason, o.message
	} else if o != nil && b.state == Reconnecting {
		return Blocked, o.reason, o.message + "; at present also: " + b.advise(b.reason, b.message)
	}
	if b.state != Streaming || b.session == nil || b.sink == nil {
		return b.state, b.reason, b.advise(b.reason, b.message)
	}
	full, loading := b.session.blockedFor(now)
	if away != nil {
		state, reason, message := Streaming, reasonUnreachable, away.Error()
		if refused, ok := errors.AsType[*sink.Error](away); ok {
			reason = refused.Reason
		}
		if full > fullUnreachable {
			state = Blocked
			if loading {
				message += "; nothing more is read: a row goes to a topic that the relay has not sent to since it connected, and a broker has to say where its partitions are"
			}
		}
		return state, reason, b.advise(reason, message)
	}
	// The time in which no broker answered is no silence of theirs.
	if full = min(full, now.Sub(b.away)); full > fullSilent {
		message := "the brokers answer but have not acknowledged a record for " + full.Round(time.Second).String() + ": look at min.insync.replicas and the partitions' leaders"
		if loading {
			message = "the brokers answer but have not said for " + full.Round(time.Second).String() + " where the partitions of a topic are: look at the partitions' leaders"
		}
		return Blocked, reasonSilent, message
	}
	return b.state, b.reason, b.message
}

// reachable says why no broker answers, and remembers when. Call it with the lock held.
func (b *board) reachable(now time.Time) error {
	if b.sink == nil {
		return nil
	}
	err := b.sink.Reachable()
	if err != nil {
		b.away = now
	}
	return err
}

// inTheWay says what a drain was waiting for. Its state hides every other.
func (b *board) inTheWay(now time.Time) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if away := b.reachable(now); away != nil {
		return "and no broker answered: " + b.advise(reasonUnreachable, away.Error())
	}
	if o := b.obstacle; o != nil && o.reason != "" {
		return "and the relay was blocked (" + o.reason + "): " + o.message
	}
	if b.session == nil {
		return "and there was no session with PostgreSQL"
	}
	return fmt.Sprintf("and %s not acknowledged and confirmed by then: look at the brokers, or raise it", wording.Count(b.session.tracker.Stats().Rows, "row"))
}

// advise adds the next step to what is said of brokers that do not answer, and how long
// there is for it. Call it with the lock held.
func (b *board) advise(reason, message string) string {
	if reason != reasonUnreachable {
		return message
	}
	message += "; start the brokers, or correct kafka.brokers or the addresses that they advertise"
	if b.snapshot == nil || b.snapshot.Drift != nil || b.snapshot.Slot.Restart == 0 {
		return message
	}
	slot := b.snapshot.Slot
	kept := replication.BytesText(max(0, int64(b.snapshot.WALEnd)-int64(slot.Restart)))
	if slot.SafeWAL == nil {
		return message + "; nothing is lost: PostgreSQL keeps the WAL, " + kept + " so far"
	}
	return message + "; nothing is lost before another " + replication.BytesText(max(0, *slot.SafeWAL)) + " of WAL: PostgreSQL keeps " + kept + " so far"
}

// announce tells log and events when what users see has changed.
func (r *Relay) announce() {
	r.board.mu.Lock()
	now := time.Now()
	from, was, blockedSince := r.board.shown, r.board.shownWhy, r.board.since
	state, reason, message := r.board.view(now)
	changed := state != from || reason != was
	way := state == Blocked && strings.Contains(message, moveSlot)
	more := !changed && way && !r.board.saidWay
	if changed || more {
		r.board.saidWay, r.board.said = way, now
	}
	if changed {
		if state != from {
			r.board.since = now
		}
		if reason != was {
			r.board.whySince = now
		}
		if reason == "" {
			r.board.whySince = time.Time{}
		}
		r.board.shown, r.board.shownWhy = state, reason
	}
	r.board.mu.Unlock()
	if !changed && !more {
		return
	}
	if state == Blocked {
		r.log.Error().Str("state", string(state)).Str("from", string(from)).Str("reason", reason).Msg("blocked: " + reason + ": " + message)
	} else {
		r.sayChange(from, state, was, reason, message, now.Sub(blockedSince))
	}
	if changed && r.ev.StateChanged != nil {
		r.ev.StateChanged(from, state, reason)
	}
}

// sayChange logs a change to a state that is not Blocked.
func (r *Relay) sayChange(from, state State, was, reason, message string, held time.Duration) {
	line := r.log.Info()
	if reason != "" && state != Standby {
		line = r.log.Warn()
	}
	line = line.Str("state", string(state))
	what := "state changed"
	switch {
	case from == Blocked && state == Streaming:
		what = "no longer blocked, after " + held.Round(time.Second).String()
		line = line.Str("from", string(from))
	case state != from:
		line = line.Str("from", string(from))
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

// remindEvery is how often the log repeats what stands in the way.
const remindEvery = time.Minute

// remind repeats in the log what the relay is blocked at, and that no broker answers, with
// how long that has been so and what it costs PostgreSQL. A log of the last ten minutes has
// it, and so has an alert on lines.
func (r *Relay) remind(now time.Time) {
	b := &r.board
	b.mu.Lock()
	state, reason, message := b.view(now)
	blocked := state == Blocked
	due := now.Sub(b.said) >= remindEvery && (blocked || reason == reasonUnreachable)
	since, kept := b.whySince, ""
	if due {
		b.said = now
		if reason != reasonUnreachable { // which has it already
			kept = b.kept()
		}
	}
	b.mu.Unlock()
	if !due {
		return
	}
	line := r.log.Warn()
	if blocked {
		line = r.log.Error()
	}
	line.Str("state", string(state)).Str("reason", reason).
		Msg(fmt.Sprintf("still %s, for %s: %s: %s%s", state, now.Sub(since).Round(time.Second), reason, message, kept))
}

// kept says how much WAL PostgreSQL keeps for the slot, and what is left until it is lost.
// Call it with the lock held.
func (b *board) kept() string {
	if b.snapshot == nil || b.snapshot.Drift != nil || b.snapshot.Slot.Restart == 0 {
		return ""
	}
	slot := b.snapshot.Slot
	text := "; PostgreSQL keeps " + replication.BytesText(max(0, int64(b.snapshot.WALEnd)-int64(slot.Restart))) + " of WAL for the slot"
	if slot.SafeWAL == nil {
		return text
	}
	text += ", which is lost after another " + replication.BytesText(max(0, *slot.SafeWAL))
	if lasts, known := b.budget.lasts(*slot.SafeWAL); known {
		text += ", in about " + lasts.String() + " at the present pace"
	}
	return text
}

// tick keeps the shown state current and proves that the loops turn.
func (r *Relay) tick(stopped <-chan struct{}) {
	t := time.NewTicker(250 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case now := <-t.C:
			r.announce()
			r.remind(now)
			if r.watch(now) {
				r.lastTick.Store(now.UnixNano())
			}
		case <-stopped:
			return
		}
	}
}

// watch says whether the session's loop turns: it asks what is confirmed at least
// once a second. It also ends a session whose server has been silent for so long
// that somebody else may soon hold the slot, while records are on their way: they
// would land behind newer ones of their key.
func (r *Relay) watch(now time.Time) bool {
	r.board.mu.Lock()
	s := r.board.session
	r.board.mu.Unlock()
	if s == nil {
		return true
	}
	limit := r.cfg.Replication.WalSenderTimeout * 2 / 3
	if silent := s.src.Silent(); limit > 0 && silent > limit && s.sends.outstanding.Load() > 0 {
		s.interrupt(&replication.Error{
			Kind: replication.KindRetry, Reason: replication.ReasonTimeout, Op: "read from server",
			Err: fmt.Errorf("silent for %s while records are not acknowledged; another relay may take the slot at %s", silent.Round(time.Second), r.cfg.Replication.WalSenderTimeout),
		})
	}
	return time.Duration(instant(now)-s.asked.Load()) < stuckAfter
}

// stuckAfter is when a loop that should turn every second counts as stuck.
const stuckAfter = 20 * time.Second

// pingInterval is how often idle brokers are asked whether they are there.
const pingInterval = 10 * time.Second

// ping keeps what is said about the brokers true while nothing is sent to them.
func (r *Relay) ping(hard context.Context, stopped <-chan struct{}) {
	t := time.NewTicker(pingInterval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-stopped:
			return
		}
		r.board.mu.Lock()
		s := r.board.sink
		r.board.mu.Unlock()
		if p, ok := s.(interface{ Ping(context.Context) }); ok {
			ctx, cancel := context.WithTimeout(hard, pingInterval/2)
			p.Ping(ctx)
			cancel()
		}
	}
}

// probe looks at slot and publication from beside the stream. A drift ends the
// session with the position frozen: rows may be missing from the stream, and
// confirming past them would lose them for good. A server that is back after it could
// not be looked at cuts a pause of Run's goroutine short.
func (r *Relay) probe(hard context.Context, stopped <-chan struct{}) {
	defer r.parts.Probe.Close()
	t := time.NewTicker(r.cfg.ProbeInterval)
	defer t.Stop()
	for away := false; ; {
		next := r.cfg.ProbeInterval
		soon, err := r.look(hard)
		if err == nil && away {
			select {
			case r.back <- struct{}{}:
			default:
			}
		}
		away = err != nil
		if soon {
			next = min(next, time.Second)
		}
		t.Reset(next)
		select {
		case <-t.C:
		case <-stopped:
			return
		}
	}
}

// unreachableGrace is all that a stopping server is kept waiting for when the brokers
// cannot be reached: nothing that it waits for is delivered then.
const unreachableGrace = time.Second

// look says why it saw nothing, and whether it has to look again soon: the server of a
// session is about to stop, or may do so unseen because the brokers take nothing.
func (r *Relay) look(hard context.Context) (soon bool, err error) {
	ctx, cancel := context.WithTimeout(hard, r.cfg.ProbeInterval+5*time.Second)
	defer cancel()
	r.board.mu.Lock()
	ahead := r.board.obstacle
	r.board.mu.Unlock()
	snapshot, err := r.parts.Probe.Look(ctx)
	r.board.mu.Lock()
	s := r.board.session
	grace := r.cfg.Replication.ShutdownGrace
	if s != nil && r.board.sink != nil && r.board.sink.Reachable() != nil {
		soon, grace = true, min(grace, unreachableGrace)
	}
	var low *warning
	if err == nil {
		r.board.snapshot = snapshot
		if s != nil {
			s.lookedAt(snapshot.WALEnd, time.Now())
		} else {
			r.board.done(snapshot.Slot.Confirmed)
		}
		if ahead != nil && ahead == r.board.obstacle && ahead.bound == 0 {
			ahead.bound = snapshot.WALEnd
		}
		low = r.board.budget.look(time.Now(), snapshot)
	}
	r.board.mu.Unlock()
	r.warn(low)
	if err == nil && snapshot.Drift == nil {
		defer func() { r.unchanged = snapshot.WALEnd }()
	}
	var changed, other error // the snapshot is shown by now, and not ours to write to
	if err == nil {
		changed = snapshot.Drift
	}
	if err == nil && s != nil && changed == nil {
		if other = s.slotTaken(snapshot); other == nil {
			changed = s.slotMoved(snapshot)
		}
	}
	switch {
	case err != nil:
		r.log.Debug().Err(err).Msg("look at slot and publication")
		if s != nil {
			s.serverStops(err, time.Now(), grace)
			soon = soon || !s.stopping.IsZero()
		}
	case other != nil:
		s.interrupt(other)
	case changed != nil && r.began.Load():
		r.drift.CompareAndSwap(nil, &drift{changed, r.unchanged})
		if s != nil {
			s.frozen.CompareAndSwap(0, s.told.Load())
			s.interrupt(r.drift.Load())
		}
	case s != nil:
		s.stopping = time.Time{}
	}
	return soon, err
}

// serverStops lets go of a server that has been shutting down for longer than
// grace. It waits for rows that Kafka does not take, and behind a full window the
// stream cannot see that it asks.
func (s *session) serverStops(err error, now time.Time, grace time.Duration) {
	switch {
	case replication.Reason(err) != replication.ReasonServerShutdown:
		s.stopping = time.Time{}
	case s.stopping.IsZero():
		s.stopping = now
	case now.Sub(s.stopping) >= grace:
		s.interrupt(err)
	}
}

// interrupt asks B to end the session.
func (s *session) interrupt(err error) {
	select {
	case s.interrupts <- err:
		s.bounds.endSending()
		s.bounds.endJudging()
	default:
	}
}

// blockedFor is how long nothing more can be taken: the window is full, or Send
// waits, for a topic's partitions to be loaded, and what was read since fills the
// channel behind it. Then there is room in the window, and no way to use it.
func (s *session) blockedFor(now time.Time) (full time.Duration, loading bool) {
	at := s.shown.full.Load()
	if waits := s.shown.waits.Load(); at == 0 && len(s.intake.out) == cap(s.intake.out) {
		at, loading = waits, true
	}
	if at == 0 {
		return 0, false
	}
	return time.Duration(instant(now) - at), loading
}

func (s *session) positions() LSNs {
	return LSNs{
		Server:    Position(s.src.ServerEnd()),
		Received:  Position(s.src.Received()),
		Published: Position(s.tracker.Confirmed()),
		Confirmed: Position(s.told.Load()),
	}
}

// Status is a consistent snapshot.
func (r *Relay) Status() Status {
	now := time.Now()
	b := &r.board
	b.mu.Lock()
	defer b.mu.Unlock()
	st := Status{
		Since: b.since, Version: r.cfg.Version, Pipeline: r.cfg.Pipeline,
		Guarantee: string(r.cfg.Guarantee), Slot: r.cfg.Replication.Slot, Publication: r.cfg.Replication.Publication,
		LSN:                b.last,
		InFlightLimitBytes: r.cfg.MaxInFlightBytes,
		EventsToRepeat:     b.repeat,
		EventsPublished:    r.published.Load(),
		EventsRejected:     r.rejected.Load(),
		DeadLetters:        r.letters.Load(),
		ParkedKeys:         r.parkedKeys(),
		Reconnects:         r.reconnects.Load(),
		Topics:             make([]string, 0, len(b.topics)),
		SourceConnected:    b.session != nil,
		SinkConnected:      b.brokers && b.sink != nil && b.sink.Reachable() == nil,
		SourceReached:      b.source,
		SinkReached:        b.brokers,
		LastTick:           time.Unix(0, r.lastTick.Load()),
	}
	st.State, st.Reason, st.Message = b.view(now)
	if st.Reason == b.shownWhy {
		st.ReasonSince = b.whySince
	} else if st.Reason != "" {
		st.ReasonSince = now // announced in a moment
	}
	seen := b.allIncidents()
	st.TopicsRecreated, st.DataLoss, st.Overtaken = seen.recreated, seen.dataLoss+r.phantoms.Load(), seen.overtaken
	for topic := range b.topics {
		st.Topics = append(st.Topics, topic)
	}
	slices.Sort(st.Topics)
	if at := r.lastEvent.Load(); at != 0 {
		st.LastEvent = time.Unix(0, at)
	}
	if b.session != nil {
		b.session.show(&st, now)
	}
	b.showSlot(&st)
	st.LagBytes = max(0, int64(st.LSN.Server)-int64(st.LSN.Confirmed))
	if lag, known := b.lag(now); known {
		st.LagSeconds = &lag
	}
	return st
}

// show fills in what only a session knows.
func (s *session) show(st *Status, now time.Time) {
	st.LSN = s.positions()
	stats := s.tracker.Stats()
	st.InFlightEvents, st.InFlightBytes = max(0, stats.Rows-int(s.shown.acked.Load())), stats.Bytes
	st.EventsToRepeat = s.delivery.toRepeat(stats)
	oldest := 0.0
	if !stats.Oldest.IsZero() {
		oldest = now.Sub(stats.Oldest).Seconds()
	}
	st.OldestUnacked = &oldest
	if at := s.shown.toldAt.Load(); at != 0 {
		st.LastConfirm = time.Unix(0, at)
	}
}

// showSlot fills in what the probe saw last.
func (b *board) showSlot(st *Status) {
	if b.snapshot == nil {
		return
	}
	slot := b.snapshot.Slot
	st.LSN.Server = max(st.LSN.Server, Position(b.snapshot.WALEnd))
	if st.LSN.Confirmed == 0 { // a standby has told nothing, but the slot has a position
		st.LSN.Confirmed = Position(slot.Confirmed)
	}
	st.RetainedWALBytes = max(0, int64(b.snapshot.WALEnd)-int64(slot.Restart))
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
