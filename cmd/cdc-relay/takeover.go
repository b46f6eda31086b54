package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/debezium/importer"
	"github.com/cdc-relay/cdc-relay/debezium/takeover"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/preflight"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/wording"
	"github.com/spf13/cobra"
)

type takeoverOptions struct {
	importOptions
	yes, stay   bool
	offsetTopic string
	offsetFile  string
	noOffsets   bool
}

func (a *app) takeoverCommand() *cobra.Command {
	var o takeoverOptions
	cmd := &cobra.Command{
		Use:   "takeover FILE",
		Short: "Take a Debezium connector's slot over (dry run unless --yes)",
		Long: `takeover changes over from the Debezium connector of FILE to the relay, on the
connector's own slot and publication. FILE is what import reads. The relay's
configuration is the one that run would take; where there is none, the import itself.

It reads the position that Debezium stored: in Connect's offset topic (of --worker,
or --offset-topic), in a file (--offset-file: of a standalone worker or Debezium
Server, the saved answer to GET /connectors/NAME/offsets, or what Redis or a table has
of it), and compares it with the slot. Without --yes it only says what it would do,
also while Debezium runs.

With --yes it streams from the slot's position. Rows that the stored position proves
to be in Kafka are confirmed without being sent again; every other row is sent. Once
the rest is confirmed it ends, and the service that does ` + "`run`" + ` goes on; --stay streams
on like run. It refuses while Debezium holds the slot: stop the connector first
(PUT /connectors/NAME/stop; a pause keeps the slot). The publication is never altered.`,
		Example: `  cdc-relay takeover outbox.json --worker worker.properties          # what would happen
  curl -X PUT http://connect:8083/connectors/outbox/stop
  cdc-relay takeover outbox.json --worker worker.properties --yes
  cdc-relay run`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.takeover(cmd.Context(), args[0], o)
		},
	}
	o.flags(cmd)
	cmd.Flags().BoolVar(&o.yes, "yes", false, "really take over")
	cmd.Flags().BoolVar(&o.stay, "stay", false, "with --yes: go on streaming, as run does")
	cmd.Flags().StringVar(&o.offsetTopic, "offset-topic", "", "`topic` in which Kafka Connect or Debezium Server keeps positions")
	cmd.Flags().StringVar(&o.offsetFile, "offset-file", "", "`file` with positions: of a standalone worker, of Debezium Server, or JSON; - for standard input")
	cmd.Flags().BoolVar(&o.noOffsets, "no-offsets", false, "do without Debezium's position: what the slot still holds is sent again")
	return cmd
}

// changeOver is one invocation of takeover.
type changeOver struct {
	app      *app
	options  takeoverOptions
	imported *importer.Result
	cfg      *config.Config
	settings relay.Config
	survey   *preflight.Survey
	found    *offsets
	verdict  takeover.Verdict
	judged   bool   // verdict holds: the position is one of this slot
	held     string // the slot is streamed from, which only forbids to perform
	refusals []string
}

func (a *app) takeover(ctx context.Context, file string, o takeoverOptions) error {
	if o.noOffsets && o.offsetFile+o.offsetTopic != "" || o.offsetFile != "" && o.offsetTopic != "" {
		return &advice.Usage{Err: errors.New("only one of --offset-topic, --offset-file and --no-offsets says where the position is")}
	}
	if file == "-" && o.offsetFile == "-" {
		return &advice.Usage{Err: errors.New("the connector and its positions cannot both be standard input")}
	}
	c := &changeOver{app: a, options: o}
	var err error
	if c.imported, err = a.convert(ctx, file, o.importOptions); err != nil {
		return err
	}
	if err := c.remarks(); err != nil {
		return err
	}
	if err := c.load(file); err != nil {
		return err
	}
	a.warn(c.cfg)
	c.settings = c.cfg.Relay()
	if n := c.settings.Replication.Shard.Count; n > 1 {
		return &advice.Usage{Err: fmt.Errorf("postgres.shards: %d: Debezium has one slot; take it over with postgres.shards: 1, then run `cdc-relay setup --reshard-from 1` with more", n)}
	}
	if err := c.sameSlot(); err != nil {
		return &advice.Usage{Err: err}
	}
	if c.survey, err = preflight.ReadSurvey(ctx, c.settings.Replication); err != nil {
		return c.refusedLook(err)
	}
	if err := c.position(ctx); err != nil {
		return err
	}
	c.judge()
	c.checkpoint(ctx)
	c.plan()
	if len(c.refusals) > 0 || o.yes && c.held != "" {
		return &advice.Refused{Err: errors.New("the change-over is refused, for the reasons above; nothing was touched")}
	}
	switch {
	case o.yes:
	case c.held != "":
		fmt.Fprintln(a.stdout, "\nnothing was touched, and as long as the slot is in use --yes is refused: stop the connector, look again, then repeat with --yes")
		return nil
	default:
		fmt.Fprintln(a.stdout, "\nnothing was touched; repeat with --yes")
		return nil
	}
	return c.perform(ctx)
}

// configured tells whether a configuration was named, so that the import only says
// what the connector does.
func (c *changeOver) configured() bool {
	if c.app.configPath != "" || c.app.getenv("CDC_RELAY_CONFIG") != "" {
		return true
	}
	return config.Found() != ""
}

// remarks says what the import could not carry, and what it left to do unless the
// configuration that was named has it done.
func (c *changeOver) remarks() error {
	a := c.app
	if !c.configured() {
		for _, remark := range c.imported.Remarks {
			if remark.Fate == importer.ToDo {
				fmt.Fprintf(a.stderr, "cdc-relay: %s\n", remark)
			}
		}
	}
	return a.warnLost(c.imported, c.options.strict)
}

// load takes the configuration that was named, else what was imported.
func (c *changeOver) load(file string) error {
	a := c.app
	path := a.configPath
	if !c.configured() {
		path = "import of " + file
	}
	var err error
	c.cfg, err = config.Load(config.Options{Path: path, Set: a.set, Environ: a.env, ReadFile: func(name string) ([]byte, error) {
		if name == path && a.configPath == "" {
			return c.imported.YAML, nil
		}
		return os.ReadFile(name)
	}})
	return err
}

// from names the file that the configuration is of.
func (c *changeOver) from() string {
	if c.cfg.Path == "" {
		return ""
	}
	return " in " + c.cfg.Path
}

// sameSlot keeps a configuration of another pipeline from being taken.
func (c *changeOver) sameSlot() error {
	source, ours := c.imported.Source, c.settings.Replication
	differs := func(theirs, ours string) bool {
		name, known := c.app.expand(theirs)
		return known && name != ours
	}
	if differs(source.Slot, ours.Slot) || differs(source.Publication, ours.Publication) {
		return fmt.Errorf("the connector streams from slot %q and publication %q, the configuration%s from %q and %q; a change-over keeps both: correct postgres.slot and postgres.publication",
			source.Slot, source.Publication, c.from(), ours.Slot, ours.Publication)
	}
	for _, name := range source.Tables {
		if !slices.ContainsFunc(ours.Tables, func(t wal.Table) bool { return t.String() == name }) {
			return fmt.Errorf("the connector captures %s, and the configuration has no such table, so its rows would be skipped for good: add it to outbox", name)
		}
	}
	return nil
}

func (c *changeOver) refusedLook(err error) error {
	if postgres.Reason(err) == fault.ReasonSlotMissing && c.imported.Source.DropOnStop {
		return &advice.Refused{Err: fmt.Errorf("%w; slot.drop.on.stop=true made Debezium drop it when it stopped: what was written since is only in the table", err)}
	}
	return fault.Refuse(err)
}

// judge gathers what forbids the change-over.
func (c *changeOver) judge() {
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
	c.verdict, err = takeover.Judge(c.found.position, takeover.State{
		Confirmed: c.survey.Slot.Confirmed, WALEnd: c.survey.WALEnd, Ahead: c.imported.Source.DriverMoves,
	})
	if err != nil {
		refuse("%v", err)
	}
	c.judged = err == nil
}

// perform streams from the slot's position, behind a filter of what is proven to
// be delivered, until the log's present end is confirmed.
func (c *changeOver) perform(ctx context.Context) error {
	a := c.app
	if c.verdict.Any() {
		seen, missing, err := c.witness(ctx)
		if err != nil {
			return fault.Refuse(err)
		}
		if !seen {
			fmt.Fprintf(a.stdout, "\n%s: the position proves nothing, so nothing is filtered and every row is sent\n", missing)
		}
		c.verdict = takeover.Verdict{Whole: seen && c.verdict.Whole, Part: seen && c.verdict.Part}
	}
	if c.verdict.Any() {
		proof, captured := takeover.NewProof(*c.found.position), c.captured()
		c.settings.Delivered = func(row *wal.Row) bool {
			return captured(row.Relation) && proof.Delivered(row.Txn.Commit, row.Txn.XID, row.LSN, row.Ordinal)
		}
	}
	if c.options.stay {
		return a.streamWith(ctx, c.cfg, c.settings)
	}
	c.settings.OnBlocked = relay.ExitWhenBlocked
	d, err := a.newDaemon(c.cfg, c.settings)
	if err != nil {
		return err
	}
	d.until = c.done
	if err := d.run(ctx); err != nil {
		return err
	}
	if !d.reached && wal.LSN(d.relay.Status().LSN.Confirmed) < c.survey.WALEnd {
		return errors.New("stopped before the log's end was confirmed; repeat the command: what is confirmed stays so, and nothing is lost")
	}
	fmt.Fprintf(a.stdout, "\ntaken over: %s delivered by Debezium and not sent again, %d sent; the slot is confirmed beyond %s\nstart `cdc-relay run`, and do not start the connector again: the way back is in %scoming-from-debezium.md\n",
		wording.Count(d.relay.Filtered(), "row"), d.relay.Status().EventsPublished, c.survey.WALEnd, wording.Docs)
	return nil
}

// done says that everything up to the log's end of the plan is confirmed.
func (c *changeOver) done(s status.Status) bool {
	return s.State == status.Streaming && wal.LSN(s.LSN.Confirmed) >= c.survey.WALEnd
}
