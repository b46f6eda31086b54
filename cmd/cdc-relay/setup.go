package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/migrations"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/wording"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func (a *app) setupCommand() *cobra.Command {
	var dryRun, acceptGap, columnList bool
	var reshard reshardFlags
	var preset string
	cmd := &cobra.Command{
		Use:   "setup",
		Short: "Create what is missing: publication and slot, on request the table",
		Long: `setup creates the publication (inserts only, just the configured tables) and then
the replication slot; with --create-table the outbox table before them. What is
there already is left as it is, so it may be run again. It needs the rights of the
table's owner for the publication and REPLICATION for the slot; where no role has
both, run it as the owner first (--set postgres.url=…), then as the relay's role.

Rows that are in the table before the slot is made are not sent; setup says how many.

With relay.guarantee: exactly_once or relay.detect_moved_slot it also creates the
checkpoint topic and writes there where a slot that it made begins.`,
		Example: `  cdc-relay setup --dry-run
  cdc-relay setup --create-table`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := reshard.check(cmd.Flags()); err != nil {
				return err
			}
			cfg, err := a.load()
			if err != nil {
				return err
			}
			a.warn(cfg)
			options := provision.SetupOptions{DryRun: true}
			if options.Check, err = mappable(cfg); err != nil {
				return err
			}
			if columnList {
				if options.Columns, err = mappedColumns(cfg.Relay()); err != nil {
					return &advice.Usage{Err: err}
				}
			}
			if cmd.Flags().Changed("create-table") {
				if options.CreateTable, err = tableSQL(cfg.Relay(), preset); err != nil {
					return &advice.Usage{Err: err}
				}
			}
			if settings := cfg.Relay(); acceptGap && !settings.KeepsPositions() {
				return &advice.Usage{Err: errors.New("--accept-gap is for configurations that keep positions in Kafka: relay.guarantee: exactly_once, or relay.detect_moved_slot: true")}
			}
			if cmd.Flags().Changed("reshard-from") {
				if dryRun || acceptGap || options.CreateTable != nil {
					return &advice.Usage{Err: errors.New("--reshard-from goes with --column-list alone: it makes publications and slots of tables that exist")}
				}
				return asGiven(cmd, a.reshard(cmd, cfg.Relay(), options, reshard))
			}
			return asGiven(cmd, a.setup(cmd, cfg.Relay(), options, dryRun, acceptGap))
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print the SQL and touch nothing")
	cmd.Flags().BoolVar(&acceptGap, "accept-gap", false, "where a relay would refuse a slot for what relay.checkpoint_topic says of it, forget that, so that the next run begins at the slot's position; what lies between the two is not sent, or sent again")
	cmd.Flags().IntVar(&reshard.from, "reshard-from", 0, "replace the slots of this many shards by those of postgres.shards, without loss; begin while the relay runs")
	cmd.Flags().DurationVar(&reshard.wait, "wait", 10*time.Minute, "with --reshard-from: how long to wait for the relay to catch up and to be stopped")
	cmd.Flags().BoolVar(&columnList, "column-list", false, "make the publication with a column list: the columns that the mapping reads and no others (PostgreSQL 15 and later)")
	cmd.Flags().StringVar(&preset, "create-table", configuredShape, "also create the outbox table, in the shape of this preset, or polling for a table that a polling publisher uses too; configured: that of the configuration, else outbox")
	cmd.Flags().Lookup("create-table").NoOptDefVal = configuredShape
	complete(cmd, "create-table", migrations.Presets())
	return cmd
}

// configuredShape stands for the preset that the configuration names for a table.
const configuredShape = "configured"

// mappedColumns tells which columns of a table its mapping reads.
func mappedColumns(cfg relay.Config) (func(*wal.Relation) ([]string, error), error) {
	routes, err := router.New(cfg.WithDefaults().Router)
	if err != nil {
		return nil, err
	}
	return routes.Columns, nil
}

// mappable refuses a table that run would refuse for its mapping: a slot for it would hold
// back WAL for rows that nobody can read.
func mappable(cfg *config.Config) (func(*wal.Relation) error, error) {
	routes, err := router.New(cfg.Relay().WithDefaults().Router)
	if err != nil {
		return nil, &relay.ConfigError{Err: err}
	}
	return func(table *wal.Relation) error {
		if _, err := routes.Check(table); err != nil {
			return &relay.ConfigError{Err: cfg.Locate(err)}
		}
		return nil
	}, nil
}

// tableSQL gives the statements that make a table in the shape of a preset.
func tableSQL(cfg relay.Config, preset string) (func(wal.Table) (string, error), error) {
	shapes := make(map[wal.Table]string)
	for i, t := range cfg.Replication.Tables {
		shapes[t] = preset
		if preset == configuredShape {
			shapes[t] = shapeOf(cfg.Router.Mappings, i)
		}
		if !slices.Contains(migrations.Presets(), shapes[t]) {
			return nil, fmt.Errorf("--create-table: there is no SQL for preset %q: %s", shapes[t], wording.DidYouMean(shapes[t], migrations.Presets()))
		}
	}
	return func(t wal.Table) (string, error) { return migrations.Table(shapes[t], t.Schema, t.Name) }, nil
}

// setup says what is missing, then makes it.
func (a *app) setup(cmd *cobra.Command, settings relay.Config, options provision.SetupOptions, dryRun, acceptGap bool) error {
	cfg := settings.Replication
	plan, err := provision.Setup(cmd.Context(), cfg, options)
	if err != nil {
		return fault.Refuse(err)
	}
	a.printPlan(plan.Steps)
	if dryRun {
		a.printReport(plan)
		if err := a.setupTopics(cmd, settings, true); err != nil {
			return err
		}
		for _, s := range plan.Steps {
			if s.Object == "slot" && !s.Exists && settings.KeepsPositions() {
				fmt.Fprintf(a.stdout, "-- where slot %s begins would be written to topic %s, unless that has a checkpoint of it\n", s.Name, settings.CheckpointTopic)
			}
		}
		if acceptGap {
			return a.forget(cmd.Context(), settings, true)
		}
		return nil
	}
	first := newFirst(a, settings)
	options.DryRun = false
	options.OnStep = func(s provision.Step) {
		if !s.Exists {
			fmt.Fprintf(a.stdout, "created %s %s\n", s.Object, s.Name)
			first.made(s)
		}
	}
	report, err := provision.Setup(cmd.Context(), cfg, options)
	first.look(cmd.Context()) // also when a later slot could not be made
	if err != nil {
		first.unwritten(errNotReached)
		return fault.Refuse(err)
	}
	a.printReport(report)
	if err := a.setupTopics(cmd, settings, false); err != nil {
		first.unwritten(errNotReached)
		return err
	}
	if acceptGap {
		if err := a.forget(cmd.Context(), settings, false); err != nil {
			first.unwritten(errNotReached)
			return err
		}
	}
	if first.write(cmd.Context()) {
		fmt.Fprintln(a.stdout, "ready: start `cdc-relay run`")
	}
	return nil
}

// ownTopic is a topic of the relay's own.
type ownTopic struct {
	name, purpose string
	ensure        func(ctx context.Context, at broker.Connection, want topics.Creation, topic string, dryRun bool) (missing bool, err error)
}

// ownTopics are those that the configuration has a use for.
func ownTopics(settings relay.Config) (own []ownTopic) {
	if settings.KeepsPositions() {
		own = append(own, ownTopic{settings.CheckpointTopic, "for checkpoints (one partition, cleanup.policy=compact)", topics.EnsureCheckpointTopic})
	}
	if settings.OnReject == relay.DeadLetterOnReject {
		own = append(own, ownTopic{settings.DeadLetterTopic, "for dead letters (cleanup.policy=delete, retention.ms=-1)", topics.EnsureTopic})
	}
	return own
}

// setupTopics makes the topics of our own.
func (a *app) setupTopics(cmd *cobra.Command, settings relay.Config, dryRun bool) error {
	for _, own := range ownTopics(settings) {
		missing, err := own.ensure(cmd.Context(), settings.Kafka.Connection, settings.Kafka.CreateTopics, own.name, dryRun)
		switch {
		case err != nil:
			return &advice.Refused{Err: sink.WhenUp(err)}
		case !missing:
			fmt.Fprintf(a.stdout, "-- topic %s exists\n", own.name)
		case dryRun:
			fmt.Fprintf(a.stdout, "-- topic %s is missing, %s\n", own.name, own.purpose)
		default:
			fmt.Fprintf(a.stdout, "created topic %s\n", own.name)
		}
	}
	return nil
}

// asGiven has an error that sends to another role name the command with the flags that it
// was given: without them that role would make something else.
func asGiven(cmd *cobra.Command, err error) error {
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Reason == fault.ReasonPermission {
		e.Hint = strings.ReplaceAll(e.Hint, cmd.CommandPath(), cmd.CommandPath()+flagsGiven(cmd.Flags()))
	}
	return err
}

// flagsGiven repeats what was set on the command line, as a shell reads it. It leaves out
// who connects, and shows no value that may be a secret.
func flagsGiven(flags *pflag.FlagSet) string {
	var b strings.Builder
	flags.Visit(func(f *pflag.Flag) {
		if f.Name != "set" {
			b.WriteString(" --" + f.Name)
			if value := f.Value.String(); value != f.NoOptDefVal {
				b.WriteString("=" + shellQuoted(value))
			}
			return
		}
		list, _ := f.Value.(pflag.SliceValue)
		for _, set := range list.GetSlice() {
			key, value, _ := strings.Cut(set, "=")
			switch {
			case key == "postgres.url" || strings.HasPrefix(key, "postgres.password"):
			case secretive.MatchString(key) || strings.Contains(value, "://"):
				b.WriteString(" --set " + shellQuoted(key) + "=…")
			default:
				b.WriteString(" --set " + shellQuoted(set))
			}
		}
	})
	return b.String()
}

var shellSafe = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

func shellQuoted(s string) string {
	if shellSafe.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func (a *app) printPlan(steps []provision.Step) {
	for _, s := range steps {
		if s.Exists {
			fmt.Fprintf(a.stdout, "-- %s %s exists\n", s.Object, s.Name)
			continue
		}
		fmt.Fprintf(a.stdout, "-- %s %s is missing:\n%s;\n", s.Object, s.Name, strings.TrimRight(s.SQL, "; \n"))
	}
}

func (a *app) printReport(report *provision.SetupReport) {
	for _, warning := range report.Warnings {
		fmt.Fprintf(a.stderr, "cdc-relay: warning: %s\n", warning)
	}
	for _, table := range slices.Sorted(maps.Keys(report.RowsBefore)) {
		if n := report.RowsBefore[table]; n > 0 {
			fmt.Fprintf(a.stdout, "note: %s in %s from before the slot will not be sent\n", wording.Count(n, "row"), table)
		}
	}
}
