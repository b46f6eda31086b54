package backfill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/backfill/handover"
	"github.com/cdc-relay/cdc-relay/backfill/progress"
	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/postgres/snapshot"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/rs/zerolog"
)

// Backfill is one invocation.
type Backfill struct {
	Settings relay.Config
	Options  Options
	Prepare  provision.SetupOptions // of publication and tables; Check refuses a mapping that does not fit

	Out Output
	Log zerolog.Logger

	// OnStep, if set, is called with the name of each step that is done.
	OnStep func(step string)

	CountPatience time.Duration // defaults to 30s
	Sample        time.Duration // of the server's writing; defaults to 2s
	Every         time.Duration // of the progress lines; defaults to 10s
}

func (b *Backfill) defaults() {
	b.Settings = b.Settings.WithDefaults()
	if b.CountPatience == 0 {
		b.CountPatience = 30 * time.Second
	}
	if b.Sample == 0 {
		b.Sample = 2 * time.Second
	}
	if b.Every == 0 {
		b.Every = 10 * time.Second
	}
	if b.OnStep == nil {
		b.OnStep = func(string) {}
	}
}

// Run prints what would be done, and with Options.Yes does it.
func (b *Backfill) Run(ctx context.Context) error {
	b.defaults()
	indexes, err := b.Options.check(&b.Settings)
	if err != nil {
		return err
	}
	holder, err := snapshot.Open(ctx, b.Settings.Replication)
	if err != nil {
		return said(err)
	}
	defer holder.Close()
	if b.Options.Yes {
		if err := holder.Lock(ctx, b.Out.step); err != nil {
			return said(err)
		}
	}
	w := &work{Backfill: b, settings: b.Settings, holder: holder, log: b.Log}
	state, err := b.inspect(ctx, w, indexes)
	if err != nil {
		return said(err)
	}
	step, err := state.Decide(b.Options.Restart)
	if err != nil {
		return err
	}
	if step == progress.Finish || step == progress.Nothing {
		w.online = nil // no row is read any more, so none is divided
	} else {
		if err := w.constant(ctx); err != nil {
			return said(err)
		}
		if err := w.unmarked(ctx); err != nil {
			return said(err)
		}
	}
	others := step == progress.Finish && w.leavesOthers(state)
	if err := b.plan(ctx, w, state, step); err != nil || !b.Options.Yes {
		return said(err)
	}
	if err := b.act(ctx, w, state, step); err != nil || !others {
		advise(err)
		return said(err)
	}
	return state.RefuseOthers() // what was begun is complete, and not what was asked for
}

// leaves warns of configured tables whose rows the call does not send, because it completes what an
// earlier one began without them.
func (w *work) leaves(tables ...string) {
	for _, name := range tables {
		w.warnings = append(w.warnings, fmt.Sprintf("rows of table %s are not sent: the backfill that is completed here began without them; send them afterwards: cdc-relay backfill --late --table %[1]s --where true --yes", name))
	}
}

// leavesOthers warns of rows that are selected and that the backfill which is completed here is not about,
// and reports whether there are any.
func (w *work) leavesOthers(s *progress.State) bool {
	added, changed := s.Others()
	w.leaves(added...)
	for _, name := range changed {
		w.warnings = append(w.warnings, fmt.Sprintf("other rows of table %s are selected now than the backfill that is completed here began with, and it sends none of those that it left out; send them afterwards: cdc-relay backfill --late --table %[1]s, with --where for these rows alone", name))
	}
	return len(added)+len(changed) > 0
}

// Said gives an error of a server its kind: one that passes is none that a person has to mend.
func Said(err error) error { return said(err) }

// said gives an error of a server its kind: one that passes is none that a person has to mend.
func said(err error) error {
	if sql, ok := errors.AsType[*snapshot.SQLError](err); ok {
		return &advice.Usage{Err: sql}
	}
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Kind != fault.KindRetry {
		if _, blocked := errors.AsType[*relay.BlockedError](err); !blocked || slices.Contains(lostReasons, e.Reason) {
			return fault.Refuse(err)
		}
	}
	if e, ok := errors.AsType[*sink.Error](err); ok && e.Class != sink.Retry {
		if _, blocked := errors.AsType[*relay.BlockedError](err); !blocked {
			return &advice.Refused{Err: err}
		}
	}
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Kind == fault.KindRetry && e.Hint == "" {
		e.Hint = "run the command again"
	}
	return broker.AdviseReachable(err)
}

// lostReasons are those of a slot or publication that no backfill can go on with.
var lostReasons = []string{fault.ReasonSlotLost, fault.ReasonSlotMissing, fault.ReasonSlotUnusable, fault.ReasonSlotAhead, fault.ReasonPublicationMissing}

// advise replaces what run would have to do next.
func advise(err error) {
	e, ok := errors.AsType[*fault.Error](err)
	if ok && slices.Contains(lostReasons, e.Reason) {
		e.Hint = "the backfill cannot go on: `cdc-relay backfill` with --restart and the flags that it began with sends all rows again"
	}
}

// inspect finds out what is there, and which rows are meant. It touches nothing.
func (b *Backfill) inspect(ctx context.Context, w *work, indexes []int) (*progress.State, error) {
	cfg, origin := b.Settings.Replication, w.holder.Origin()
	s := &progress.State{
		System: origin.SystemID, Timeline: origin.Timeline, Total: true,
		Keeps: b.Settings.KeepsPositions(), Exactly: b.Settings.Guarantee == relay.ExactlyOnce, Online: b.Options.Online,
	}
	names := []string{cfg.BackfillSlot()}
	for _, shard := range cfg.Shards() {
		names = append(names, shard.Slot)
	}
	if err := postgres.CheckSlotName(names[0]); err != nil {
		return nil, progress.Refuse(fmt.Errorf("until it is complete a backfill has a slot of its own: %w", err), "choose a shorter postgres.slot")
	}
	told := w.tellsOfSlot(ctx, names[0])
	slots, err := handover.ReadSlots(ctx, w.holder, b.Options.Yes, names...)
	told()
	if err != nil {
		return nil, err
	}
	for i, found := range slots {
		slot := progress.Slot{Name: found.Name, Exists: found.Exists, Active: found.Active, Confirmed: found.Confirmed, Err: found.Err}
		if i == 0 {
			if e, ok := errors.AsType[*fault.Error](slot.Err); ok {
				e.Hint = "" // of run: what a backfill does next follows from the state
			}
			s.Temporary = slot
		} else {
			s.Final = append(s.Final, slot)
		}
	}
	if err := b.remembered(ctx, s); err != nil {
		return nil, err
	}
	if err := b.choose(ctx, w, s, indexes); err != nil {
		return nil, err
	}
	for i := range w.tables {
		t := &w.tables[i]
		s.Tables = append(s.Tables, progress.TableProgress{Table: t.Name.String(), OID: t.OID, Where: t.Where, Order: t.Order.Names(), Shape: shape(t, &b.Settings)})
		s.Total = s.Total && w.tables[i].Order.Total
	}
	if b.Options.Online || s.Known() && s.Progress.Online != nil && !b.Options.Restart {
		return s, w.divide(ctx)
	}
	return s, nil
}

// remembered reads what the checkpoint topic has of this backfill, and of the slots.
func (b *Backfill) remembered(ctx context.Context, s *progress.State) error {
	if !s.Keeps {
		return nil
	}
	ledger, err := topics.NewLedger(b.Settings.Kafka.Connection, b.Settings.CheckpointTopic)
	if err != nil {
		return err
	}
	defer ledger.Close()
	within, cancel := context.WithTimeout(ctx, time.Minute) // a killed producer's transaction hides what follows it
	defer cancel()
	value, err := b.committed(within, ledger, s)
	if e, ok := errors.AsType[*sink.Error](err); ok && e.Reason == fault.ReasonCheckpointTopic {
		return nil // it is still to be made, or Prepare says what is wrong with it
	}
	if err != nil {
		return err
	}
	if value != nil {
		if s.Progress, err = progress.Parse(value); err != nil {
			return progress.Refuse(err, "run the version that wrote it")
		}
		if s.Progress.IsAnnounced() {
			s.Progress, s.Begun = nil, true
		}
	}
	for i := range s.Final {
		if err := b.known(within, ledger, s, &s.Final[i]); err != nil {
			return err
		}
	}
	return nil
}

// committed reads the progress. The transaction of a call that was killed hides it until the brokers end that
// at its timeout, a minute. A call that goes on ends it at once; any other waits, and says so.
func (b *Backfill) committed(ctx context.Context, ledger *topics.Ledger, s *progress.State) ([]byte, error) {
	slot := baseSlot(b.Settings.Replication)
	relays := slices.ContainsFunc(s.Final, func(f progress.Slot) bool { return f.Exists }) // one may be at work
	if s.Exactly && b.Options.Yes && s.Temporary.Exists && !relays {
		return b.shutOut(ctx, s.System, slot, stored.BackfillKey(s.System, slot))
	}
	waiting := time.AfterFunc(2*time.Second, func() {
		b.Out.say(Line{What: "step", Text: fmt.Sprintf("an open Kafka transaction hides what follows it in topic %q: waiting until the brokers end it, at its timeout at the latest", b.Settings.CheckpointTopic)})
	})
	defer waiting.Stop()
	return ledger.Committed(ctx, stored.BackfillKey(s.System, slot))
}

// known looks for what the topic has of a slot.
func (b *Backfill) known(ctx context.Context, ledger *topics.Ledger, s *progress.State, slot *progress.Slot) (err error) {
	switch {
	case !slot.Exists:
		return handover.NeverStreamed(ctx, ledger, b.Settings.CheckpointTopic, s.System, slot.Name)
	case s.Progress == nil:
		return nil
	}
	oids := make([]uint32, len(s.Progress.Tables))
	for i, t := range s.Progress.Tables {
		oids[i] = t.OID
	}
	slot.Ours, err = handover.WroteBefore(ctx, ledger, s.System, slot.Name, oids, s.Progress.Copied())
	return err
}

// choose looks at the tables, and decides which rows are sent in which order.
func (b *Backfill) choose(ctx context.Context, w *work, s *progress.State, indexes []int) error {
	options := b.Options
	known := s.Known()
	adopted := known && !options.Restart && (!options.chosen() || options.GoesOn && s.Temporary.Exists)
	begun := s.Temporary.Exists || s.Progress != nil && !s.Progress.Finished
	if begun && (!known || options.Restart) && !options.selects() {
		return progress.Refuse(fmt.Errorf("a backfill of %s was interrupted, and nothing says for certain which rows it was about", postgres.SlotSubject(baseSlot(b.Settings.Replication))),
			"say again which rows: --all, --unpublished or --where, with --table, --order and --online if they were used")
	}
	for _, i := range indexes {
		t, warnings, err := w.holder.Describe(ctx, i)
		if err != nil {
			return err
		}
		w.warnings = append(w.warnings, warnings...)
		if b.Prepare.Check != nil {
			if err := b.Prepare.Check(t.Relation); err != nil {
				return err
			}
		}
		c, ok := earlier(s.Progress, i, t)
		switch {
		case adopted && ok:
		case adopted && s.Temporary.Exists:
			w.leaves(t.Name.String())
			continue // that attempt was about other tables
		default:
			if c, err = options.of(i, t); err != nil {
				return err
			}
		}
		selection := snapshot.Selection{Table: t, Where: c.where}
		if selection.Order, err = t.Shape.Choose(c.order); err != nil {
			return usage("--order: table %s: %w", t.Name, err)
		}
		if err := w.holder.CheckSelection(ctx, &selection); err != nil {
			return err
		}
		if err := options.fits(&selection, &b.Settings); err != nil {
			return err
		}
		w.tables, w.choices = append(w.tables, selection), append(w.choices, c)
	}
	if len(w.tables) == 0 {
		return progress.Refuse(errors.New("the backfill began with tables that are not configured any more"), "restore the configuration, or use --restart")
	}
	return nil
}

// constant refuses conditions that mean other rows to the next call.
func (w *work) constant(ctx context.Context) error {
	for i := range w.tables {
		t := &w.tables[i]
		if !w.choices[i].begun {
			if err := w.holder.Constant(ctx, t); err != nil {
				return err
			}
			continue
		}
		what, _, err := w.holder.Changing(ctx, t)
		if err != nil {
			return err
		}
		if what != "" {
			return progress.Refuse(fmt.Errorf("the interrupted backfill of table %s began with a condition that has %s and means other rows by now", t.Name, what),
				"say again which rows, with --restart; rows that it sent are repeated")
		}
	}
	return nil
}

// unmarked refuses rows without a mark where the trigger of a cutover sets marks: those from the cut on
// have one, and nobody has sent them.
func (w *work) unmarked(ctx context.Context) error {
	return w.holder.Ask(ctx, func(q postgres.Querier, _ int) error {
		for i := range w.tables {
			s := &w.tables[i]
			if !slices.ContainsFunc(s.Shape.PublishedColumns(), func(c snapshot.PublishedColumn) bool { return c.Where == s.Where }) {
				continue
			}
			cut, err := catalog.ReadCut(q, s.Name, s.OID)
			if err != nil {
				return err
			}
			if cut == nil || cut.Off {
				continue
			}
			return progress.Refuse(fmt.Errorf("a cutover has rows of table %s marked as published since %s (%s): they are not among those without a mark, and nobody has sent them", s.Name, cut.At, cut.Time.UTC().Format("2006-01-02 15:04:05 UTC")),
				"complete the cutover with `cdc-relay cutover --mark-new --yes`; where its slot is lost, run "+cut.Backfill())
		}
		return nil
	})
}

// earlier is what an attempt before chose for a table.
func earlier(p *progress.Progress, index int, t *snapshot.Table) (choice, bool) {
	if p == nil {
		return choice{}, false
	}
	for _, was := range p.Tables {
		if was.OID == t.OID {
			return choice{index: index, where: was.Where, order: was.Order, text: "those that it began with", begun: true}, true
		}
	}
	return choice{}, false
}

func baseSlot(cfg postgres.Config) string {
	if cfg.Shard.Divided() {
		return cfg.Shard.Slot
	}
	return cfg.Slot
}
