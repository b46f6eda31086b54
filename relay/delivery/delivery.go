package delivery

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/relay/resume"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Session is the part of a session that its delivery uses. An interrupt is handed over once, by Wait,
// TakeEnd or Block: the caller must return it.
type Session interface {
	// Wait returns nil at a signal, or the error that ends the session before it: an interrupt,
	// the loss of the source, or the end of the drain (deliveryCtx).
	Wait(deliveryCtx context.Context, signal <-chan struct{}) error

	// TakeEnd returns the error that ends the session, an interrupt or the loss of the source, or
	// nil. The end of a drain is not one.
	TakeEnd() error

	// DrainTimeout is the error of a drain that took too long: ending.ErrStopped with nothing in flight.
	DrainTimeout() error

	// Block shows the relay as blocked and waits for d, or returns the error that ends the session
	// before: ending.ErrStopped when ctx ends. needsPerson: the cause does not pass by itself.
	Block(ctx, deliveryCtx context.Context, reason string, cause error, needsPerson bool, d time.Duration) error

	// Last is the last row that was taken, and whether its transaction continues after the
	// last batch.
	Last() (row wal.Place, open bool)

	// Sending ends with an interrupt, and when the source is lost. Searching, for rejected records,
	// ends with an interrupt, and when another relay may have the slot.
	Sending() context.Context
	Searching() context.Context
}

// Start is the state in which a session begins.
type Start struct {
	Sink    sink.Sink
	Origin  wal.Origin // of the server
	LSN     wal.LSN    // of the slot
	End     wal.LSN    // of the server's WAL, read while nobody had the slot; zero: not known
	Tracker *checkpoint.Tracker

	// AlreadySent reports that Kafka already has the row's record.
	AlreadySent func(*wal.Row) bool
}

// Rules are the properties of a guarantee that a session depends on.
type Rules struct {
	// Fenced: the brokers refuse records of the slot's previous relay, so the next relay need
	// not wait for it.
	Fenced bool

	// Repeats: what was delivered and not confirmed is sent again.
	Repeats bool

	// Ordered: no record is durable for readers before an earlier one of its key.
	Ordered bool
}

// guarantee is the difference between the two guarantees: how routed rows reach the brokers, how
// a failure is handled, and up to which position the tracker's position may be confirmed. There
// are two implementations: atLeastOnce and exactlyOnce. The session calls the exported methods,
// through Delivery. Only the deliverer calls them, except Rules, Limit and ToRepeat, which are safe
// from any goroutine.
type guarantee interface {
	// Rules are constant.
	Rules() Rules

	// covers reports whether a row was delivered before this session began.
	covers(row *wal.Row) bool

	// follow takes each batch first. It returns why the session has to end: rows that it covers may be others.
	follow(b *wal.Batch) error

	// replace puts dead letters into the place of records that an earlier session found rejected or that
	// the sink refuses, or drops them; at least once it replaces none. The row's records begin with the
	// n-th of the batch. An error stops the routing at the row, which is routed again.
	replace(f *InFlight, n int, row *wal.Row) error

	// send hands the sink the records of a batch that are routed and not yet sent.
	send(f *InFlight)

	// refusedByRouter runs for a batch with a row that the router refuses; the rows before it are
	// routed. It returns the error that ends the session, or nil when all rows are sent.
	refusedByRouter(ctx, deliveryCtx context.Context, f *InFlight, refusal error) error

	// Pass takes the position of a batch without rows.
	Pass(through wal.LSN)

	// MakeRoom runs while the window is full.
	MakeRoom()

	// Recover runs at each token of Wake. If a Send has failed or the sink has given up, it returns
	// the error that ends the session, or nil when every failed record is durable.
	Recover(ctx, deliveryCtx context.Context) error

	// Renewal begins with the stream, and ticks when Renew has to run without any row; stop ends it.
	Renewal() (tick <-chan time.Time, stop func())
	Renew()

	// Finish runs when nothing more will be sent.
	Finish()

	// Unreadable runs at the end of a session whose stream ended at a row that cannot be
	// read. It returns the error to report: cause, or the error that keeps rows before the
	// unreadable one from being delivered.
	Unreadable(ctx, within context.Context, cause error) error

	// Close runs when the session waits for no answer any more.
	Close(cause error)

	// Limit is the highest position that may be confirmed, whatever is acknowledged.
	Limit(lsn wal.LSN) wal.LSN

	// ToRepeat counts acknowledged rows that the next start sends again.
	ToRepeat(stats checkpoint.Stats) int
}

// Delivery delivers the batches of one session, under its guarantee.
type Delivery struct {
	guarantee

	shared  *Shared
	session Session
	start   Start
	sink    sink.Sink
	tracker *checkpoint.Tracker

	behind bool        // the last batch was of a backlog
	held   []*InFlight // of the transaction whose commit was not read yet, with position headers

	sends          sends
	shown          shown
	partialAtStart resume.Partial // by an earlier session, as this one found it
	isolates       bool           // this session aborted rows together with one that cannot be read: the next sends them by themselves (ErrIsolated)
}

// sends are the Sends that are not answered, or failed.
type sends struct {
	outstanding     atomic.Int64  // Sends whose done has not been called
	wake            chan struct{} // one token: a Send was answered, or the sink gave up
	heartbeatFailed atomic.Bool   // a heartbeat failed, and the sink halted with it
	heartbeatOut    atomic.Bool   // heartbeats are not answered
	count           uint64        // Sends so far; numbers them, so that failed can be put in order
	buffers         sync.Pool     // of *record.Buffer

	mu     sync.Mutex
	failed []failedSend // guarded by mu; in no order
}

// shown are figures that the status reads from any goroutine.
type shown struct {
	waits       status.Moment // since when Send waits for the brokers
	acked       atomic.Int64  // records of unfinished batches that are durable
	unconfirmed atomic.Int64  // those of acked that may not be confirmed yet
}

// Open makes a session's delivery. With exactly-once it fences the relay that had the slot before
// and finds the position to continue from.
func (s *Shared) Open(ctx context.Context, session Session, start Start) (*Delivery, error) {
	d := &Delivery{shared: s, session: session, start: start, sink: start.Sink, tracker: start.Tracker}
	d.sends.wake = make(chan struct{}, 1)
	d.sends.buffers.New = func() any { return new(record.Buffer) }
	s.forget(d.Lineage(), start.LSN)
	d.partialAtStart = s.partial
	if s.cfg.Guarantee != ExactlyOnce {
		d.guarantee = &atLeastOnce{d}
		return d, nil
	}
	return d, d.takeOver(ctx)
}

// Close runs when the session waits for no answer any more.
func (d *Delivery) Close(cause error) {
	d.guarantee.Close(cause)
	d.shared.traces.Close(d.Rules().Fenced)
}

// Lineage is that of the server.
func (d *Delivery) Lineage() wal.Lineage { return d.start.Origin.Lineage() }

// SetBacklog tells the sink whether the session reads a backlog.
func (d *Delivery) SetBacklog(behind bool) {
	d.behind = behind
	if f, ok := d.sink.(sink.Gatherer); ok {
		f.SetBacklog(behind)
	}
}

// Backlog is what SetBacklog was called with last.
func (d *Delivery) Backlog() bool { return d.behind }

// Route turns the rows of a batch into records, up to the first row that cannot become a record and
// is not set aside.
func (d *Delivery) Route(f *InFlight) error {
	d.shared.schemas.Learn()
	for f.routed < len(f.batch.Rows) {
		row := &f.batch.Rows[f.routed]
		if d.covers(row) || d.start.AlreadySent(row) || d.shared.partial.Covers(row) {
			d.shared.router.SkipRow(f.buf, row)
			f.routed++
			continue
		}
		n := len(f.buf.Records)
		err := d.shared.router.Route(f.buf, row)
		if err == nil {
			err = d.replace(f, n, row)
		}
		if err != nil {
			f.buf.Records = f.buf.Records[:n]
			if err = d.setAside(f, row, d.shared.schemas.Again(err, f.read)); err != nil {
				return err
			}
		}
		f.routed++
	}
	return nil
}

// Send hands the records of a batch to the sink. refusal is what Route returned.
func (d *Delivery) Send(ctx, deliveryCtx context.Context, f *InFlight, refusal error) error {
	if refusal == nil {
		d.send(f)
	} else if err := d.refusedByRouter(ctx, deliveryCtx, f, refusal); err != nil {
		return err
	}
	if f.sent < len(f.buf.Records) {
		d.holdBack(f)
		return nil
	}
	f.countDown()
	return nil
}

// Heartbeat sends the heartbeats of now. No position depends on them: one that fails is logged,
// and rows that failed with it are recovered.
func (d *Delivery) Heartbeat(now time.Time) {
	if d.Failed() || d.sends.heartbeatOut.Load() { // brokers that are unreachable for days get one
		return
	}
	buf := new(record.Buffer)
	if err := d.shared.router.Heartbeats(buf, now); err != nil {
		d.shared.log.Warn().Err(err).Msg("heartbeat not sent")
		return
	}
	d.sends.heartbeatOut.Store(true)
	d.produce(buf.Records, func(err error) {
		d.sends.heartbeatOut.Store(false)
		if err != nil {
			d.shared.log.Warn().Err(err).Msg("heartbeat not sent")
			d.sends.heartbeatFailed.Store(true)
		}
		d.answered()
	})
	d.Renew()
}

// Outstanding reports whether a Send is not answered. Any goroutine may call it.
func (d *Delivery) Outstanding() bool { return d.sends.outstanding.Load() > 0 }

// Failed reports whether a Send was answered and records of it are not durable.
func (d *Delivery) Failed() bool {
	d.sends.mu.Lock()
	defer d.sends.mu.Unlock()
	return len(d.sends.failed) > 0
}

// Wake has one token when a Send was answered, or the sink gave up.
func (d *Delivery) Wake() <-chan struct{} { return d.sends.wake }

// Acked counts durable records of unfinished batches. Any goroutine may call it.
func (d *Delivery) Acked() int { return int(d.shown.acked.Load()) }

// Waiting is how long Send has been waiting for the brokers; false: it does not. Any
// goroutine may call it.
func (d *Delivery) Waiting(now time.Time) (time.Duration, bool) { return d.shown.waits.Ago(now) }

// Isolates reports that the session's rows have to be sent again, though it ended at a row
// that cannot be read.
func (d *Delivery) Isolates() bool { return d.isolates }

// ResendChanged reports that the next session sends the rows of an aborted transaction in another
// way: with dead letters, without some records, or isolated. A drain goes on with that session.
func ResendChanged(err error) bool {
	return errors.Is(err, errResendChanged) || errors.Is(err, ErrIsolated)
}

// RestartsAtOnce returns why the next session begins at once after an error: this process has learned
// something about the rows that it reads again, and treats them differently.
func RestartsAtOnce(err error) (why string, ok bool) {
	switch {
	case errors.Is(err, errReadAgain):
		return "reading a large transaction for the second time", true
	case errors.Is(err, resume.ErrOtherHistory):
		return "sending everything from the slot's position on", true
	case ResendChanged(err):
		return "continuing from the checkpoint", true
	}
	return "", false
}
