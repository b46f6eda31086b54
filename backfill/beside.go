package backfill

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/backfill/progress"
	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/wording"
	"github.com/rs/zerolog"
)

// Beside sends chosen rows beside a relay that streams from the configured slot: those from
// before a slot that was made without a backfill, or of a gap. It touches neither slot nor relay.
//
// Newer rows of a key may be in Kafka already, and nothing puts older ones before them. What is
// promised is: each chosen row that the snapshot at the beginning shows is sent, marked, in order
// among themselves. One snapshot lasts for all of a call: with a snapshot for each chunk a row
// that is deleted meanwhile would be left out, and one that commits meanwhile be sent twice.
//
// An interrupted call continues as a backfill does, from the last place to the last one of the
// first snapshot. What commits between the two calls and lies in that range is sent too.
type Beside struct {
	Settings relay.Config
	Options  BesideOptions
	Out      Output
	Log      zerolog.Logger
	Every    time.Duration // of the progress lines; defaults to 10s

	// OnStep, if set, is called with the name of each step that is done.
	OnStep func(step string)
}

// BesideOptions say which rows are sent, and what the operator accepts.
type BesideOptions struct {
	Table string // as in the configuration; empty: its only one
	Where string // SQL condition
	Order []string

	ToTopic     string // where the records go instead of their own topics
	AcceptOrder bool   // after newer records of their keys

	MaxRate int
	Restart bool // that what an earlier call sent is sent again
	Yes     bool
}

// replayed are the options of a replay that chooses the same rows.
func (o *BesideOptions) replayed() ReplayOptions {
	return ReplayOptions{
		Table: o.Table, Where: o.Where, Order: o.Order, ToTopic: o.ToTopic, AcceptOrder: o.AcceptOrder,
		MaxRate: o.MaxRate, MaxRows: math.MaxInt, Yes: o.Yes,
	}
}

// Run prints what would be sent, and with Options.Yes sends it.
func (b *Beside) Run(ctx context.Context) error {
	settings := b.Settings.WithDefaults()
	if b.Options.Where == "" {
		return usage("--late needs --where: say which rows; --where true means all rows")
	}
	options := b.Options.replayed()
	index, err := options.check(&settings)
	if err != nil {
		return err
	}
	of := &Replay{Settings: settings, Options: options, Out: b.Out, Log: b.Log, Every: b.Every, OnStep: b.OnStep}
	return (&replay{Replay: of, index: index, beside: b}).read(ctx, settings, "backfill", (*work).besideAll)
}

func (w *work) besideAll(ctx context.Context) error {
	r := w.replay
	if r.Options.Yes {
		if err := w.holder.Lock(ctx, w.Out.step); err != nil {
			return err
		}
	}
	if err := w.streamed(ctx); err != nil {
		return err
	}
	if err := r.choose(ctx, w); err != nil {
		return err
	}
	if w.settings.KeepsPositions() {
		var err error
		if w.ledger, err = topics.NewLedger(w.settings.Kafka.Connection, w.settings.CheckpointTopic); err != nil {
			return err
		}
		defer w.ledger.Close()
	}
	if err := w.besideBefore(ctx); err != nil {
		return err
	}
	if r.Options.Yes { // a row from before the slot may not be visible yet
		if err := w.awaitWriters(ctx); err != nil {
			return err
		}
	}
	if _, err := w.holder.Begin(ctx, "", w.locked()...); err != nil {
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
	if err := r.refusal(); err != nil || !r.Options.Yes || r.plan.rows == 0 && !w.resumed {
		return err
	}
	return w.sendBeside(ctx)
}

// streamed refuses slots from which no relay streams: rows from before them are an ordinary
// backfill's, which has them come first.
func (w *work) streamed(ctx context.Context) error {
	cfg := w.settings.Replication
	names := []string{cfg.BackfillSlot()}
	for _, shard := range cfg.Shards() {
		names = append(names, shard.Slot)
	}
	var slots []provision.SlotState
	err := w.holder.Ask(ctx, func(q postgres.Querier, version int) (err error) {
		slots, err = provision.ReadSlots(q, version, names...)
		return err
	})
	if err != nil {
		return err
	}
	if slots[0].Exists {
		return progress.Refuse(fmt.Errorf("a backfill is under way or was interrupted: %s exists", postgres.SlotSubject(slots[0].Name)), "let `cdc-relay backfill --yes` complete it")
	}
	for _, slot := range slots[1:] {
		switch {
		case !slot.Exists:
			return progress.Refuse(fmt.Errorf("%s does not exist, so no relay streams from it", postgres.SlotSubject(slot.Name)),
				"use `cdc-relay backfill` without --late: it sends the rows first, and makes the slot after them")
		case slot.Err != nil:
			return progress.Refuse(slot.Err, "mend the slot first: what it lost are rows to be sent too")
		}
	}
	return nil
}

// besideSlot stands for the slot in the keys of the progress and in the transactional id. No slot
// can have such a name.
func (w *work) besideSlot() string { return baseSlot(w.settings.Replication) + "-late" }

// besideBefore looks for an earlier call with the same rows: one to go on with, or a complete one,
// which says nothing of the rows of the next gap.
func (w *work) besideBefore(ctx context.Context) error {
	if w.ledger == nil {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, time.Minute) // a killed producer's transaction hides what follows it
	defer cancel()
	value, err := w.ledger.Committed(within, stored.BackfillKey(w.holder.Origin().SystemID, w.besideSlot()))
	if err != nil || value == nil {
		return err
	}
	p, err := progress.Parse(value)
	if err != nil {
		return progress.Refuse(err, "run the version that wrote it")
	}
	r, o := w.replay, &w.replay.beside.Options
	same := len(p.Tables) == 1 && p.Tables[0].Shape == r.shape(w)
	switch {
	case o.Restart, p.Finished && !same:
		return nil
	case p.Finished:
		return progress.Refuse(fmt.Errorf("a backfill --late with the same flags, begun %s, is complete (%s sent), and nothing says whether the condition means other rows by now", p.Started.UTC().Format(time.RFC3339), wording.Count(p.Rows, "row")),
			"nothing is left to do for the rows of that time; for later ones, as of another gap, name those alone with --where, or send all again with --restart")
	case !same:
		return progress.Refuse(fmt.Errorf("an earlier backfill --late of other rows, another topic or another mapping was interrupted after %s", wording.Count(p.Rows, "row")),
			"use the flags and the mapping that it began with, or --restart to give it up and start with these")
	case !w.tables[0].Order.Total:
		if w.settings.Guarantee == relay.ExactlyOnce {
			return progress.Refuse(errors.New("the table has no unique key without NULLs any more, so that the backfill cannot be continued"), "use --restart, which sends all rows again")
		}
		return nil
	}
	w.progress, w.resumed = p, true
	return nil
}

// sendBeside has all chosen rows acknowledged.
func (w *work) sendBeside(ctx context.Context) error {
	r := w.replay
	here, err := w.history(ctx)
	if err != nil {
		return err
	}
	switch {
	case w.resumed:
		if w.settings.Guarantee == relay.ExactlyOnce {
			if w.progress, err = w.fenceWriters(ctx, w.progress); err != nil {
				return err
			}
		}
		if err = w.goesOn(w.progress, here); err != nil {
			return progress.Refuse(fmt.Errorf("the backfill that was interrupted cannot be continued: %w", err), "use --restart, which sends all rows again")
		}
	default:
		err = w.beginBeside(ctx, here)
	}
	if err != nil {
		return err
	}
	r.run = w.progress.Run
	w.track.Begin(w.progress.Place)
	if err := w.watched(ctx, w.relay); err != nil {
		if w.ledger != nil {
			r.Out.warn("the same command goes on where it was")
		}
		return err
	}
	done := *w.progress
	done.Place, done.Finished = w.track.Now(), true
	done.Table, done.Done = len(done.Tables), nil
	if err := w.writeProgress(ctx, &done); err != nil {
		return err
	}
	w.OnStep("finished")
	sent := done.Rows - done.Skipped
	text := fmt.Sprintf("sent %s, marked with the header %s", wording.Count(sent, "row"), record.HeaderBackfill)
	if done.Skipped > 0 {
		text += fmt.Sprintf(", but for %s that could not be sent (relay.on_reject: skip)", wording.Count(done.Skipped, "row"))
	}
	r.Out.say(Line{What: "result", Rows: sent, Text: text})
	return nil
}

// beginBeside writes where the run begins.
func (w *work) beginBeside(ctx context.Context, here wal.Origin) error {
	point, err := w.besidePoint(ctx)
	if err != nil {
		return err
	}
	w.replay.plan.point = point
	return w.beginReplay(ctx, here, w.besideSlot())
}

// besidePoint is the position that the records have: where the slots begin, so that they lie
// before whatever the relay has streamed. Where nobody knows that, it is before every position.
func (w *work) besidePoint(ctx context.Context) (wal.LSN, error) {
	const first = wal.LSN(1)
	if w.ledger == nil {
		return first, nil
	}
	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var point wal.LSN
	for _, shard := range w.settings.Replication.Shards() {
		value, err := w.ledger.Committed(within, stored.BeforeSlotKey(w.holder.Origin().SystemID, shard.Slot, w.tables[0].OID))
		if err != nil {
			return 0, err
		}
		rec, err := stored.ParseBeforeSlot(value)
		if value == nil || err != nil || rec.Point == 0 {
			return first, nil
		}
		if point == 0 || rec.Point < point {
			point = rec.Point
		}
	}
	return max(point, first), nil
}

// besideOrder describes the order of the records for the plan.
func (r *replay) besideOrder() string {
	p := &r.plan
	switch {
	case r.Options.ToTopic != "":
		return "the records go to a topic of their own, the rows of a key in order"
	case r.Options.AcceptOrder:
		return "the records land after those of newer rows of their keys, in order among themselves"
	case p.undelivered.text() != "":
		return p.undelivered.step()
	case p.sharing != "":
		return p.shares() + ": use --to-topic or --accept-order"
	case p.unknown:
		return "nobody can tell whether the keys have newer rows: use --to-topic or --accept-order"
	case p.newerRows > 0:
		return fmt.Sprintf("%s of %s newer than the first that is sent, and may be in the topics already: use --to-topic or --accept-order", wording.Count(p.newerRows, "further row"), wording.Count(p.newerKeys, "key"))
	}
	return "no key has newer rows beside these; those that the relay has sent are sent again, and a row that commits from now on may come before the older ones of its key"
}

// besideRefusal is why what was planned is not done.
func (r *replay) besideRefusal() error {
	p := &r.plan
	switch {
	case !r.Options.Yes:
		return nil
	case p.undelivered.refusal(&r.Options) != nil:
		return p.undelivered.refusal(&r.Options)
	case p.sharing != "":
		return progress.Refuse(errors.New(p.shares()), "use --to-topic or --accept-order")
	case (p.unknown || p.newerRows > 0) && r.Options.ToTopic == "" && !r.Options.AcceptOrder:
		return progress.Refuse(errors.New("the records would land after newer ones of their keys"), "use --to-topic or --accept-order")
	case p.rejected > 0 && r.Settings.OnReject != relay.SkipOnReject:
		rejected, _ := errors.AsType[*record.RowError](p.rejection)
		return &relay.BlockedError{Reason: rejected.Reason, Err: fmt.Errorf("%s cannot be sent, the first %w; correct them or the mapping, leave them out with --where, or use --set relay.on_reject=skip",
			wording.Count(p.rejected, "row"), p.rejection)}
	}
	return nil
}

// besideConfigure has the relay go on after rows that cannot be sent only where that is configured:
// a dead letter would be of a slot that no relay has.
func besideConfigure(cfg *relay.Config) {
	if cfg.ParkKey = false; cfg.OnReject != relay.SkipOnReject {
		cfg.OnReject = relay.StopOnReject
	}
}

// besideHint is what to do about a row that blocks.
const besideHint = "correct the row or the mapping, or use --set relay.on_reject=skip, which leaves such rows out; then run the command again"

// besideFlags names flags of an ordinary backfill that make no sense beside a relay.
func besideFlags(o *Options) string {
	var names []string
	for name, given := range map[string]bool{"--all": o.All, "--unpublished": o.Unpublished, "--accept-wal": o.AcceptWAL, "--online": o.Online, "--rows-are-kept": o.RowsAreKept, "--buckets": o.Buckets != 0, "--accept-deletes": o.AcceptDeletes} {
		if given {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// Beside are the options for sending the same rows on a slot that is streamed from.
func (o *Options) Beside(toTopic string) (BesideOptions, error) {
	if names := besideFlags(o); names != "" {
		return BesideOptions{}, usage("--late takes no %s; say with --where which rows, --where true means all rows", names)
	}
	return BesideOptions{
		Table: o.Table, Where: o.Where, Order: o.Order, ToTopic: toTopic, AcceptOrder: o.AcceptOrder,
		MaxRate: o.MaxRate, Restart: o.Restart, Yes: o.Yes,
	}, nil
}
