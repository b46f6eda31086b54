package takeover

import (
	"context"
	"fmt"
	"slices"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/debezium/importer"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/preflight"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Options say where Debezium's position is, and what the relay's process knows.
type Options struct {
	OffsetTopic, OffsetFile string
	NoOffsets               bool
	Perform                 bool // else the takeover is only planned

	ReadFile func(name string) ([]byte, error)            // - is standard input
	Expand   func(value string) (text string, known bool) // resolves a reference to the environment
	Environ  []string
}

// Takeover is the way from a connector to the relay on the connector's slot.
type Takeover struct {
	options  Options
	imported *importer.Result
	cfg      *config.Config
	settings relay.Config
	survey   *preflight.Survey
	found    *offsets
	verdict  Verdict
	judged   bool   // verdict holds: the position is one of this slot
	held     string // the slot is streamed from, which only forbids to perform
	refusals []string
}

// New is about the connector that was imported, and the configuration that takes its place.
func New(imported *importer.Result, cfg *config.Config, o Options) *Takeover {
	return &Takeover{options: o, imported: imported, cfg: cfg, settings: cfg.Relay()}
}

// Inspect asks PostgreSQL and whatever keeps Debezium's position. It changes nothing. What
// forbids the takeover is no error: Plan says it, and Refused.
func (c *Takeover) Inspect(ctx context.Context) error {
	if n := c.settings.Replication.Shard.Count; n > 1 {
		return &advice.Usage{Err: fmt.Errorf("postgres.shards: %d: Debezium has one slot; take it over with postgres.shards: 1, then run `cdc-relay setup --reshard-from 1` with more", n)}
	}
	if err := c.sameSlot(); err != nil {
		return &advice.Usage{Err: err}
	}
	var err error
	if c.survey, err = preflight.ReadSurvey(ctx, c.settings.Replication); err != nil {
		return c.refusedInspection(err)
	}
	if err := c.position(ctx); err != nil {
		return err
	}
	c.collectRefusals()
	c.checkpoint(ctx)
	return nil
}

// Held reports whether a process streams from the slot.
func (c *Takeover) Held() bool { return c.held != "" }

// Refused reports whether the takeover is forbidden, or cannot be performed now.
func (c *Takeover) Refused() bool { return len(c.refusals) > 0 || c.options.Perform && c.Held() }

// End is the log's end when Inspect saw it.
func (c *Takeover) End() wal.LSN { return c.survey.WALEnd }

// from names the file that the configuration is of.
func (c *Takeover) from() string {
	if c.cfg.Path == "" {
		return ""
	}
	return " in " + c.cfg.Path
}

// sameSlot keeps a configuration of another pipeline from being taken.
func (c *Takeover) sameSlot() error {
	source, ours := c.imported.Source, c.settings.Replication
	differs := func(theirs, ours string) bool {
		name, known := c.options.Expand(theirs)
		return known && name != ours
	}
	if differs(source.Slot, ours.Slot) || differs(source.Publication, ours.Publication) {
		return fmt.Errorf("the connector streams from slot %q and publication %q, the configuration%s from %q and %q; a takeover keeps both: correct postgres.slot and postgres.publication",
			source.Slot, source.Publication, c.from(), ours.Slot, ours.Publication)
	}
	for _, name := range source.Tables {
		if !slices.ContainsFunc(ours.Tables, func(t wal.Table) bool { return t.String() == name }) {
			return fmt.Errorf("the connector captures %s, and the configuration has no such table, so its rows would be skipped for good: add it to outbox", name)
		}
	}
	return nil
}

func (c *Takeover) refusedInspection(err error) error {
	if postgres.Reason(err) == fault.ReasonSlotMissing && c.imported.Source.DropOnStop {
		return &advice.Refused{Err: fmt.Errorf("%w; slot.drop.on.stop=true made Debezium drop it when it stopped: what was written since is only in the table", err)}
	}
	return fault.Refuse(err)
}

// collectRefusals gathers what forbids the takeover.
func (c *Takeover) collectRefusals() {
	refuse := func(format string, args ...any) { c.refusals = append(c.refusals, fmt.Sprintf(format, args...)) }
	name := c.imported.Source.Connector
	if name == "" {
		name = "NAME"
	}
	if c.survey.SlotOwner != "" {
		c.held = fmt.Sprintf("%s: stop the connector first, for example with PUT /connectors/%s/stop; a pause is not enough. A killed worker's connection may last a while", c.survey.SlotOwner, name)
	}
	if c.survey.SlotError != nil {
		refuse("%v", c.survey.SlotError)
	}
	if c.imported.Source.DropOnStop && c.survey.SlotOwner != "" {
		refuse("the connector has slot.drop.on.stop=true: stopping it would drop the slot and lose rows; set it to false first")
	}
	for i, member := range c.survey.Publication.Members {
		if member.Missing {
			refuse("publication %s does not send rows of %s under its name", c.survey.Publication.Name, c.settings.Replication.Tables[i])
		}
	}
	if c.found.position == nil {
		return
	}
	var err error
	c.verdict, err = ComparePosition(c.found.position, State{
		Confirmed: c.survey.Slot.Confirmed, WALEnd: c.survey.WALEnd, Ahead: c.imported.Source.DriverMoves,
	})
	if err != nil {
		refuse("%v", err)
	}
	c.judged = err == nil
}

// Prove gives the settings of a relay that leaves out what the position proves to be in
// Kafka. missing explains why the position proves nothing; empty: it does, or nothing was to be
// proven.
func (c *Takeover) Prove(ctx context.Context) (settings relay.Config, missing string, err error) {
	if c.verdict.Any() {
		seen, why, err := c.compareWithSlot(ctx)
		if err != nil {
			return c.settings, "", fault.Refuse(err)
		}
		if !seen {
			missing = why
		}
		c.verdict = Verdict{Whole: seen && c.verdict.Whole, Part: seen && c.verdict.Part}
	}
	if c.verdict.Any() {
		proof, captured := NewProof(*c.found.position), c.captured()
		c.settings.AlreadySent = func(row *wal.Row) bool {
			return captured(row.Relation) && proof.Delivered(row.Txn.Commit, row.Txn.XID, row.LSN, row.Ordinal)
		}
	}
	return c.settings, missing, nil
}

// Done reports whether everything up to End is confirmed.
func (c *Takeover) Done(s status.Status) bool {
	return s.State == status.Streaming && wal.LSN(s.LSN.Confirmed) >= c.survey.WALEnd
}
