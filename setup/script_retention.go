package setup

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/marks"
	"github.com/cdc-relay/cdc-relay/migrations"
	"github.com/cdc-relay/cdc-relay/retention"
)

// retention gives the rights of whoever deletes or archives rows, for psql or a console.
func (o Script) retention(cfg *config.Config) ([]migrations.File, error) {
	if o.Format != "plain" || o.CreateTable || o.ColumnList || o.Partitioned || o.WithoutRole {
		return nil, errors.New("--for retention goes with --role and --out alone: it prints grants")
	}
	policies, _ := cfg.Retention()
	policies, _ = retention.Tables(policies, "")
	if len(policies) == 0 {
		return nil, errors.New("--for retention: no table has a retention.then but none")
	}
	var tables []migrations.Housekeeping
	for _, p := range policies {
		one := migrations.Housekeeping{Table: migrations.Name{Schema: p.Table.Schema, Table: p.Table.Name}, Column: p.By, Owned: p.Then.Partitions()}
		if p.Then == retention.Archive {
			one.Archive = &migrations.Name{Schema: p.Archive.Schema, Table: p.Archive.Name}
		}
		tables = append(tables, one)
	}
	return o.upkeep(cfg, ForRetention, func(login migrations.Login) (migrations.Part, error) { return migrations.Retention(login, tables) })
}

// marks gives the rights of whoever sets marks.
func (o Script) marks(cfg *config.Config) ([]migrations.File, error) {
	if o.Format != "plain" || o.CreateTable || o.ColumnList || o.Partitioned || o.WithoutRole {
		return nil, errors.New("--for mark goes with --role and --out alone: it prints grants")
	}
	policies, _ := cfg.Marks()
	policies, _ = marks.Tables(policies, "")
	if len(policies) == 0 {
		return nil, errors.New("--for mark: no table has mark.column")
	}
	var tables []migrations.Marked
	for _, p := range policies {
		tables = append(tables, migrations.Marked{Table: migrations.Name{Schema: p.Table.Schema, Table: p.Table.Name}, Column: p.Column, Others: p.Rejects()})
	}
	return o.upkeep(cfg, ForMark, func(login migrations.Login) (migrations.Part, error) { return migrations.Marks(login, tables) })
}

// upkeep gives the rights of one kind of work on delivered rows.
func (o Script) upkeep(cfg *config.Config, work string, grants func(migrations.Login) (migrations.Part, error)) ([]migrations.File, error) {
	user, database := cfg.Login()
	own := cfg.MaintenanceUser()
	if user == administrator {
		user = ""
	}
	role := cmp.Or(o.Role, own, user, "cdc_relay")
	part, err := grants(migrations.Login{Role: role, Database: database})
	if err != nil {
		return nil, fmt.Errorf("--role: %w", err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "-- The rights that `cdc-relay %s --once` needs beside those to connect. Run as the tables' owner.\n", work)
	create := ""
	if role != user && (role == own || role == o.Role) {
		if create, err = migrations.RoleIfMissing(role, ""); err != nil {
			return nil, fmt.Errorf("--role: %w", err)
		}
		create += "\n"
		b.WriteString("-- The role is for maintenance.url, and needs no REPLICATION.\n")
	}
	fmt.Fprintf(&b, "-- To pause while standby servers are behind, it has to see them: GRANT pg_read_all_stats TO %s;\n\n%s%s\n", quoted(role), create, part.Up)
	return []migrations.File{{Name: "cdc_relay_" + work + ".sql", Content: b.String()}}, nil
}

func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
