package relay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/relay/delivery"
	"github.com/cdc-relay/cdc-relay/relay/ending"
	"github.com/cdc-relay/cdc-relay/relay/promise"
	"github.com/cdc-relay/cdc-relay/relay/rejected"
	"github.com/cdc-relay/cdc-relay/relay/resume"
	"github.com/cdc-relay/cdc-relay/relay/retry"
	"github.com/cdc-relay/cdc-relay/relay/schemas"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/cdc-relay/cdc-relay/sink/kafkatx"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Source is what a session needs of replication; *replication.Stream satisfies it.
type Source interface {
	Start() wal.LSN
	Origin() wal.Origin
	ServerProcess() int // the server's process that has the slot for this stream; zero: not known
	Tables() []*wal.Relation
	Received() wal.LSN
	ServerEnd() wal.LSN
	Silent() time.Duration // since the server was last heard; zero while nobody listens
	Run(intake context.Context, out chan<- *wal.Batch, confirmed func() wal.LSN) error
	Lost() <-chan struct{} // closed when the slot is not held any more after Run returned
	Abort()
	Close(ctx context.Context, confirmed wal.LSN) error
}

// Prober looks at slot and publication from beside the stream.
type Prober interface {
	Read(ctx context.Context) (*watch.Snapshot, error)
	Close()
}

// Parts are what a Relay is made of.
type Parts struct {
	Source func(context.Context) (Source, error) // a new session's stream
	Router *router.Router                        // owned by the relay from here on
	Sink   func() (sink.Sink, error)             // asked again when a sink had to be dropped
	Probe  Prober                                // optional

	Journal rejected.Journal // of the dead-letter topic; needed with Config.ParkKey, else nil. The letters' Run closes it
	Ledger  promise.Ledger   // of promised positions, and of rows that may be missing; nil: nothing is kept. Run closes it
}

// Relay streams one slot to one sink. Run is called once; Status and Abort are
// safe from any goroutine at any time.
type Relay struct {
	cfg   Config
	parts Parts
	ev    Events
	log   zerolog.Logger

	// Run's goroutine owns the fields from here to delivery.
	sink               sink.Sink
	furthest           retry.Furthest
	progressed         bool       // the last session got further than every session before it
	ended              sessionEnd // the last session
	holder             string     // this process, among all who ever had the slot
	known              resume.Known
	serverPID          int  // process of the server that the last session streamed from
	waitForPredecessor bool // records of another producer may be on their way: of another relay, or of a client that was dropped
	lastNotices        time.Time
	delivery           *delivery.Shared // what sessions leave to each other
	schemas            *schemas.Keeper  // safe from any goroutine

	drainBlocker atomic.Pointer[string] // what was in the way when DrainTimeout was over; nil: it was not
	aborted      chan struct{}          // closed by Abort
	abort        sync.Once
	serverBack   chan struct{} // one token: the probe reached a server that it had not reached before
	tryNow       chan struct{} // TryNow sends; who pauses before another attempt receives, and tries at once

	drift       atomic.Pointer[drift] // set once, by the probe or the stream
	unchanged   wal.LSN               // end of the WAL at the probe's last look that saw no change; used only by the probe
	streamed    atomic.Bool           // streaming began at least once
	lettersLost atomic.Bool           // the dead-letter topic did not keep every letter when a session ran
	olderTypes  resume.OlderTypes     // used only by Run's goroutine
	alreadySent atomic.Int64          // rows that are not sent, because Config.AlreadySent knows their records
	doubts      promise.Doubts        // records once that rows may be missing (noteDrift); used only by Run's goroutine

	monitor *status.Monitor
	session atomic.Pointer[session] // nil between sessions
}

// drift is a change of the publication or a table while the relay ran. Rows that were written
// meanwhile may be missing from the stream without a trace, also after the change is undone. So
// the process confirms nothing more: a restart says that somebody has dealt with the gap.
type drift struct {
	error
	since wal.LSN // end of the WAL at the last look that saw no change; zero: not known
}

func (d *drift) Error() string {
	when := "meanwhile"
	if d.since != 0 {
		when = fmt.Sprintf("after %s", d.since)
	}
	switch postgres.Reason(d.error) {
	case fault.ReasonSlotLost, fault.ReasonSlotMissing, fault.ReasonPublicationMissing: // which say what to do
		return d.error.Error()
	}
	return d.error.Error() + "; rows written " + when + " may be missing from the stream: look for them, then restart the relay"
}

func (d *drift) Unwrap() error { return d.error }

// New joins given parts. It starts nothing.
func New(cfg Config, parts Parts, ev Events, log zerolog.Logger) *Relay {
	r := &Relay{cfg: cfg.WithDefaults(), parts: parts, ev: ev, log: log, aborted: make(chan struct{}), serverBack: make(chan struct{}, 1), tryNow: make(chan struct{})}
	r.holder = promise.NewHolder()
	if r.cfg.PositionHeaders {
		parts.Router.PositionHeaders()
	}
	r.monitor = status.NewMonitor(status.Pipeline{
		Name: r.cfg.Pipeline, Version: r.cfg.Version, Guarantee: string(r.cfg.Guarantee),
		Slot: r.cfg.Replication.Slot, Publication: r.cfg.Replication.Publication, WindowBytes: r.cfg.MaxInFlightBytes, LookEvery: r.cfg.ProbeInterval,
	}, log, ev.StateChanged)
	var journal rejected.Journal
	if r.cfg.OnReject == DeadLetterOnReject && r.cfg.ParkKey {
		journal = parts.Journal
	}
	r.schemas = schemas.New(parts.Router.Registry(), schemas.Config{Refresh: r.cfg.SchemaRefresh, RetryMin: r.cfg.RetryMin, RetryMax: r.cfg.RetryMax, Asked: ev.SchemaAsked}, log)
	r.delivery = delivery.New(r.cfg.deliveryConfig(), parts.Router, r.schemas, journal, r.monitor, ev.Events, log)
	return r
}

// Open builds the real parts. It checks the configuration and touches no server. hooks make those
// of each Kafka client.
func Open(cfg Config, ev Events, log zerolog.Logger, hooks ...func() kgo.Hook) (*Relay, error) {
	cfg = cfg.WithDefaults()
	routes, err := router.New(cfg.Router)
	if err != nil {
		return nil, &ConfigError{Err: err}
	}
	var r *Relay
	cfg.Stream.Binary = func(tables []*wal.Relation, from, end wal.LSN) bool {
		return !r.olderTypes.Ahead(from, end) && !slices.ContainsFunc(tables, func(t *wal.Relation) bool { return !routes.BinarySafe(t) })
	}
	if cfg.OnReject == DeadLetterOnReject {
		cfg.Kafka.DeadLetterTopic = cfg.DeadLetterTopic
	}
	build := func() (sink.Sink, error) {
		return OpenSink(cfg, ev, log.With().Str("component", "sink").Logger(), hooks)
	}
	first, err := build()
	if err != nil {
		return nil, &ConfigError{Err: err}
	}
	parts := Parts{
		Router: routes,
		Probe:  watch.NewProbe(cfg.Replication),
		Source: func(ctx context.Context) (Source, error) {
			return replication.Open(ctx, cfg.Replication, cfg.Stream, log.With().Str("component", "replication").Logger())
		},
		Sink: func() (sink.Sink, error) {
			if s := first; s != nil {
				first = nil
				return s, nil
			}
			return build()
		},
	}
	if cfg.KeepsPositions() {
		if parts.Ledger, err = topics.NewLedger(cfg.Kafka.Connection, cfg.CheckpointTopic); err != nil {
			_ = first.Close(context.Background()) // nothing was sent
			return nil, &ConfigError{Err: err}
		}
	}
	if cfg.OnReject == DeadLetterOnReject && cfg.ParkKey {
		parts.Journal = topics.NewFollower(cfg.Kafka.Connection, cfg.DeadLetterTopic, log.With().Str("component", "sink").Logger())
	}
	r = New(cfg, parts, ev, log.With().Str("component", "relay").Logger())
	return r, nil
}

// OpenSink builds the sink of the guarantee. It connects to nothing.
func OpenSink(cfg Config, ev Events, log zerolog.Logger, hooks []func() kgo.Hook) (sink.Sink, error) {
	if cfg.Guarantee != ExactlyOnce {
		return kafka.New(cfg.Kafka, log, hooks...)
	}
	return kafkatx.New(kafkatx.Config{
		Config: cfg.Kafka, CheckpointTopic: cfg.CheckpointTopic, Interval: cfg.CommitInterval,
		// A row takes about twice its record's size of the window. Half of the window is for
		// what is routed while a transaction is being ended.
		MaxBytes: cfg.MaxInFlightBytes / 4, DivideBytes: cfg.MaxInFlightBytes / 4,
		Ended: ev.TransactionEnded,
	}, log, hooks...)
}

// Run streams until ctx ends, or up to Config.Stream.Until, then drains, and returns nil when nothing was left
// in flight. A *ConfigError, *RefusedError or *BlockedError means that a restart
// does not help; after every other error it may.
func (r *Relay) Run(ctx context.Context) error {
	deliveryCtx, endDrain := context.WithCancel(context.Background())
	defer endDrain()
	var background sync.WaitGroup
	defer background.Wait()
	stopped := make(chan struct{})
	defer close(stopped)

	background.Go(func() { r.limitDrain(ctx, endDrain, stopped) })
	background.Go(func() { r.tick(stopped) })
	background.Go(func() { r.ping(deliveryCtx, stopped) })
	background.Go(func() { r.schemas.Run(deliveryCtx) })
	if r.parts.Probe != nil {
		background.Go(func() { r.probe(deliveryCtx, stopped) })
	}

	if r.parts.Ledger != nil {
		defer r.parts.Ledger.Close()
	}
	background.Go(func() { r.delivery.Letters.Run(deliveryCtx) })

	err := r.loop(ctx, deliveryCtx)
	r.delivery.Rejected.Flush(time.Now(), true)
	endDrain() // and a probe that is under way
	r.dropSink()
	return err
}

// Discard closes what Open made, of a relay that is not run.
func (r *Relay) Discard() {
	if first, err := r.parts.Sink(); err == nil {
		r.sink = first
		r.dropSink()
	}
	if r.parts.Ledger != nil {
		r.parts.Ledger.Close()
	}
	if r.parts.Journal != nil {
		r.parts.Journal.Close()
	}
}

// Status is a consistent snapshot.
func (r *Relay) Status() status.Status {
	st := r.monitor.Status()
	st.ParkedKeys = r.delivery.Letters.Keys()
	return st
}

// Abort cuts a drain short. What is unconfirmed is sent again by the next start.
func (r *Relay) Abort() { r.abort.Do(func() { close(r.aborted) }) }

// TryNow cuts the present pause before another attempt short, and reports whether there was one.
func (r *Relay) TryNow() bool {
	select {
	case r.tryNow <- struct{}{}:
		return true
	default:
		return false
	}
}

// limitDrain ends deliveryCtx DrainTimeout after the stop signal, or at Abort.
func (r *Relay) limitDrain(ctx context.Context, endDrain context.CancelFunc, stopped <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-r.aborted:
		endDrain()
		return
	case <-stopped:
		return
	}
	r.monitor.SetState(status.Stopping, "", "")
	timeout := time.NewTimer(r.cfg.DrainTimeout)
	defer timeout.Stop()
	select {
	case <-timeout.C:
		late := r.monitor.DrainBlocker(time.Now())
		r.drainBlocker.Store(&late)
	case <-r.aborted:
	case <-stopped:
	}
	endDrain()
}

// standbyPoll is how often a standby asks for the slot: often enough to take over
// within two seconds of a clean stop.
const standbyPoll = 500 * time.Millisecond

var errEnded = errors.New("read stream: it ended without an error")

// loop repeats sessions until the stop, or a fatal error.
func (r *Relay) loop(ctx, deliveryCtx context.Context) error {
	wait := retry.Backoff{Min: r.cfg.RetryMin, Max: r.cfg.RetryMax}
	var repeats retry.Repetition
	atOnce := 0 // sessions in a row that began at once, and did not get further
	for {
		began := time.Now()
		r.progressed = false
		r.forgetServerBack()
		err := r.runSession(ctx, deliveryCtx, 0)
		r.noteDrift(ctx, err)
		if ctx.Err() != nil || deliveryCtx.Err() != nil {
			return r.stopError(r.drainOn(ctx, deliveryCtx, err))
		}
		if err == nil && r.cfg.Stream.Until != 0 {
			return nil // the stream ended there, and all of it is confirmed
		}
		if err == nil {
			err = errEnded
		}
		if r.progressed || time.Since(began) > r.cfg.RetryMax {
			wait.Reset()
		}
		if why, again := r.restartsAtOnce(err); again {
			r.log.Info().Err(err).Msg(why)
			if atOnce++; r.progressed {
				atOnce = 1
			}
			if atOnce > maxAtOnce && !pause(ctx, deliveryCtx, wait.Delay(), r.serverBack, r.tryNow) {
				return nil
			}
			continue
		}
		atOnce = 0
		same := repeats.Count(err)
		rules := r.endRules()
		next := rules.After(err)
		if next.Fatal != nil {
			if next.Reason == fault.ReasonFenced && !r.pauseFenced(ctx, deliveryCtx, err) {
				return nil
			}
			return next.Fatal
		}
		delay := wait.Delay()
		if postgres.KindOf(err) == fault.KindBusy {
			if !rules.OwnHolder(err) {
				r.waitForPredecessor = true
				r.delivery.ForgetPartial() // whoever has the slot may send its beginning again
			}
			r.monitor.Reached(true, false) // the server named the slot's holder
			wait.Reset()                   // an outage before it must not delay the first look at the slot
			delay = standbyPoll + wait.Delay()
		} else {
			r.monitor.Reconnects.Add(1)
			if r.ev.Reconnecting != nil {
				r.ev.Reconnecting(reconnectReason(err), err)
			}
		}
		logged := r.monitor.SetState(next.State, next.Reason, err.Error())
		r.monitor.Waits(time.Now().Add(delay))
		if next.State != status.Standby && (same == 1 && !logged || same%50 == 0) { // a standby has logged its state
			r.log.Warn().Err(err).Str("state", string(next.State)).Str("reason", next.Reason).Stringer("retry_in", delay.Round(time.Millisecond)).Int("times", same).Msg("session ended; trying again")
		}
		if !pause(ctx, deliveryCtx, delay, r.serverBack, r.tryNow) {
			return nil
		}
	}
}

// pauseFenced keeps two relays from fencing each other as fast as they are restarted. It returns false
// when a stop was asked for meanwhile.
func (r *Relay) pauseFenced(ctx, deliveryCtx context.Context, err error) bool {
	r.monitor.SetState(status.Blocked, fault.ReasonFenced, err.Error())
	return pause(ctx, deliveryCtx, r.cfg.RetryMax/2+rand.N(r.cfg.RetryMax/2+1), nil, nil)
}

// noteDrift remembers a session that ended at a drift: none comes after it.
func (r *Relay) noteDrift(ctx context.Context, err error) {
	if err != nil && r.streamed.Load() && postgres.KindOf(err) == fault.KindDrift {
		r.drift.CompareAndSwap(nil, &drift{error: err})
		r.doubts.Write(ctx, r.parts.Ledger, r.known.Origin.SystemID, r.cfg.Replication.Slot, r.cfg.Version, r.log)
	}
}

func (r *Relay) endRules() ending.Rules {
	return ending.Rules{Streamed: r.streamed.Load(), ExitWhenBlocked: r.cfg.OnBlocked == ExitWhenBlocked, OwnProcess: r.serverPID}
}

// maxAtOnce bounds sessions in a row that begin without a pause and get no further. One that had to
// drop rows lasted long. Each other one has learned something that the one before lacked: that rows
// come as text, where a transaction ends, which record is rejected. So they end after a few. One case
// does not: two transactions larger than the window, before a position that the server does not
// get; each session finds the end of one and forgets the other's.
const maxAtOnce = 16

// restartsAtOnce returns why the next session begins at once after an error.
func (r *Relay) restartsAtOnce(err error) (why string, ok bool) {
	if errors.Is(err, record.ErrBinary) {
		r.olderTypes.Met()
		return "rows from before a column's type changed: reading them as text", true
	}
	if ending.ReadPast(err) {
		return "reading rows again that came while the relay could not take them", true
	}
	return delivery.Again(err)
}

// forgetServerBack drops a token of serverBack that is older than the failure.
func (r *Relay) forgetServerBack() {
	select {
	case <-r.serverBack:
	default:
	}
}

// stopError is what Run returns once a stop was asked for.
func (r *Relay) stopError(err error) error {
	if late := r.drainBlocker.Load(); late != nil && errors.Is(err, ErrDrainCut) {
		return fmt.Errorf("%w: relay.drain_timeout (%s) expired, %s", err, r.cfg.DrainTimeout, *late)
	}
	if errors.Is(err, ErrDrainCut) || errors.Is(err, ending.ErrUnseen) {
		return err
	}
	return nil // refused, waiting, or standing by: nothing was in flight
}

// runSession makes the sink ready and runs one session. It returns nil only after a
// clean drain. until is zero, or where the reading ends in a drain that goes on.
func (r *Relay) runSession(ctx, deliveryCtx context.Context, until wal.LSN) error {
	r.ended = sessionEnd{}
	stopped := ctx
	if until != 0 {
		ctx = deliveryCtx // the session opens although a stop was asked for
	}
	if d := r.drift.Load(); d != nil {
		return d
	}
	if err := r.readySink(ctx); err != nil {
		return err
	}
	if err := r.delivery.Letters.CatchUp(ctx, rejected.Wait, r.cfg.Guarantee != ExactlyOnce); err != nil {
		return err
	}
	src, err := r.parts.Source(ctx)
	if err != nil {
		return r.slotGone(err)
	}
	r.monitor.Reached(true, false)
	err = r.checkHistory(src)
	r.serverPID = src.ServerProcess()
	if err == nil {
		err = r.checkTables(src)
	}
	if err == nil {
		r.delivery.Letters.Source(deadletter.SourceID(src.Origin().SystemID, src.Origin().Database, r.cfg.Replication.Slot))
	}
	if err != nil {
		_ = src.Close(deliveryCtx, src.Start()) // the slot's own position: nothing moves
		return err
	}
	s := newSession(r, src)
	s.until = until
	r.monitor.Begins(s.Lineage(), src.Start())
	err = s.open(ctx)
	if err == nil { // with exactly-once a letter of whoever was before counts no later than that
		err = r.delivery.Letters.CatchUp(ctx, r.cfg.handover(), true)
	}
	if err == nil && r.parts.Ledger != nil && r.cfg.Guarantee != ExactlyOnce {
		s.promised, err = promise.Open(ctx, r.cfg.handover(), r.parts.Ledger, r.cfg.resumeConfig(), r.holder, src.Origin(), src.Start(), r.log)
	}
	if err != nil {
		_ = src.Close(deliveryCtx, src.Start()) // the slot's own position: nothing moves
		return err
	}
	start, reported, finished := src.Start(), r.known.Reported, r.delivery.Finished()
	err = s.run(stopped, deliveryCtx)
	r.ended = sessionEnd{streamed: true, cause: s.cause, read: s.taken.read}
	if ending.Unreadable(err) {
		r.monitor.Unread(s.Lineage(), err)
	}
	if s.delivery.Isolates() && ending.Unreadable(err) {
		err = delivery.ErrIsolated
	}
	r.forgetServerBack()
	r.known.Reported = max(reported, wal.LSN(s.reported.Load()))
	r.progressed = r.furthest.Progressed(start, r.delivery.Finished()-finished, !s.delivery.Rules().Repeats) || r.known.Reported > reported
	return err
}

// checkTables compiles the mapping against the catalog before the first row, so
// that a mistake ends the start and not the stream.
func (r *Relay) checkTables(src Source) error {
	for _, table := range src.Tables() {
		found, err := r.parts.Router.Pin(table)
		if _, lacks := errors.AsType[*record.ColumnError](err); lacks && r.streamed.Load() {
			return &ConfigError{Err: fmt.Errorf("%w; give the table the column back, or correct outbox in the configuration and restart", err)}
		} else if err != nil {
			return &ConfigError{Err: err}
		}
		if r.streamed.Load() {
			continue
		}
		r.log.Info().Str("table", found.Table).Str("preset", found.Preset).Str("topic", found.Topic).Msg("table mapped")
		for _, warning := range found.Warnings {
			r.log.Warn().Str("table", found.Table).Msg(warning)
		}
	}
	return nil
}

// readySink builds the sink and, until the brokers answered once, asks whether
// they do. Later the client reconnects by itself while the stream continues. It asks again where the
// dead-letter topic did not keep every letter.
func (r *Relay) readySink(ctx context.Context) error {
	if r.sink == nil {
		s, err := r.parts.Sink()
		if err != nil {
			return &ConfigError{Err: err}
		}
		r.sink = s
		r.monitor.SetSink(s)
	}
	if r.monitor.SinkReached() && !r.lettersLost.Load() {
		return nil
	}
	ready, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := r.sink.Ready(ready); err != nil {
		return err
	}
	r.monitor.Reached(false, true)
	r.lettersLost.Store(false)
	return nil
}

// abandon gives up the records that the sink still holds, and keeps the sink if it can continue:
// brokers refuse an abandoned request of the same producer id that comes after the next
// session's records; of another producer id they would take it.
func (r *Relay) abandon() {
	a, able := r.sink.(sink.Abandoner)
	if able {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		fenced, err := a.Abandon(ctx)
		if err == nil {
			r.waitForPredecessor = r.waitForPredecessor || !fenced
			return
		}
		r.log.Warn().Err(err).Msg("could not abandon unanswered requests to the brokers; continuing with a new client")
	}
	r.waitForPredecessor = true
	r.dropSink()
}

// dropSink closes a sink that still holds records, so that none of them is written after the
// next holder of the slot begins.
func (r *Relay) dropSink() {
	if r.sink == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := r.sink.Close(ctx); err != nil {
		r.log.Warn().Err(err).Msg("could not close the client of the brokers")
	}
	r.sink = nil
	r.monitor.SetSink(nil)
}

// reconnectReason is an error's label in metrics.
func reconnectReason(err error) string {
	switch reason := postgres.Reason(err); reason {
	case fault.ReasonNetwork, fault.ReasonTimeout, fault.ReasonSlotInUse, fault.ReasonAuth, fault.ReasonServerShutdown:
		return reason
	}
	return "other"
}

// pause waits for d, or for a token of early or tryNow, and reports whether to continue.
func pause(ctx, deliveryCtx context.Context, d time.Duration, early, tryNow <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-early:
	case <-tryNow:
	case <-ctx.Done():
	case <-deliveryCtx.Done():
	}
	return ctx.Err() == nil && deliveryCtx.Err() == nil
}
