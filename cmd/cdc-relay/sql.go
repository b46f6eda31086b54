package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/migrations"
	"github.com/cdc-relay/cdc-relay/setup"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func (a *app) sqlCommand() *cobra.Command {
	o := setup.Script{Format: "plain", Service: "self", Number: 1}
	var out, schema string
	cmd := &cobra.Command{
		Use:   "sql",
		Short: "Print the SQL of table, publication, role and grants, for review or a migration tool",
		Long: `sql prints the SQL of what setup would create, and of the role to connect as. It contacts
no server. Use it for review, for a database administrator, or for a migration tool. It
takes the names from the configuration, which may be incomplete.

The replication slot is a separate step: PostgreSQL cannot create a slot in a transaction
that has written, and migration tools open one. Run setup after the migration; it creates
the slot and leaves the rest as it is.

--inbox prints instead the tables for a consumer that uses the Go module inbox, for that
consumer's database; --role grants the consumer's role the rights that it needs.`,
		Example: `  cdc-relay sql --create-table
  cdc-relay sql --format goose --create-table > migrations/00042_cdc_relay.sql
  cdc-relay sql --format golang-migrate --number 42 --out migrations
  cdc-relay sql --create-table --column-list
  cdc-relay sql --service rds --role relay
  cdc-relay sql --for backfill
  cdc-relay sql --for cutover
  cdc-relay sql --for retention
  cdc-relay sql --for mark
  cdc-relay sql --for audit --role auditor
  cdc-relay sql --inbox --role billing`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("inbox") {
				files, err := inboxSQL(cmd.Flags(), schema, o)
				if err != nil {
					return &advice.Usage{Err: err}
				}
				return a.emit(out, files)
			}
			cfg, err := config.Load(config.Options{Path: a.configPath, Set: a.set, Environ: a.env, Partial: true, WithoutSecrets: true})
			if err != nil {
				return err
			}
			a.warn(cfg)
			o.CreateTable = o.CreateTable || cmd.Flags().Changed("preset")
			files, err := o.Render(cfg)
			if err != nil {
				return &advice.Usage{Err: err}
			}
			return a.emit(out, files)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Format, "format", o.Format, "one of "+strings.Join(migrations.Formats(), ", "))
	f.StringVar(&o.Service, "service", o.Service, "where PostgreSQL runs, one of "+strings.Join(migrations.Services(), ", "))
	f.BoolVar(&o.CreateTable, "create-table", false, "with the table")
	f.StringVar(&o.Preset, "preset", "", "shape of the table: a preset, or polling: a table that a polling publisher uses too (default: the configured preset, else outbox); implies --create-table")
	f.BoolVar(&o.ColumnList, "column-list", false, "publish only the columns that the mapping reads (PostgreSQL 15 and later); needs --create-table")
	f.BoolVar(&o.Partitioned, "partitioned", false, "the table is partitioned: publish its rows under the name of the root")
	f.StringVar(&o.Role, "role", "", "role that the relay connects as (default: the user in postgres.url unless that is postgres, else cdc_relay)")
	f.BoolVar(&o.WithoutRole, "without-role", false, "leave out role and grants, for migrations that may not create roles")
	f.IntVar(&o.Major, "postgres-version", 0, "major version of the server, such as 17, where the slot's statement depends on it")
	f.IntVar(&o.Number, "number", o.Number, "version of the migration")
	f.StringVar(&o.For, "for", "", setup.ForBackfill+", "+setup.ForCutover+": also what the relay's role needs for that command; "+setup.ForRetention+", "+setup.ForMark+", "+setup.ForAudit+", "+setup.ForReplay+": only what that command's own role needs")
	complete(cmd, "for", []string{setup.ForBackfill, setup.ForCutover, setup.ForRetention, setup.ForMark, setup.ForAudit, setup.ForReplay})
	f.StringVar(&schema, "inbox", "", "print only the tables of the Go module inbox, in this `schema`")
	f.Lookup("inbox").NoOptDefVal = "public"
	complete(cmd, "format", migrations.Formats())
	complete(cmd, "service", migrations.Services())
	complete(cmd, "preset", migrations.Presets())
	f.StringVar(&out, "out", "", "write the files into this `directory` instead of printing them; refuses to overwrite")
	return cmd
}

// inboxSQL is the SQL of a consumer's tables.
func inboxSQL(given *pflag.FlagSet, schema string, o setup.Script) ([]migrations.File, error) {
	for _, other := range []string{"create-table", "preset", "column-list", "partitioned", "service", "without-role", "postgres-version", "set", "config"} {
		if given.Changed(other) {
			return nil, fmt.Errorf("--%s is about the outbox, and --inbox prints the tables of a consumer; use one of them", other)
		}
	}
	if o.Number < 1 {
		return nil, fmt.Errorf("--number %d is not allowed; allowed: 1 or more", o.Number)
	}
	parts, err := migrations.Inbox(schema, o.Role)
	if err != nil {
		return nil, fmt.Errorf("--inbox, --role: %w", err)
	}
	files, err := migrations.Format(o.Format, migrations.Migration{Name: "cdc_relay_inbox", Number: o.Number, Parts: parts})
	if err != nil {
		return nil, fmt.Errorf("--format: %w", err)
	}
	return files, nil
}

// emit writes files into a directory, or prints them where none is given.
func (a *app) emit(directory string, files []migrations.File) error {
	if directory != "" {
		return a.writeFiles(directory, files)
	}
	for i, f := range files {
		if len(files) > 1 {
			fmt.Fprintf(a.stdout, "%s-- file: %s\n", strings.Repeat("\n", min(i, 1)), f.Name)
		}
		fmt.Fprint(a.stdout, f.Content)
	}
	return nil
}

// writeFiles never replaces a migration that may have been applied.
func (a *app) writeFiles(dir string, files []migrations.File) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // SQL for review, without secrets
		return &advice.Usage{Err: fmt.Errorf("--out: %w", err)}
	}
	for _, f := range files {
		name := filepath.Join(dir, f.Name)
		file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // SQL for review, without secrets
		if err != nil {
			if errors.Is(err, fs.ErrExist) {
				err = fmt.Errorf("%s exists and may have been applied; choose another --number or --out, or remove it", name)
			}
			return &advice.Usage{Err: fmt.Errorf("--out: %w", err)}
		}
		_, err = file.WriteString(f.Content)
		if err = errors.Join(err, file.Close()); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		fmt.Fprintln(a.stdout, name)
	}
	return nil
}
