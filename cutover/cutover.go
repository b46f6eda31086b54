package cutover

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/backfill"
	"github.com/cdc-relay/cdc-relay/backfill/handover"
	"github.com/cdc-relay/cdc-relay/backfill/progress"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/postgres/snapshot"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/rs/zerolog"
)

// Cutover is one invocation.
type Cutover struct {
	Settings relay.Config
	Options  Options
	Prepare  provision.SetupOptions // of publication and tables; Check refuses a mapping that does not fit

	Out backfill.Output
	Log zerolog.Logger

	// OnStep, if set, is called with the name of each step that is done.
	OnStep func(step string)

	LookEvery time.Duration // at what the publisher has left; defaults to 1s
}

// Mode is which way the change goes.
type Mode string

const (
	MarkNew Mode = "mark-new" // the publisher runs on, and does not see new rows
	Stopped Mode = "stopped"  // the publisher has ended
	Back    Mode = "back"     // from MarkNew
)

// GivenUp decides about rows that the publisher may have given up.
type GivenUp string

const (
	Unsaid GivenUp = ""
	Leave  GivenUp = "leave"
	Send   GivenUp = "send" // with Stopped
)

// Options say how, and what the operator accepts.
type Options struct {
	Mode Mode
	Yes  bool // do it

	Marks     []string // columns that the publisher goes by; empty: the one that is found
	Published string   // the status of a published row; empty: the one that is found
	GivenUp   GivenUp

	Watch                  time.Duration // how long the table is watched: for the plan, and whether a publisher is there
	Settle                 time.Duration // what a publisher without locks needs to send what it read
	AcceptOrder, AcceptWAL bool          // with Stopped: as for a backfill

	Compare          int    // so many published rows of each table with their records; 0: none
	IDField          string // member of a record's JSON value that has the event id, where no header id does
	AcceptDifference bool   // that the relay's records are not the publisher's
	SkipPresent      bool   // with Stopped: leave out rows that are in the topics already

	Stall time.Duration // how long writers may be held up on the way back
}

func usage(text string, args ...any) error { return &advice.Usage{Err: fmt.Errorf(text, args...)} }

// check refuses what makes no sense whatever the server has.
func (c *Cutover) check() error {
	o, settings := &c.Options, &c.Settings
	switch {
	case o.Mode == "":
		return usage("say how: --stopped, for a publisher that has ended, --mark-new, for one that runs on, or --back")
	case o.GivenUp == Send && o.Mode != Stopped:
		return usage("--given-up send is for --stopped: to have a publisher that runs on send such rows, take back its attempts")
	case o.GivenUp != Unsaid && o.GivenUp != Leave && o.GivenUp != Send:
		return usage("--given-up %q is not allowed; allowed: send, leave", string(o.GivenUp))
	case o.Watch < 0 || o.Settle < 0 || o.Stall <= 0:
		return usage("--watch and --settle take 0s and more, --stall more than 0s")
	case o.Compare < 0:
		return usage("--compare %d is not allowed; allowed: a number of rows, or 0 for none", o.Compare)
	case o.Mode == Back && (o.Compare > 0 || o.SkipPresent):
		return usage("--compare and --skip-present are not for --back")
	case o.SkipPresent && o.Mode != Stopped:
		return usage("--skip-present is for --stopped: a publisher that runs on sends its own rows, and the relay none of them")
	case o.AcceptDifference && o.Compare == 0:
		return usage("--accept-difference is for --compare N")
	case o.IDField != "" && o.Compare == 0 && !o.SkipPresent:
		return usage("--id-field is for --compare N and --skip-present")
	case len(settings.Replication.Tables) == 0 || len(settings.Replication.Messages) > 0:
		return usage("a cutover is about tables alone: a publisher polls no logical messages, and those from before the cut would be sent by nobody; give them a relay of their own")
	}
	return nil
}

// work is a cutover under way.
type work struct {
	*Cutover
	holder *snapshot.Holder
	ledger *topics.Ledger // nil: the configuration keeps no positions
	tables []polled
	state  state
}

// Run prints what would be done, and with Options.Yes does it.
func (c *Cutover) Run(ctx context.Context) error {
	c.Settings = c.Settings.WithDefaults()
	if c.LookEvery == 0 {
		c.LookEvery = time.Second
	}
	if c.OnStep == nil {
		c.OnStep = func(string) {}
	}
	if err := c.check(); err != nil {
		return err
	}
	holder, err := snapshot.Open(ctx, c.Settings.Replication)
	if err != nil {
		return backfill.Said(err)
	}
	defer holder.Close()
	if c.Options.Yes && c.Options.Mode != Stopped { // there the backfill does
		if err := holder.Lock(ctx, c.Out.Step); err != nil {
			return backfill.Said(err)
		}
	}
	w := &work{Cutover: c, holder: holder}
	return backfill.Said(w.run(ctx))
}

func (w *work) run(ctx context.Context) error {
	if err := w.inspect(ctx); err != nil {
		return err
	}
	switch w.Options.Mode {
	case Back:
		return w.back(ctx)
	case Stopped:
		return w.stopped(ctx)
	case MarkNew:
	}
	if err := w.lookUpCopies(ctx); err != nil {
		return err
	}
	next, err := w.state.decide()
	if err != nil {
		return err
	}
	if next == begin || next == anew || next == trigger || next == wait || next == finish {
		if err := w.study(ctx, next); err != nil {
			return err
		}
	}
	if next == begin || next == anew || next == trigger { // before the first row is marked
		if err := w.holder.Ask(ctx, func(q postgres.Querier, _ int) error { return provision.CheckCut(q, w.cutTables()) }); err != nil {
			return err
		}
		if err := w.unused(ctx); err != nil {
			return err
		}
		if err := w.decideDifference(ctx); err != nil {
			return err
		}
	}
	if next == complete {
		if err := handover.WithRecords(ctx, &w.Settings, w.madeByOther); err != nil {
			return err
		}
	}
	if err := w.plan(ctx, next); err != nil || !w.Options.Yes || next == complete {
		return err
	}
	return w.act(ctx, next)
}

// inspect finds out what is there. It touches nothing.
func (w *work) inspect(ctx context.Context) error {
	cfg, origin := w.Settings.Replication, w.holder.Origin()
	w.state = state{system: origin.SystemID, slot: strings.TrimSuffix(cfg.CutoverSlot(), "_cutover")}
	names := []string{cfg.CutoverSlot(), cfg.BackfillSlot()}
	for _, shard := range cfg.Shards() {
		names = append(names, shard.Slot)
	}
	if err := postgres.CheckSlotName(names[0]); err != nil {
		return progress.Refuse(fmt.Errorf("until it is complete a cutover has a slot of its own: %w", err), "choose a shorter postgres.slot")
	}
	for i := range cfg.Tables {
		t, warnings, err := w.holder.Describe(ctx, i)
		if err != nil {
			return err
		}
		for _, text := range warnings {
			w.Out.Warn(text)
		}
		if w.Prepare.Check != nil {
			if err := w.Prepare.Check(t.Relation); err != nil {
				return err
			}
		}
		w.tables = append(w.tables, polled{Table: t})
	}
	slots, err := handover.ReadSlots(ctx, w.holder, w.Options.Yes && w.Options.Mode != Stopped, names...)
	if err != nil {
		return err
	}
	found := make([]progress.Slot, len(slots))
	for i, s := range slots {
		found[i] = progress.Slot{Name: s.Name, Exists: s.Exists, Active: s.Active, Confirmed: s.Confirmed, Err: s.Err}
	}
	w.state.temporary, w.state.backfill, w.state.final = found[0], found[1].Exists, found[2:]
	return w.holder.Ask(ctx, w.readCuts)
}

func (w *work) readCuts(q postgres.Querier, _ int) (err error) {
	w.state.cuts = make([]*catalog.Cut, len(w.tables))
	for i := range w.tables {
		if w.state.cuts[i], err = catalog.ReadCut(q, w.tables[i].Name, w.tables[i].OID); err != nil {
			return err
		}
	}
	return nil
}

func (w *work) cutTables() []provision.CutTable {
	all := make([]provision.CutTable, len(w.tables))
	for i, t := range w.tables {
		all[i] = provision.CutTable{Table: t.Name, OID: t.OID, Set: t.assignments()}
	}
	return all
}

// undecided is what a person has to decide: exit code 4.
func undecided(reason string, cause error, next string) error {
	return &relay.BlockedError{Reason: reason, Err: advice.Give(cause, next)}
}

// refuse is an error about a table that only a person can resolve.
func (t *polled) refuse(next, text string, args ...any) error {
	return progress.Refuse(errors.New("table "+t.Name.String()+" "+fmt.Sprintf(text, args...)), next)
}
