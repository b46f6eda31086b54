package relay

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/relay/delivery"
	"github.com/cdc-relay/cdc-relay/relay/promise"
	"github.com/cdc-relay/cdc-relay/relay/rejected"
	"github.com/cdc-relay/cdc-relay/relay/resume"
	"github.com/cdc-relay/cdc-relay/relay/retry"
	"github.com/cdc-relay/cdc-relay/relay/schemas"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/rs/zerolog"
)

// Source is what a session needs of replication; *replication.Stream satisfies it. Run and Close are
// called once, in this order, or Close alone. Any goroutine calls the others, at any time.
type Source interface {
	StartLSN() wal.LSN       // the slot's position: everything that commits at or after it is sent
	Origin() wal.Origin      // of its positions
	ServerProcess() int      // the server's process that has the slot for this stream; zero: not known
	Tables() []*wal.Relation // as they were at the start, in the order of the configuration
	Received() wal.LSN       // the highest position that was read
	ServerEnd() wal.LSN      // the highest position that the server named: before Run the end of its WAL, from when nobody had the slot; zero: not known
	Silent() time.Duration   // since the server was last heard; zero while nobody listens

	// Run sends batches in order until intake ends or Options.Until is reached, and then returns nil, at
	// the end of a transaction. Else the error has a *fault.Error in it, or is wal.ErrReadPast. confirmed
	// is the position to report: Run asks at least once a second, and may go on until Close.
	Run(intake context.Context, out chan<- *wal.Batch, confirmed func() wal.LSN) error

	Lost() <-chan struct{} // closed when the slot is not held any more after Run returned
	Abort()                // makes Run return at once; what it did not hand out is read again

	// Close reports confirmed for the last time. An error means that the server may not know it; the
	// connection is closed in any case.
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

// Relay streams one slot to one sink. Run is called once; Status, Abort, TryNow and
// AlreadySentRows are safe from any goroutine at any time.
type Relay struct {
	cfg   Config
	parts Parts
	ev    Events
	log   zerolog.Logger

	// Run's goroutine owns the fields from here to shared.
	sink               sink.Sink
	furthest           retry.Furthest
	progressed         bool       // the last session got further than every session before it
	ended              sessionEnd // the last session
	holder             string     // names this process among all that had the slot
	known              resume.Known
	serverPID          int  // process of the server that the last session streamed from
	waitForPredecessor bool // records of another producer may be on their way: of another relay, or of a client that was dropped
	lastNotices        time.Time
	shared             *delivery.Shared // what sessions leave to each other
	schemas            *schemas.Keeper  // safe from any goroutine

	drainBlocker atomic.Pointer[string] // what held up the drain when DrainTimeout expired; nil: it did not expire
	aborted      chan struct{}          // closed by Abort
	abort        sync.Once
	serverBack   chan struct{} // one token: the probe reached a server that it had not reached before
	tryNow       chan struct{} // TryNow sends; who pauses before another attempt receives, and tries at once

	drift        atomic.Pointer[drift] // set once, by the probe or the stream
	noDriftUntil wal.LSN               // end of the WAL when the probe last saw no change; used only by the probe
	streamed     atomic.Bool           // streaming began at least once
	lettersLost  atomic.Bool           // the dead-letter topic did not keep every letter when a session ran
	olderTypes   resume.OlderTypes     // used only by Run's goroutine
	alreadySent  atomic.Int64          // rows that are not sent, because Config.AlreadySent knows their records
	doubts       promise.Doubts        // records once that rows may be missing (noteDrift); used only by Run's goroutine

	monitor *status.Monitor
	session atomic.Pointer[session] // nil between sessions
}

// New joins given parts. It starts nothing.
func New(cfg Config, parts Parts, ev Events, log zerolog.Logger) *Relay {
	r := &Relay{cfg: cfg.WithDefaults(), parts: parts, ev: ev, log: log, aborted: make(chan struct{}), serverBack: make(chan struct{}, 1), tryNow: make(chan struct{})}
	r.holder = promise.NewHolder()
	r.monitor = status.NewMonitor(status.Pipeline{
		Name: r.cfg.Pipeline, Version: r.cfg.Version, Guarantee: string(r.cfg.Guarantee),
		Slot: r.cfg.Replication.Slot, Publication: r.cfg.Replication.Publication, WindowBytes: r.cfg.MaxInFlightBytes, LookEvery: r.cfg.ProbeInterval,
	}, log, ev.StateChanged)
	var journal rejected.Journal
	if r.cfg.OnReject == DeadLetterOnReject && r.cfg.ParkKey {
		journal = parts.Journal
	}
	r.schemas = schemas.New(parts.Router.Registry(), schemas.Config{Refresh: r.cfg.SchemaRefresh, RetryMin: r.cfg.RetryMin, RetryMax: r.cfg.RetryMax, Asked: ev.SchemaAsked}, log)
	r.shared = delivery.New(r.cfg.deliveryConfig(), parts.Router, r.schemas, journal, r.monitor, ev.Events, log)
	return r
}

// Run streams until ctx ends, or up to Config.Stream.Until, then drains, and returns nil when
// nothing was left in flight. A *ConfigError, *RefusedError or *BlockedError means that a restart
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
	background.Go(func() { r.shared.Letters.Run(deliveryCtx, r.log) })

	err := r.loop(ctx, deliveryCtx)
	r.shared.Rejected.Flush(time.Now(), true)
	endDrain() // and a probe that is under way
	r.dropSink()
	return err
}

// Status is a consistent snapshot.
func (r *Relay) Status() status.Status {
	st := r.monitor.Status()
	st.ParkedKeys = r.shared.Letters.Keys()
	st.LoseLetters(r.cfg.DeadLetterTopic, r.shared.Letters.Waiting(), time.Now())
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
