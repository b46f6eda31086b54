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
	"github.com/cdc-relay/cdc-relay/wording"
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
	progress *progress.Progress // as the backfill began, but for Place
	resumed  bool
	skip     struct {
		late    late  // rows that the slot has too
		present late  // rows that are in the topics already: see findPresent
		n       int64 // of these
	}

	track   progress.Track
	since   uint64        // see reading
	read    atomic.Uint64 // number of the last row that was read
	paced   progress.Pacer
	letters int64 // rows in dead letters, once the relay has ended
	failure atomic.Pointer[error]
	end     struct{ complete, failed func() } // ends the relay: all rows are acknowledged; or w.failure is set
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	held := make(chan struct{})
	go func() {
		defer close(held)
		handover.Occupy(ctx, w.temporary(w.settings.Replication.OfShard(0)), w.log)
	}()
	defer func() { cancel(); <-held }() // or the slot could not be copied
	return w.relay(ctx)
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
	if s.Progress != nil && w.ledger != nil {
		// Before the slot is made: on a disk that was put back it may begin where the former one did, and this
		// progress would count as its own.
		if err := w.ledger.Write(ctx, w.key(s.Progress), nil); err != nil {
			return err
		}
	}
	exported, err := provision.ExportSlot(ctx, w.settings.Replication, s.Temporary.Name, provision.DefaultSlotTimeout)
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
		Run: rand.Text(), Started: time.Now(), Relay: w.settings.Version,
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
	if s.Exactly {
		settled, err := w.fenceWriters(ctx, &p)
		if err != nil {
			return err
		}
		p = *settled
	}
	w.progress, w.resumed = &p, true
	w.track.Begin(p.Place)
	if _, err := w.holder.Begin(ctx, "", w.locked()...); err != nil {
		return err
	}
	w.OnStep("snapshot_taken")
	return nil
}

// awaitWriters waits until what was in the WAL at the call is visible to the next snapshot of SQL.
func (w *work) awaitWriters(ctx context.Context) error {
	return w.holder.Ask(ctx, func(q postgres.Querier, _ int) error {
		return catalog.AwaitOpen(q, provision.DefaultSlotTimeout)
	})
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

// relay runs a relay over the rows until all are acknowledged.
func (w *work) relay(ctx context.Context) error {
	cfg := w.settings
	cfg.Replication.Slot, cfg.Replication.Shard, cfg.Replication.Messages = w.progress.Slot, postgres.Shard{}, nil
	cfg.OnBlocked, cfg.AlreadySent, cfg.DetectMovedSlot = relay.ExitWhenBlocked, nil, false
	if cfg.OnReject == relay.DeadLetterOnReject {
		cfg.Kafka.DeadLetterTopic = cfg.DeadLetterTopic
	}
	if w.replay != nil {
		w.replay.configure(&cfg, w)
	}
	routes, err := router.New(cfg.Router)
	if err != nil {
		return &relay.ConfigError{Err: err}
	}
	parts := relay.Parts{
		Router: routes,
		Source: func(ctx context.Context) (relay.Source, error) { return w.open(ctx) },
		Sink: func() (sink.Sink, error) {
			made, err := relay.OpenSink(cfg, relay.Events{}, zerolog.Nop(), nil)
			if err != nil {
				return nil, err
			}
			switch s := made.(type) {
			case *kafkatx.Sink:
				return &transactional{s, w}, nil
			case *kafka.Sink:
				return &idempotent{s, w}, nil
			}
			return nil, fmt.Errorf("a sink of type %T knows nothing of a backfill", made)
		},
	}
	if cfg.OnReject == relay.DeadLetterOnReject && cfg.ParkKey {
		parts.Journal = topics.NewFollower(cfg.Kafka.Connection, cfg.DeadLetterTopic, zerolog.Nop())
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	all := make(chan struct{})
	w.end.failed, w.end.complete = stop, func() { close(all); stop() }
	w.paced = progress.NewPacer(w.Options.MaxRate)
	var events relay.Events
	if cfg.OnReject == relay.SkipOnReject {
		events.RowRejected = w.noteSkipped
	}
	r := relay.New(cfg, parts, events, zerolog.Nop()) // its words are about a slot; report and atRow have ours
	ended := make(chan struct{})
	go func() { defer close(ended); w.report(running, r) }()
	err = r.Run(running)
	stop()
	<-ended
	w.letters = r.Status().DeadLetters
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
	if failed := w.failure.Load(); failed != nil {
		return *failed
	}
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
	w.failure.CompareAndSwap(nil, &err)
	w.end.failed()
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
	err := errors.New("the connection that held the snapshot was lost; run the command again: it continues with a new snapshot")
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
func (w *work) report(ctx context.Context, r *relay.Relay) {
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
		sent := w.track.Now().Rows
		w.Out.say(w.progressLine(sent, float64(sent-before)/time.Since(began).Seconds(), seen, last))
		last = seen
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

func (w *work) progressLine(sent uint64, rate float64, seen, last walSeen) Line {
	var total int64
	for _, n := range w.counts {
		total += n.rows
	}
	if w.resumed {
		total += int64(w.progress.Rows)
	}
	text := fmt.Sprintf("%s of %d · %.0f/s", wording.Count(sent, "row"), max(total, int64(sent)), rate)
	if left := total - int64(sent); rate > 0 && left > 0 {
		text += " · ETA " + progress.Shown(progress.Seconds(float64(left)/rate))
	}
	text += " · WAL held " + progress.Size(float64(seen.held))
	line := Line{What: "progress", Rows: sent, Of: total, Rate: rate, WALHeld: seen.held}
	if seen.free >= 0 && !last.at.IsZero() {
		if lasts, ends := (progress.Budget{Limit: seen.free, WAL: float64(seen.held-last.held) / seen.at.Sub(last.at).Seconds()}).Lasts(); ends {
			text += ", lasts " + progress.Shown(lasts)
		}
		if seen.free < seen.limit/4 {
			line.What, text = "warning", text+": less than a quarter of max_slot_wal_keep_size is left"
		}
	}
	line.Text = text
	return line
}
