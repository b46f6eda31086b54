package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/migrations"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/wording"
	"github.com/spf13/cobra"
)

func (a *app) sqlCommand() *cobra.Command {
	o := sqlOptions{format: "plain", service: "self", number: 1}
	cmd := &cobra.Command{
		Use:   "sql",
		Short: "Print the SQL of table, publication, role and grants, for review or a migration tool",
		Long: `sql prints what setup would create, and the role to connect as, without touching a
server: for review, for a database administrator, or for a migration tool. It takes
the names from the configuration, which may be incomplete.

The replication slot is a step of its own: PostgreSQL refuses to make one in a
transaction that has written, and migration tools open one. Run setup after the
migration; it finds everything else there.`,
		Example: `  cdc-relay sql --create-table
  cdc-relay sql --format goose --create-table > migrations/00042_cdc_relay.sql
  cdc-relay sql --format golang-migrate --number 42 --out migrations
  cdc-relay sql --create-table --column-list
  cdc-relay sql --service rds --role relay`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(config.Options{Path: a.configPath, Set: a.set, Environ: a.env, Partial: true, WithoutSecrets: true})
			if err != nil {
				return err
			}
			o.createTable = o.createTable || cmd.Flags().Changed("preset")
			files, err := o.render(cfg)
			if err != nil {
				return &advice.Usage{Err: err}
			}
			if o.out != "" {
				return a.writeFiles(o.out, files)
			}
			for i, f := range files {
				if len(files) > 1 {
					fmt.Fprintf(a.stdout, "%s-- file: %s\n", strings.Repeat("\n", min(i, 1)), f.Name)
				}
				fmt.Fprint(a.stdout, f.Content)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.format, "format", o.format, "one of "+strings.Join(migrations.Formats(), ", "))
	f.StringVar(&o.service, "service", o.service, "where PostgreSQL runs, one of "+strings.Join(migrations.Services(), ", "))
	f.BoolVar(&o.createTable, "create-table", false, "with the table")
	f.StringVar(&o.preset, "preset", "", "shape of the table: a preset, or polling for a table that a polling publisher uses too (default: the configured preset, else outbox); implies --create-table")
	f.BoolVar(&o.columnList, "column-list", false, "publish the columns that the mapping reads and no others (PostgreSQL 15 and later); needs --create-table, because which columns a table has that exists only a server could tell")
	f.BoolVar(&o.partitioned, "partitioned", false, "the table is partitioned: publish its rows under the name of the root")
	f.StringVar(&o.role, "role", "", "role that the relay connects as (default: the user in postgres.url unless that is postgres, else cdc_relay)")
	f.BoolVar(&o.withoutRole, "without-role", false, "leave role and grants out, for migrations that may not make roles")
	f.IntVar(&o.major, "postgres-version", 0, "major version of the server, such as 17, where the slot's statement depends on it")
	f.IntVar(&o.number, "number", o.number, "version of the migration")
	complete(cmd, "format", migrations.Formats())
	complete(cmd, "service", migrations.Services())
	complete(cmd, "preset", migrations.Presets())
	f.StringVar(&o.out, "out", "", "write the files into this `directory` instead of printing them; refuses to overwrite")
	return cmd
}

// administrator is the role that every server begins with; it is nobody's to
// create. What other roles may do only a server could tell.
const administrator = "postgres"

type sqlOptions struct {
	format, service, preset, role, out string
	createTable, partitioned           bool
	columnList                         bool
	withoutRole                        bool
	major, number                      int
}

// failoverMajor is the first version whose slots can fail over, listMajor the first
// with column lists.
const failoverMajor, listMajor = 17, 15

func (o sqlOptions) render(cfg *config.Config) ([]migrations.File, error) {
	if o.number < 1 {
		return nil, fmt.Errorf("--number %d is not allowed; allowed: 1 or more", o.number)
	}
	settings := cfg.Relay().Replication
	if settings.Shard.Divided() {
		return nil, fmt.Errorf("postgres.shards: %d: the filters of the publications depend on the types of the tables' columns, which only a server could tell; `cdc-relay setup --dry-run` prints their SQL, and with --set postgres.shards=1 this prints the rest", settings.Shard.Count)
	}
	if len(settings.Tables) == 0 && len(settings.Messages) == 0 {
		settings.Tables = []wal.Table{{Schema: "public", Name: "outbox"}}
	}
	var names []migrations.Name
	for _, t := range settings.Tables {
		names = append(names, migrations.Name{Schema: t.Schema, Table: t.Name})
	}
	user, database := cfg.Login()
	given := user
	if user == administrator {
		user = ""
	}
	login := migrations.Login{Role: cmp.Or(o.role, user, "cdc_relay"), Database: database, IAM: cfg.IAM()}
	role, notes, err := migrations.ServiceRole(o.service, login)
	if err != nil {
		return nil, fmt.Errorf("--service, --role: %w", err)
	}
	m := migrations.Migration{Number: o.number, Notes: notes}
	if note := roleNote(given, login.Role); o.role == "" && !o.withoutRole && note != "" {
		m.Notes = append(m.Notes, note)
	}
	if o.createTable {
		if m.Parts, err = o.tables(names, cfg.Relay().Router.Mappings); err != nil {
			return nil, err
		}
	}
	lists, err := o.lists(settings, cfg.Relay().Router)
	if err != nil {
		return nil, err
	}
	m.Parts = append(m.Parts, publicationPart(settings, o.partitioned || partitioned(m.Parts), lists))
	if !o.withoutRole {
		m.Parts = append(m.Parts, role)
		if len(names) > 0 {
			read, err := migrations.Read(login.Role, names)
			if err != nil {
				return nil, err
			}
			m.Parts = append(m.Parts, read)
		}
	}
	m.Slot = provision.SlotSQL(settings.Slot, o.major*10000)
	if o.major == 0 {
		m.Notes = append(m.Notes, fmt.Sprintf("From PostgreSQL %d on, the slot is better made with a fifth argument, true, which lets it follow a failover: setup does so.", failoverMajor))
	}
	if o.columnList && o.major == 0 {
		m.Notes = append(m.Notes, fmt.Sprintf("The column list of the publication needs PostgreSQL %d or later.", listMajor))
	}
	files, err := migrations.Format(o.format, m)
	if err != nil {
		return nil, fmt.Errorf("--format: %w", err)
	}
	return files, nil
}

// roleNote says what to do about the user that postgres.url has; empty without one.
func roleNote(user, role string) string {
	switch user {
	case "":
		return ""
	case role:
		return fmt.Sprintf("The role is the user of postgres.url, %s. If it exists, leave CREATE ROLE out. No server was asked what it may do: if it is a superuser or an administrator, give the relay a role of its own instead (--role).", user)
	}
	return fmt.Sprintf("postgres.url has %s, the administrator that a server begins with; the relay needs no more than the role %s below: have it connect as that one.", user, role)
}

// tables are those of the configuration, in whose order the mappings begin.
func (o sqlOptions) tables(names []migrations.Name, mappings []router.Mapping) ([]migrations.Part, error) {
	var parts []migrations.Part
	for i, n := range names {
		preset := cmp.Or(o.preset, shapeOf(mappings, i))
		if !slices.Contains(migrations.Presets(), preset) {
			return nil, fmt.Errorf("--preset: there is no SQL for %q: %s", preset, wording.DidYouMean(preset, migrations.Presets()))
		}
		up, err := migrations.Table(preset, n.Schema, n.Table)
		if err != nil {
			return nil, err
		}
		down, err := migrations.DropTable(preset, n.Schema, n.Table)
		if err != nil {
			return nil, err
		}
		part := migrations.Part{Name: "table", Up: up, Down: down}
		if i > 0 {
			part.Name += fmt.Sprint(i + 1)
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// shapeOf is the preset in whose shape the i-th table is made. Options of Debezium
// are about a table with Debezium's columns.
func shapeOf(mappings []router.Mapping, i int) string {
	if i >= len(mappings) {
		return migrations.DefaultPreset
	}
	switch m := &mappings[i]; {
	case m.Preset != "" && m.Preset != "auto":
		return m.Preset
	case m.Connector != nil:
		return "debezium"
	}
	return migrations.DefaultPreset
}

// partitioned tells, as setup does, whether a table that is about to be made is.
func partitioned(parts []migrations.Part) bool {
	return slices.ContainsFunc(parts, func(p migrations.Part) bool { return strings.Contains(strings.ToUpper(p.Up), "PARTITION BY") })
}

func publicationPart(settings postgres.Config, viaRoot bool, lists map[wal.Table][]string) migrations.Part {
	return migrations.Part{
		Name: "publication",
		Up: "-- Inserts only: updates and deletes of an outbox are housekeeping, no events. Run as the owner of the table.\n" +
			provision.PublicationSQL(settings, viaRoot, lists),
		Down: provision.DropPublicationSQL(settings),
	}
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
