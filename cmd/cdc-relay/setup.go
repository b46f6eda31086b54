package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/migrations"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/setup"
	"github.com/cdc-relay/cdc-relay/wording"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// setupFlags are the flags of setup.
type setupFlags struct {
	dryRun, acceptGap, columnList bool
	preset, beforeSlot            string
	reshard                       reshardFlags
}

func (a *app) setupCommand() *cobra.Command {
	var f setupFlags
	cmd := &cobra.Command{
		Use:   "setup",
		Short: "Create what is missing: publication and slot, on request the table",
		Long: `setup creates the publication (inserts only, just the configured tables) and then
the replication slot. With --create-table it creates the outbox table first. It leaves
existing objects as they are and may be run again. It needs the rights of the table's
owner for the publication and REPLICATION for the slot. If no role has both, run it as
the owner first (--set postgres.url=…), then as the relay's role.

The relay does not send rows that were written before the slot was created; setup prints
their number. To send them too, run backfill instead of setup.

With relay.guarantee: exactly_once or relay.detect_moved_slot, setup also creates the
checkpoint topic and writes the start position of each new slot to it. It creates the
relay's own topics before the slot, and no slot if run would refuse one of them. Nor does
it create a slot if the checkpoint topic still has the checkpoint of an earlier slot of
that name, because run would refuse the new one, or while the trigger of a cutover marks
new rows as published, because nobody would send those from before the slot:
--accept-gap creates it nevertheless.

With outbox[].schema.register, setup registers the schema of outbox[].schema.file in
kafka.registry, also before the slot, and prints what the registry's check of compatibility
answers. A schema that the subject already has is not registered again. If the registry
refuses the schema, setup creates no slot.`,
		Example: `  cdc-relay setup --dry-run
  cdc-relay setup --create-table`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.setup(cmd, &f) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.dryRun, "dry-run", false, "print the SQL, and what topics and schemas are missing, and touch nothing")
	flags.BoolVar(&f.acceptGap, "accept-gap", false, "have run start at the slot's position, although the stored checkpoint differs: rows between the two are skipped or repeated")
	flags.StringVar(&f.beforeSlot, "before-slot", "", "delivered: record in the checkpoint topic that the rows from before the slots are delivered, or need no delivery, also those of lost dead letters; retention relies on it; refused while dead letters wait")
	complete(cmd, "before-slot", []string{"delivered"})
	flags.IntVar(&f.reshard.from, "reshard-from", 0, "replace the slots of this many shards by those of postgres.shards, without loss; start it while the relay runs")
	flags.DurationVar(&f.reshard.wait, "wait", 10*time.Minute, "with --reshard-from: how long to wait until the relay has caught up and is stopped")
	flags.BoolVar(&f.columnList, "column-list", false, "create the publication with a column list: only the columns that the mapping reads (PostgreSQL 15 and later)")
	flags.StringVar(&f.preset, "create-table", setup.ConfiguredShape, "also create the outbox table in the shape of this preset; polling: a table that a polling publisher uses too; configured: the configured preset, else outbox")
	flags.Lookup("create-table").NoOptDefVal = setup.ConfiguredShape
	complete(cmd, "create-table", migrations.Presets())
	return cmd
}

func (a *app) setup(cmd *cobra.Command, f *setupFlags) error {
	if err := f.reshard.check(cmd.Flags()); err != nil {
		return err
	}
	cfg, err := a.load()
	if err != nil {
		return err
	}
	a.warn(cfg)
	settings := cfg.Relay()
	options, err := f.options(cmd.Flags(), cfg)
	if err != nil {
		return err
	}
	switch {
	case cmd.Flags().Changed("before-slot"):
		if err := f.checkBeforeSlot(options, settings); err != nil {
			return err
		}
		return a.newSetup(settings).DeclareDelivered(cmd.Context(), f.dryRun)
	case cmd.Flags().Changed("reshard-from"):
		if f.dryRun || f.acceptGap || options.CreateTable != nil {
			return &advice.Usage{Err: errors.New("--reshard-from can only be combined with --column-list: it creates publications and slots for existing tables")}
		}
		return asGiven(cmd, a.newSetup(settings).Reshard(cmd.Context(), options, f.reshard.from, f.reshard.wait))
	}
	return asGiven(cmd, a.newSetup(settings).Run(cmd.Context(), options, f.dryRun, f.acceptGap))
}

// options are those of the configuration and the flags.
func (f *setupFlags) options(flags *pflag.FlagSet, cfg *config.Config) (provision.SetupOptions, error) {
	options := provision.SetupOptions{DryRun: true}
	var err error
	if options.Check, err = setup.Mappable(cfg); err != nil {
		return options, err
	}
	settings := cfg.Relay()
	if f.columnList {
		if options.Columns, err = setup.MappedColumns(settings); err != nil {
			return options, &advice.Usage{Err: err}
		}
	}
	if flags.Changed("create-table") {
		if options.CreateTable, err = setup.TableSQL(settings, f.preset); err != nil {
			return options, &advice.Usage{Err: err}
		}
	}
	if f.acceptGap && !settings.KeepsPositions() {
		return options, &advice.Usage{Err: errors.New("--accept-gap is for configurations that keep positions in Kafka: relay.guarantee: exactly_once, or relay.detect_moved_slot: true")}
	}
	return options, nil
}

func (f *setupFlags) checkBeforeSlot(options provision.SetupOptions, settings relay.Config) error {
	switch {
	case f.beforeSlot != "delivered":
		return &advice.Usage{Err: fmt.Errorf("--before-slot %q is not allowed; allowed: delivered", f.beforeSlot)}
	case f.reshard.from != 0 || f.acceptGap || f.columnList || options.CreateTable != nil:
		return &advice.Usage{Err: errors.New("--before-slot can only be combined with --dry-run: it concerns existing slots")}
	case !settings.KeepsPositions():
		return &advice.Usage{Err: errors.New("--before-slot is for configurations that keep positions in Kafka: relay.guarantee: exactly_once, or relay.detect_moved_slot: true")}
	}
	return nil
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
