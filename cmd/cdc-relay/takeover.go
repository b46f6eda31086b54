package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/debezium/importer"
	"github.com/cdc-relay/cdc-relay/debezium/takeover"
	"github.com/cdc-relay/cdc-relay/relay"
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
		Short: "Take over a Debezium connector's slot (dry run unless --yes)",
		Long: `takeover switches from the Debezium connector described in FILE to the relay, using the
connector's own slot and publication. FILE is a file that import reads. The relay's
configuration is the one that run would use; if there is none, the result of import.

takeover reads the position that Debezium stored and compares it with the slot. The
position comes from Connect's offset topic (of --worker, or --offset-topic) or from a file
(--offset-file: of a standalone worker or Debezium Server, the saved answer to
GET /connectors/NAME/offsets, or the value that Redis or a table holds). Without --yes
takeover is a dry run, and Debezium may keep running.

With --yes takeover streams from the slot's position. It confirms rows that the stored
position proves to be in Kafka without sending them again; it sends every other row. When
all of them are confirmed, takeover exits; then start ` + "`cdc-relay run`" + `. With --stay it streams
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
	cmd.Flags().BoolVar(&o.yes, "yes", false, "perform the takeover")
	cmd.Flags().BoolVar(&o.stay, "stay", false, "with --yes: keep streaming, as run does")
	cmd.Flags().StringVar(&o.offsetTopic, "offset-topic", "", "`topic` in which Kafka Connect or Debezium Server keeps positions")
	cmd.Flags().StringVar(&o.offsetFile, "offset-file", "", "`file` with positions: of a standalone worker, of Debezium Server, or JSON; - is standard input")
	cmd.Flags().BoolVar(&o.noOffsets, "no-offsets", false, "ignore Debezium's position and send again every row that the slot still holds")
	return cmd
}

// takeoverRun is one invocation of takeover.
type takeoverRun struct {
	app      *app
	options  takeoverOptions
	imported *importer.Result
	cfg      *config.Config
}

func (a *app) takeover(ctx context.Context, file string, o takeoverOptions) error {
	if o.noOffsets && o.offsetFile+o.offsetTopic != "" || o.offsetFile != "" && o.offsetTopic != "" {
		return &advice.Usage{Err: errors.New("use only one of --offset-topic, --offset-file and --no-offsets")}
	}
	if file == "-" && o.offsetFile == "-" {
		return &advice.Usage{Err: errors.New("the connector and its positions cannot both be standard input")}
	}
	c := &takeoverRun{app: a, options: o}
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
	over := takeover.New(c.imported, c.cfg, takeover.Options{
		OffsetTopic: o.offsetTopic, OffsetFile: o.offsetFile, NoOffsets: o.noOffsets, Perform: o.yes,
		ReadFile: readInput, Expand: a.expand, Environ: a.env,
	})
	if err := over.Inspect(ctx); err != nil {
		return err
	}
	lines := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	over.Plan(func(subject, text string) { fmt.Fprintf(lines, "%s\t%s\n", subject, text) })
	_ = lines.Flush() // what the terminal does not take is its own affair
	switch {
	case over.Refused():
		return &advice.Refused{Err: errors.New("the takeover is refused, for the reasons above; nothing was changed")}
	case o.yes:
		return c.perform(ctx, over)
	case over.Held():
		fmt.Fprintln(a.stdout, "\nnothing was changed, and as long as the slot is in use --yes is refused: stop the connector, look again, then repeat with --yes")
	default:
		fmt.Fprintln(a.stdout, "\nnothing was changed; repeat with --yes")
	}
	return nil
}

// configured reports whether a configuration was named, so that the import only says
// what the connector does.
func (c *takeoverRun) configured() bool {
	if c.app.configPath != "" || c.app.getenv("CDC_RELAY_CONFIG") != "" {
		return true
	}
	return config.Found() != ""
}

// remarks says what the import could not carry, and what it left to do unless the
// configuration that was named has it done.
func (c *takeoverRun) remarks() error {
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
func (c *takeoverRun) load(file string) error {
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

// perform streams from the slot's position, behind a filter of what is proven to
// be delivered, until the log's present end is confirmed.
func (c *takeoverRun) perform(ctx context.Context, over *takeover.Takeover) error {
	a := c.app
	settings, missing, err := over.Prove(ctx)
	if err != nil {
		return err
	}
	if missing != "" {
		fmt.Fprintf(a.stdout, "\n%s: the position proves nothing, so nothing is filtered and every row is sent\n", missing)
	}
	if c.options.stay {
		return a.streamWith(ctx, c.cfg, settings)
	}
	settings.OnBlocked = relay.ExitWhenBlocked
	d, err := a.newDaemon(c.cfg, settings)
	if err != nil {
		return err
	}
	d.until = over.Done
	if err := d.run(ctx); err != nil {
		return err
	}
	if !d.reached && wal.LSN(d.relay.Status().LSN.Confirmed) < over.End() {
		return errors.New("stopped before the end of the log was confirmed; run the command again: confirmed rows stay confirmed, and nothing is lost")
	}
	fmt.Fprintf(a.stdout, "\ntaken over: %s delivered by Debezium and not sent again, %d sent; the slot is confirmed beyond %s\nstart `cdc-relay run`, and do not start the connector again: the way back is in %scoming-from-debezium.md\n",
		wording.Count(d.relay.AlreadySentRows(), "row"), d.relay.Status().EventsPublished, over.End(), wording.Docs)
	return nil
}
