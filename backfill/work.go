package backfill

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/backfill/handover"
	"github.com/cdc-relay/cdc-relay/backfill/progress"
	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/postgres/snapshot"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/setup"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/cdc-relay/cdc-relay/sink/kafkatx"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/rs/zerolog"
)

// work is a backfill under way.
type work struct {
	*Backfill
	settings relay.Config
	log      zerolog.Logger
	holder   *snapshot.Holder
	ledger   *topics.Ledger // nil: no progress is kept

	tables   []snapshot.Selection
	choices  []choice // parallel to tables
	counts   []counted
	warnings []string

	replay   *replay            // nil: rows from before a slot
	online   *online            // nil: the rows of one snapshot, before anything is streamed
	progress *progress.Progress // as the backfill began, but for Place; online, as the bucket at work began. Run's goroutine replaces it, never while a relay is at work
	resumed  bool               // rows before the place of track are acknowledged: it is read on from there, to TableProgress.Last. Online, in the bucket at work
	skip     struct {
		late    late  // rows that the slot has too
		present late  // rows that are in the topics already: see findPresent
		n       int64 // of these
	}

	track  progress.Track
	since  uint64        // see reading
	read   atomic.Uint64 // number of the last row that was read
	paced  progress.Pacer
	relays struct {
		current atomic.Pointer[relay.Relay] // the one at work
		letters int64                       // rows in dead letters, of those that have ended
	}
	end struct {
		complete, failed func() // end the relay: all rows are acknowledged; or failure is set
		failure          atomic.Pointer[error]
	}
}

// act does a step, and those that follow from it.
func (b *Backfill) act(ctx context.Context, w *work, s *progress.State, step progress.Step) error {
	if step == progress.Nothing {
		return nil
	}
	made := setup.New(b.Settings, b.Settings.Version,
		func(format string, args ...any) { b.Out.say(Line{What: "step", Text: fmt.Sprintf(format, args...)}) },
		func(format string, args ...any) { b.Out.warn(fmt.Sprintf(format, args...)) })
	if err := made.Prepare(ctx, b.Prepare, false); err != nil {
		return err
	}
	if s.Keeps {
		var err error
		if w.ledger, err = topics.NewLedger(b.Settings.Kafka.Connection, b.Settings.CheckpointTopic); err != nil {
			return err
		}
		defer w.ledger.Close()
	}
	if step != progress.Finish {
		if err := w.send(ctx, s, step); err != nil {
			return err
		}
	} else if w.progress = s.Progress; w.progress == nil {
		w.progress = &progress.Progress{System: s.System, Timeline: s.Timeline, Point: s.Temporary.Confirmed}
	}
	return w.finish(ctx, s)
}

// send has all rows acknowledged.
func (w *work) send(ctx context.Context, s *progress.State, step progress.Step) error {
	var err error
	switch step {
	case progress.Anew:
		if err = w.drop(ctx, s.Temporary.Name); err == nil {
			err = w.begin(ctx, s)
		}
	case progress.Resume:
		err = w.resume(ctx, s)
	default:
		err = w.begin(ctx, s)
	}
	if err != nil {
		return err
	}
	if w.online != nil {
		return w.watched(ctx, w.sendBuckets)
	}
	if w.resumed && s.Exactly {
		if err := w.findLate(ctx); err != nil {
			return err
		}
	}
	if w.Options.SkipPresent {
		if err := w.findPresent(ctx); err != nil {
			return err
		}
	}
	return w.watched(ctx, func(ctx context.Context) error { return w.occupied(ctx, w.relay) })
}

// occupied does something while the backfill's slot is in use.
func (w *work) occupied(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	held := make(chan struct{})
	go func() {
		defer close(held)
		handover.Occupy(ctx, w.temporary(w.settings.Replication.OfShard(0)), w.log)
	}()
	defer func() { cancel(); <-held }() // or the slot could not be copied, or streamed from
	return do(ctx)
}

// drop drops the backfill's slot.
func (w *work) drop(ctx context.Context, name string) error {
	return handover.Drop(ctx, w.holder, name)
}

// begin makes the slot, takes its snapshot, and writes where the backfill begins.
func (w *work) begin(ctx context.Context, s *progress.State) error {
	begun := slices.Clone(s.Tables)
	for i := range begun {
		as, err := handover.Published(ctx, w.holder, w.settings.Replication, begun[i].OID)
		if err != nil {
			return err
		}
		begun[i].Published = as
	}
	// Before the slot is made: on a disk that was put back it may begin where the former one did, and the progress of
	// that would count as its own.
	run := rand.Text()
	if err := w.writeProgress(ctx, s.Announced(baseSlot(w.settings.Replication), run, w.settings.Version, time.Now())); err != nil {
		return err
	}
	var began *progress.Online
	if w.online != nil {
		var err error
		if began, err = w.beginOnline(ctx, s); err != nil {
			return err
		}
	}
	told := w.tellsOfWaiting()
	exported, err := provision.ExportSlot(ctx, w.settings.Replication, s.Temporary.Name, provision.DefaultSlotTimeout)
	told()
	if err != nil {
		return err
	}
	defer exported.Close()
	w.OnStep("slot_made")
	shown, err := w.holder.Begin(ctx, exported.Snapshot, w.locked()...)
	if err != nil {
		return err
	}
	w.OnStep("snapshot_taken")
	w.progress = &progress.Progress{
		System: s.System, Timeline: s.Timeline, Slot: baseSlot(w.settings.Replication), Point: exported.Point, Snapshot: shown,
		Run: run, Started: time.Now(), Relay: w.settings.Version,
	}
	if w.online != nil {
		if err := w.firstBucket(ctx, began); err != nil {
			return err
		}
	}
	reader, err := w.holder.Reader(ctx)
	if err != nil {
		return err
	}
	defer reader.Close()
	for i := range w.tables {
		t := &w.tables[i]
		last, err := reader.Last(ctx, t)
		if err != nil {
			return err
		}
		begun[i].Last = last
	}
	w.progress.Tables = begun
	if err := w.writeProgress(ctx, w.progress); err != nil {
		return err
	}
	w.OnStep("begun")
	w.Out.say(Line{What: "step", Text: fmt.Sprintf("made slot %q at %s", s.Temporary.Name, exported.Point)})
	return nil
}

// resume takes a new snapshot, and continues after the last place. The first one was made of the
// WAL, and may have rows of commits that are not visible yet: they are waited for.
func (w *work) resume(ctx context.Context, s *progress.State) error {
	if err := w.awaitWriters(ctx); err != nil {
		return err
	}
	p := *s.Progress
	if w.online != nil {
		if err := w.refuseOtherServer(ctx, &p); err != nil {
			return err
		}
	}
	if s.Exactly {
		settled, err := w.fenceWriters(ctx, &p)
		if err != nil {
			return err
		}
		p = *settled
	}
	w.progress, w.resumed = &p, true
	w.track.Begin(p.Place)
	if w.online != nil {
		return w.resumeOnline(ctx)
	}
	if _, err := w.holder.Begin(ctx, "", w.locked()...); err != nil {
		return err
	}
	w.OnStep("snapshot_taken")
	return nil
}

// awaitWriters waits until what was in the WAL at the call is visible to the next snapshot of SQL.
func (w *work) awaitWriters(ctx context.Context) error {
	defer w.tellsOfWaiting()()
	return w.holder.Ask(ctx, func(q postgres.Querier, _ int) error {
		return catalog.AwaitOpen(q, provision.DefaultSlotTimeout)
	})
}

// tellsOfWaiting says after a while that transactions are waited for, unless what it returns is called before.
func (w *work) tellsOfWaiting() (ended func()) {
	timer := time.AfterFunc(2*time.Second, func() {
		w.Out.say(Line{What: "step", Text: fmt.Sprintf("waiting for the transactions that are open, for each up to %s", provision.DefaultSlotTimeout)})
	})
	return func() { timer.Stop() }
}

// tellsOfSlot says after a while whose connection still uses a slot, unless what it returns is called before.
func (w *work) tellsOfSlot(ctx context.Context, name string) (ended func()) {
	done := make(chan struct{})
	timer := time.AfterFunc(2*time.Second, func() {
		defer close(done)
		_ = w.holder.Ask(ctx, func(q postgres.Querier, version int) error {
			slots, err := provision.ReadSlots(q, version, name)
			if err == nil && slots[0].Active {
				w.Out.step(fmt.Sprintf("waiting until the server ends the connection of an earlier call, which uses %s: pid %d", postgres.SlotSubject(name), slots[0].ActivePID))
			}
			return err // which whoever waits for the slot sees, too
		})
	})
	return func() {
		if !timer.Stop() {
			<-done
		}
	}
}

// fenceWriters shuts out whoever may still write for the backfill, and reads what was committed.
func (w *work) fenceWriters(ctx context.Context, p *progress.Progress) (*progress.Progress, error) {
	value, err := w.shutOut(ctx, p.System, p.Slot, w.key(p))
	if err != nil {
		return nil, err
	}
	settled, err := progress.Parse(value)
	if err == nil && settled.Run != p.Run {
		err = errors.New("another backfill has written its progress; run the command again")
	}
	if err != nil {
		return nil, progress.Refuse(err, "find out who else runs `cdc-relay backfill`")
	}
	return settled, nil
}

// shutOut ends the Kafka transaction of whoever may still write for a slot, and returns the committed value
// of a key of the checkpoint topic; nil if there is none.
func (b *Backfill) shutOut(ctx context.Context, system, slot, key string) ([]byte, error) {
	tx, err := kafkatx.New(kafkatx.Config{Config: b.Settings.Kafka, CheckpointTopic: b.Settings.CheckpointTopic}, zerolog.Nop())
	if err != nil {
		return nil, err
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = tx.Close(ending)
	}()
	return tx.Open(ctx, sink.Holder{ID: stored.TransactionalID(system, slot), Key: key, Lost: func(error) {}})
}

// temporary is the configuration of the backfill's slot, as one slot that shards know nothing of.
func (w *work) temporary(shard postgres.Config) postgres.Config {
	shard.Slot, shard.Shard, shard.Messages = w.settings.Replication.BackfillSlot(), postgres.Shard{}, nil
	shard.ApplicationName = "cdc-relay backfill"
	return shard
}

// relaySettings are those of a relay that is at work before there is a configured slot.
func (w *work) relaySettings() relay.Config {
	cfg := w.settings
	cfg.Replication.Slot, cfg.Replication.Shard, cfg.Replication.Messages = w.progress.Slot, postgres.Shard{}, nil
	cfg.OnBlocked, cfg.AlreadySent, cfg.DetectMovedSlot = relay.ExitWhenBlocked, nil, false
	if cfg.OnReject == relay.DeadLetterOnReject {
		cfg.Kafka.DeadLetterTopic = cfg.DeadLetterTopic
	}
	return cfg
}

// parts are a relay's, but for its source.
func (w *work) parts(cfg relay.Config, log zerolog.Logger, idempotently func(*kafka.Sink) sink.Sink, inTransactions func(*kafkatx.Sink) sink.Sink) (relay.Parts, error) {
	routes, err := router.New(cfg.Router)
	if err != nil {
		return relay.Parts{}, &relay.ConfigError{Err: err}
	}
	parts := relay.Parts{Router: routes, Sink: func() (sink.Sink, error) {
		made, err := relay.OpenSink(cfg, relay.Events{}, log, nil)
		if err != nil {
			return nil, err
		}
		switch s := made.(type) {
		case *kafkatx.Sink:
			return inTransactions(s), nil
		case *kafka.Sink:
			return idempotently(s), nil
		}
		return nil, fmt.Errorf("a sink of type %T knows nothing of a backfill", made)
	}}
	if cfg.OnReject == relay.DeadLetterOnReject && cfg.ParkKey {
		parts.Journal = topics.NewFollower(cfg.Kafka.Connection, cfg.DeadLetterTopic, log)
	}
	return parts, nil
}

// watched runs do with progress lines. fail ends it, and its error is then that of fail.
func (w *work) watched(ctx context.Context, do func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	w.end.failed = stop
	reporting := make(chan struct{})
	go func() { defer close(reporting); w.report(ctx) }()
	defer func() { stop(); <-reporting }()
	err := do(ctx)
	if failed := w.end.failure.Load(); err != nil && failed != nil {
		return *failed
	}
	return err
}

// relay runs a relay over the rows until all are acknowledged.
func (w *work) relay(ctx context.Context) error {
	cfg := w.relaySettings()
	if w.replay != nil {
		w.replay.configure(&cfg, w)
	}
	parts, err := w.parts(cfg, zerolog.Nop(), func(s *kafka.Sink) sink.Sink { return &idempotent{s, w} }, func(s *kafkatx.Sink) sink.Sink { return &transactional{s, w} })
	if err != nil {
		return err
	}
	parts.Source = func(ctx context.Context) (relay.Source, error) { return w.open(ctx) }
	running, stop := context.WithCancel(ctx)
	defer stop()
	all := make(chan struct{})
	w.end.complete = func() { close(all); stop() }
	w.paced = progress.NewPacer(w.Options.MaxRate)
	var events relay.Events
	if cfg.OnReject == relay.SkipOnReject {
		events.RowRejected = w.noteSkipped
	}
	r := relay.New(cfg, parts, events, zerolog.Nop()) // its words are about a slot; report and atRow have ours
	w.relays.current.Store(r)
	err = r.Run(running)
	w.relays.current.Store(nil)
	w.relays.letters += r.Status().DeadLetters
	select {
	case <-all:
	default:
		return w.unfinished(ctx, err)
	}
	if err != nil { // all is acknowledged; later errors do not matter
		w.log.Warn().Err(err).Msg("end of the relay of old rows")
	}
	w.OnStep("sent")
	return nil
}

// unfinished is why not all rows are acknowledged.
func (w *work) unfinished(ctx context.Context, err error) error {
	if blocked, ok := errors.AsType[*relay.BlockedError](err); ok {
		return &relay.BlockedError{Reason: blocked.Reason, Err: w.atRow(blocked.Err)}
	}
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.New("the relay of old rows ended early; run the command again")
}

// fail ends the work.
func (w *work) fail(err error) {
	w.end.failure.CompareAndSwap(nil, &err)
	if w.end.failed != nil { // nothing runs yet
		w.end.failed()
	}
}

// holdPatience is how long the server may take to show that the snapshot is held. A question that is
// cut off ends the connection, and the snapshot with it.
const holdPatience = 30 * time.Second

// holds refuses to go on without the snapshot.
func (w *work) holds() error {
	asking, cancel := context.WithTimeout(context.Background(), holdPatience)
	defer cancel()
	if w.holder.Alive(asking) {
		return nil
	}
	err := errors.New("the connection that holds the lock and the snapshot of the backfill was lost; run the command again, which continues")
	w.fail(err)
	return err
}

// locked are the tables that have to stay as they are.
func (w *work) locked() []*snapshot.Table {
	all := make([]*snapshot.Table, len(w.tables))
	for i := range w.tables {
		all[i] = w.tables[i].Table
	}
	return all
}

// total reports whether the orders of all tables are.
func (w *work) total() bool {
	return !slices.ContainsFunc(w.tables, func(t snapshot.Selection) bool { return !t.Order.Total })
}

// relations are what the relay checks its mapping with.
func (w *work) relations() []*wal.Relation {
	all := make([]*wal.Relation, len(w.tables))
	for i := range w.tables {
		all[i] = w.tables[i].Relation
	}
	return all
}

// bounded reports whether rows are read up to the last one of the first snapshot. The first attempt
// reads its whole snapshot; so does a replay that goes on with the slot taken, since a relay may have
// streamed between the two, and each key has to end with its newest row.
func (w *work) bounded() bool {
	first := w.replay == nil || w.replay.beside != nil // rows are sent for the first time
	return w.resumed && (first || !w.replay.Options.takesSlot())
}

// bound is up to where rows are read; nil: to the end.
func (w *work) bound(last snapshot.Tuple) snapshot.Tuple {
	if w.bounded() {
		return last
	}
	return nil
}

// writeProgress writes a progress without a transaction.
func (w *work) writeProgress(ctx context.Context, p *progress.Progress) error {
	if w.ledger == nil {
		return nil
	}
	return w.ledger.Write(ctx, w.key(p), p.Encode())
}

// key is where the topic has the progress.
func (w *work) key(p *progress.Progress) string {
	if w.replay != nil && w.replay.beside == nil {
		return stored.ReplayKey(p.Run, p.System, p.Slot)
	}
	return stored.BackfillKey(p.System, p.Slot)
}

// write writes the present place. With exactly-once the transactions do.
func (w *work) write(ctx context.Context) {
	if w.settings.Guarantee == relay.ExactlyOnce {
		return
	}
	if err := w.writeProgress(ctx, w.progress.At(w.track.Now())); err != nil && ctx.Err() == nil {
		w.log.Warn().Err(err).Msg("the progress of the backfill is not written; an interruption now would send more rows again")
	}
}

// report shows how far it is, and ends the work when the slot is lost.
func (w *work) report(ctx context.Context) {
	tick := time.NewTicker(w.Every)
	defer tick.Stop()
	began, before := time.Now(), w.track.Now().Rows
	var last walSeen
	said := ""
	var beside *snapshot.Holder // a question that is cut off ends its connection, and no snapshot with it
	defer func() { beside.Close() }()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		var seen walSeen
		var err error
		if w.replay != nil {
			w.Out.say(w.replay.progress(w.track.Now().Rows, before, began))
			continue
		}
		if beside == nil {
			beside, err = snapshot.Open(ctx, w.settings.Replication)
		}
		if err == nil {
			seen, err = w.walHeld(ctx, beside)
		}
		if err != nil {
			beside.Close()
			beside = nil
			if postgres.Reason(err) == fault.ReasonSlotLost || postgres.Reason(err) == fault.ReasonSlotMissing {
				w.fail(progress.Refuse(err, "run the command again: it starts from the beginning with a new slot"))
			}
			continue
		}
		if w.holds() != nil { // a reader may go on for long with what it was sent before
			return
		}
		w.Out.say(w.progressLine(pace{w.track.Now().Rows, before, time.Since(began)}, seen, last))
		last = seen
		r := w.relays.current.Load()
		if r == nil {
			continue
		}
		if st := r.Status(); st.State != status.Streaming && st.Message != "" && st.Message != said {
			said = st.Message
			w.Out.warn(said)
		}
	}
}

// walSeen is a look at what the slot holds.
type walSeen struct {
	at         time.Time
	held, free int64 // free is negative without max_slot_wal_keep_size
	limit      int64
}

func (w *work) walHeld(ctx context.Context, beside *snapshot.Holder) (seen walSeen, err error) {
	seen = walSeen{at: time.Now(), free: -1}
	limit, written, err := walWritten(ctx, beside)
	if err != nil {
		return seen, err
	}
	seen.limit = limit
	name := w.settings.Replication.BackfillSlot()
	err = beside.Ask(ctx, func(q postgres.Querier, version int) error {
		slots, err := provision.ReadSlots(q, version, name)
		if err != nil {
			return err
		}
		if slots[0].Err != nil {
			return slots[0].Err
		}
		if !slots[0].Exists {
			return gone(name)
		}
		seen.held = written - int64(slots[0].Restart)
		if slots[0].SafeWAL != nil {
			seen.free = *slots[0].SafeWAL
		}
		return nil
	})
	return seen, err
}
