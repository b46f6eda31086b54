package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/migrations"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/setup"
	"github.com/cdc-relay/cdc-relay/wording"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func (a *app) setupCommand() *cobra.Command {
	var dryRun, acceptGap, columnList bool
	var reshard reshardFlags
	var preset, beforeSlot string
	cmd := &cobra.Command{
		Use:   "setup",
		Short: "Create what is missing: publication and slot, on request the table",
		Long: `setup creates the publication (inserts only, just the configured tables) and then
the replication slot; with --create-table the outbox table before them. What is
there already is left as it is, so it may be run again. It needs the rights of the
table's owner for the publication and REPLICATION for the slot; where no role has
both, run it as the owner first (--set postgres.url=…), then as the relay's role.

Rows that are in the table before the slot is made are not sent; setup says how many,
and backfill, in the place of setup, sends them.

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
			if options.Check, err = setup.Mappable(cfg); err != nil {
				return err
			}
			if columnList {
				if options.Columns, err = setup.MappedColumns(cfg.Relay()); err != nil {
					return &advice.Usage{Err: err}
				}
			}
			if cmd.Flags().Changed("create-table") {
				if options.CreateTable, err = setup.TableSQL(cfg.Relay(), preset); err != nil {
					return &advice.Usage{Err: err}
				}
			}
			if settings := cfg.Relay(); acceptGap && !settings.KeepsPositions() {
				return &advice.Usage{Err: errors.New("--accept-gap is for configurations that keep positions in Kafka: relay.guarantee: exactly_once, or relay.detect_moved_slot: true")}
			}
			if cmd.Flags().Changed("before-slot") {
				settings := cfg.Relay()
				switch {
				case beforeSlot != "delivered":
					return &advice.Usage{Err: fmt.Errorf("--before-slot %q is not allowed; allowed: delivered", beforeSlot)}
				case reshard.from != 0 || acceptGap || columnList || options.CreateTable != nil:
					return &advice.Usage{Err: errors.New("--before-slot can only be combined with --dry-run: it is about slots that exist")}
				case !settings.KeepsPositions():
					return &advice.Usage{Err: errors.New("--before-slot is for configurations that keep positions in Kafka: relay.guarantee: exactly_once, or relay.detect_moved_slot: true")}
				}
				return a.newSetup(settings).DeclareDelivered(cmd.Context(), dryRun)
			}
			if cmd.Flags().Changed("reshard-from") {
				if dryRun || acceptGap || options.CreateTable != nil {
					return &advice.Usage{Err: errors.New("--reshard-from can only be combined with --column-list: it makes publications and slots for tables that exist")}
				}
				return asGiven(cmd, a.newSetup(cfg.Relay()).Reshard(cmd.Context(), options, reshard.from, reshard.wait))
			}
			return asGiven(cmd, a.newSetup(cfg.Relay()).Run(cmd.Context(), options, dryRun, acceptGap))
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print the SQL and touch nothing")
	cmd.Flags().BoolVar(&acceptGap, "accept-gap", false, "discard the stored checkpoint where it does not match the slot, so that the next run starts at the slot's position; rows between the two are skipped or repeated")
	cmd.Flags().StringVar(&beforeSlot, "before-slot", "", "delivered: write to the checkpoint topic that the rows from before the slots are delivered, or need not be; retention relies on it")
	complete(cmd, "before-slot", []string{"delivered"})
	cmd.Flags().IntVar(&reshard.from, "reshard-from", 0, "replace the slots of this many shards by those of postgres.shards, without loss; begin while the relay runs")
	cmd.Flags().DurationVar(&reshard.wait, "wait", 10*time.Minute, "with --reshard-from: how long to wait for the relay to catch up and to be stopped")
	cmd.Flags().BoolVar(&columnList, "column-list", false, "make the publication with a column list: the columns that the mapping reads and no others (PostgreSQL 15 and later)")
	cmd.Flags().StringVar(&preset, "create-table", setup.ConfiguredShape, "also create the outbox table, in the shape of this preset, or polling for a table that a polling publisher uses too; configured: that of the configuration, else outbox")
	cmd.Flags().Lookup("create-table").NoOptDefVal = setup.ConfiguredShape
	complete(cmd, "create-table", migrations.Presets())
	return cmd
}

func (a *app) newSetup(settings relay.Config) *setup.Setup {
	return setup.New(settings, build().Version,
		func(format string, args ...any) { fmt.Fprintf(a.stdout, format+"\n", args...) },
		func(format string, args ...any) { fmt.Fprintf(a.stderr, "cdc-relay: warning: "+format+"\n", args...) })
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
			case wording.Secretive.MatchString(key) || strings.Contains(value, "://"):
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
