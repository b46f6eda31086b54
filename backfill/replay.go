package backfill

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/backfill/progress"
	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/snapshot"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/resolve"
	"github.com/cdc-relay/cdc-relay/router/schemas"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/wording"
	"github.com/rs/zerolog"
)

// Replay sends rows of a table again. It is a backfill of chosen rows without a slot of its own:
// the rows go the same way, through a relay.
//
// A row that is sent again comes after the newer rows of its key. So either it goes to a topic of
// its own (ToTopic), or that is accepted (AcceptOrder), or the slot is taken meanwhile, so that
// no relay streams: then the records of a key end with its newest row, if every newer row of the
// key is sent too (CompleteKeys), and the next run streams what commits meanwhile after them. Why
// the slot's position does not matter: rows past it that the replay has sent come again with all
// that follows them, in order.
type Replay struct {
	Settings relay.Config
	Options  ReplayOptions
	Out      Output
	Log      zerolog.Logger
	Every    time.Duration // of the progress lines; defaults to 10s

	// OnStep, if set, is called with the name of each step that is done.
	OnStep func(step string)
}

// replay is a Replay under way.
type replay struct {
	*Replay
	where  string // chosen rows, before keys are completed
	index  int
	facts  keyFacts
	routes *resolve.Router // of the plan, and of Topic
	buf    record.Buffer
	run    string
	plan   replayPlan
	beside *Beside       // nil: rows are sent again
	lost   chan struct{} // closed when the slots that it took are lost; nil: it took none
}

// RejectedError is the error of a replay that left rows out because they cannot be sent.
type RejectedError struct {
	Rows  int64
	First error // of the first of them: which row, why, and what to do about it
}

func (e *RejectedError) Error() string {
	text := wording.Count(e.Rows, "row") + " could not be sent and left out"
	if e.First == nil {
		return text
	}
	return text + ", the first: " + e.First.Error()
}

func (e *RejectedError) Unwrap() error { return e.First }

// Run prints what would be sent, and with Options.Yes sends it.
func (r *Replay) Run(ctx context.Context) error {
	settings := r.Settings.WithDefaults()
	index, err := r.Options.check(&settings)
	if err != nil {
		return err
	}
	return (&replay{Replay: r, index: index, run: r.Options.Resume}).read(ctx, settings, "replay", (*work).replayAll)
}

// read runs do over a connection that reads the rows; command is for messages.
func (r *replay) read(ctx context.Context, settings relay.Config, command string, do func(*work, context.Context) error) (err error) {
	b := &Backfill{Settings: settings, Options: Options{MaxRate: r.Options.MaxRate}, Out: r.Out, Log: r.Log, Every: r.Every, OnStep: r.OnStep}
	b.defaults()
	w := &work{Backfill: b, settings: settings, log: r.Log, replay: r}
	if w.holder, err = snapshot.OpenToRead(ctx, settings.Replication, command); err != nil {
		return said(err)
	}
	defer w.holder.Close()
	return said(do(w, ctx))
}

func (w *work) replayAll(ctx context.Context) error {
	r := w.replay
	if r.Options.Yes {
		if err := w.holder.Lock(ctx, w.Out.step); err != nil {
			return err
		}
	}
	if err := r.choose(ctx, w); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if r.Options.Yes && r.Options.takesSlot() {
		give, err := w.takeSlots(ctx, cancel)
		if err != nil {
			return err
		}
		defer give()
		if err := w.awaitWriters(ctx); err != nil { // a relay may have sent rows that are not visible yet
			return err
		}
	}
	if _, err := w.holder.Begin(ctx, "", w.locked()...); err != nil { // after the slot is taken: what commits later is the stream's
		return err
	}
	w.OnStep("snapshot_taken")
	if err := r.exact(w); err != nil {
		return err
	}
	if err := r.survey(ctx, w); err != nil {
		return err
	}
	r.show(w)
	if err := r.refusal(); err != nil || !r.Options.Yes || r.plan.rows == 0 {
		return err
	}
	return w.sendAgain(ctx)
}

// takeSlots streams from the slots and takes nothing, so that no relay does, until give is called.
// A slot that is lost meanwhile ends the replay.
func (w *work) takeSlots(ctx context.Context, lost context.CancelCauseFunc) (give func(), err error) {
	streaming, stop := context.WithCancel(ctx)
	var ended []chan struct{}
	var losing sync.Once
	w.replay.lost = make(chan struct{})
	give = func() {
		stop()
		for _, e := range ended {
			<-e
		}
	}
	for _, shard := range w.settings.Replication.Shards() {
		shard.ApplicationName = "cdc-relay replay"
		s, err := replication.Open(ctx, shard, replication.Options{}, zerolog.Nop())
		if err != nil {
			give()
			if e, ok := errors.AsType[*fault.Error](err); ok && e.Kind == fault.KindBusy {
				e.Hint = "stop the relay while the rows are sent, or use --to-topic or --accept-order"
			}
			return nil, err
		}
		end := make(chan struct{})
		ended = append(ended, end)
		go func() {
			defer close(end)
			start := s.StartLSN()
			aborted := context.AfterFunc(streaming, s.Abort)
			err := s.Run(streaming, make(chan *wal.Batch), func() wal.LSN { return start })
			aborted()
			if streaming.Err() == nil {
				losing.Do(func() { close(w.replay.lost) }) // first: a stop alone would let the relay drain
				lost(fmt.Errorf("the connection that held %s was lost, and a relay may stream again: run the command again (%w)", postgres.SlotSubject(shard.Slot), err))
			}
			closing, done := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer done()
			_ = s.Close(closing, start) // nothing was confirmed
		}()
	}
	w.OnStep("slots_taken")
	return give, nil
}

// sendAgain has all chosen rows acknowledged.
func (w *work) sendAgain(ctx context.Context) error {
	r := w.replay
	origin, err := w.history(ctx)
	if err != nil {
		return err
	}
	slot := baseSlot(w.settings.Replication) + "-replay"
	if w.settings.KeepsPositions() {
		if w.ledger, err = topics.NewLedger(w.settings.Kafka.Connection, w.settings.CheckpointTopic); err != nil {
			return err
		}
		defer w.ledger.Close()
	}
	if r.run != "" {
		if err := w.resumeReplay(ctx, origin, slot); err != nil {
			return err
		}
	} else if err := w.beginReplay(ctx, origin, slot); err != nil {
		return err
	}
	err = w.watched(ctx, w.relay)
	if err != nil {
		if lost := context.Cause(ctx); lost != nil && !errors.Is(lost, context.Canceled) {
			err = lost
		}
		if w.ledger != nil {
			r.Out.warn("it goes on with the same flags and --resume " + w.progress.Run)
		}
		return err
	}
	if w.ledger != nil {
		if err := w.ledger.Write(ctx, w.key(w.progress), nil); err != nil {
			r.Out.warn("all rows are sent; the record of the progress stays in the topic: " + err.Error())
		}
	}
	done := w.track.Now()
	sent := int64(done.Rows) - int64(done.Skipped) - r.plan.leftOut
	r.Out.say(Line{What: "result", Rows: uint64(max(0, sent)), Text: fmt.Sprintf("sent %s again, run %s", wording.Count(max(0, sent), "row"), w.progress.Run)})
	if done.Skipped > 0 {
		return &RejectedError{int64(done.Skipped), errors.New(done.First)}
	}
	return nil
}

// beginReplay writes where the run begins.
func (w *work) beginReplay(ctx context.Context, origin wal.Origin, slot string) error {
	t := &w.tables[0]
	w.progress = &progress.Progress{
		System: origin.SystemID, Timeline: origin.Timeline, Began: origin.Begin(origin.Timeline), End: w.replay.plan.end, Slot: slot, Point: w.replay.plan.point, Run: rand.Text(), Started: time.Now(), Relay: w.settings.Version,
		Tables: []progress.TableProgress{{Table: t.Name.String(), OID: t.OID, Order: t.Order.Names(), Shape: w.replay.shape(w), Last: w.replay.plan.last}},
	}
	w.replay.run = w.progress.Run
	if err := w.writeProgress(ctx, w.progress); err != nil {
		return err
	}
	w.OnStep("begun")
	w.Out.say(Line{What: "step", Text: "run " + w.progress.Run})
	return nil
}

// resumeReplay continues after the last row of a run.
func (w *work) resumeReplay(ctx context.Context, origin wal.Origin, slot string) error {
	if w.ledger == nil {
		return usage("--resume: the configuration keeps no positions in Kafka (relay.detect_moved_slot)")
	}
	value, err := w.ledger.Committed(ctx, stored.ReplayKey(w.replay.run, origin.SystemID, slot))
	if err != nil {
		return err
	}
	if value == nil {
		return usage("--resume %s: there is no such run that is not complete", w.replay.run)
	}
	p, err := progress.Parse(value)
	if err != nil {
		return progress.Refuse(err, "run the version that wrote it")
	}
	if len(p.Tables) != 1 || p.Tables[0].Shape != w.replay.shape(w) {
		return usage("--resume %s: that run had other rows, another topic or another mapping; use the flags that it began with", p.Run)
	}
	if !w.tables[0].Order.Total {
		return progress.Refuse(errors.New("the table has no unique key without NULLs, so that a run cannot be continued"), "start again without --resume")
	}
	if w.settings.Guarantee == relay.ExactlyOnce {
		if p, err = w.fenceWriters(ctx, p); err != nil {
			return err
		}
	}
	if err := w.goesOn(p, origin); err != nil {
		return progress.Refuse(fmt.Errorf("run %s cannot be continued: %w", p.Run, err), "start again without --resume, which sends all rows again")
	}
	w.progress, w.resumed = p, true
	w.track.Begin(p.Place)
	return nil
}

// goesOn refuses to go on where the rows may be others than those that the call before saw. The progress says
// from now on what this call sees.
func (w *work) goesOn(p *progress.Progress, here wal.Origin) error {
	end := w.replay.plan.end
	if err := p.Continues(here, end); err != nil {
		return err
	}
	p.Timeline, p.Began, p.End = here.Timeline, here.Begin(here.Timeline), end
	return nil
}

// history is that of the server. Where no replication connection can be made, as without the right to replicate,
// through a pooler, or while others have all that the server allows, it is the present timeline alone.
func (w *work) history(ctx context.Context) (wal.Origin, error) {
	here, err := catalog.ReadOrigin(ctx, w.settings.Replication)
	if err != nil && (postgres.KindOf(err) != fault.KindRetry || postgres.Reason(err) == fault.ReasonServerLimit) {
		return w.holder.Origin(), nil
	}
	if err == nil && here.Lineage() != w.holder.Origin().Lineage() {
		err = &fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonForeignServer, Op: "read the server's history", Err: errors.New("two connections led to two servers, or to one before and after a failover"), Hint: "run it again"}
	}
	return here, err
}

// shape distinguishes what would send other rows, or as other records.
func (r *replay) shape(w *work) string {
	return shape(&w.tables[0], &w.settings) + fmt.Sprintf(" %q %q", r.Options.Topic, r.Options.ToTopic)
}

// configure has the relay go on after rows that cannot be sent: nothing waits for a replay.
func (r *replay) configure(cfg *relay.Config, w *work) {
	if r.beside != nil {
		besideConfigure(cfg)
		return
	}
	cfg.OnReject, cfg.ParkKey = relay.SkipOnReject, false
	if r.Options.Topic != "" {
		cfg.AlreadySent, cfg.AlreadySentIn = r.elsewhere, wal.Origin{SystemID: w.progress.System, Timeline: w.progress.Timeline}
	}
}

// elsewhere reports a row whose record goes to another topic than the one that is meant.
func (r *replay) elsewhere(row *wal.Row) bool {
	topic, err := r.topicOf(context.Background(), row)
	return err == nil && topic != r.Options.Topic
}

func (r *replay) topicOf(ctx context.Context, row *wal.Row) (string, error) {
	r.buf.Reset()
	err := r.routes.Route(ctx, &r.buf, row)
	if need, ok := errors.AsType[*schemas.Unmet](err); ok { // its topic is known all the same
		return need.Topic, nil
	}
	if err != nil {
		return "", err
	}
	if len(r.buf.Records) == 0 {
		return "", nil
	}
	return r.buf.Records[0].Topic, nil
}

// stamp gives records the header of the run, and the topic that they go to. Records are sent again
// after a failure: those that have it stay as they are.
func (r *replay) stamp(records []record.Record) {
	for i := range records {
		rec := &records[i]
		if n := len(rec.Headers); n > 0 && rec.Headers[n-1].Key == r.header() {
			continue
		}
		headers := make([]record.Header, 0, len(rec.Headers)+1) // what the buffer has after them is another record's
		rec.Headers = append(append(headers, rec.Headers...), record.Header{Key: r.header(), Value: []byte(r.run)})
		if r.Options.ToTopic != "" {
			rec.Topic = r.Options.ToTopic
		}
	}
}

// header marks the records.
func (r *replay) header() string {
	if r.beside != nil {
		return record.HeaderBackfill
	}
	return record.HeaderReplay
}

// progress is the line of a run under way.
func (r *replay) progress(sent, before uint64, began time.Time) Line {
	rate := float64(sent-before) / time.Since(began).Seconds()
	return Line{What: "progress", Rows: sent, Of: r.plan.rows, Rate: rate, Text: fmt.Sprintf("%s of %d · %.0f/s", wording.Count(sent, "row"), r.plan.rows, rate)}
}
