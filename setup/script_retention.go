package setup

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/migrations"
	"github.com/cdc-relay/cdc-relay/retention"
)

// retention gives the rights of whoever deletes or archives rows, for psql or a console.
func (o Script) retention(cfg *config.Config) ([]migrations.File, error) {
	if o.Format != "plain" || o.CreateTable || o.ColumnList || o.Partitioned || o.WithoutRole {
		return nil, errors.New("--for retention goes with --role and --out alone: it prints grants")
	}
	policies, _ := cfg.Retention()
	policies, err := retention.Tables(policies, "")
	if err != nil {
		return nil, err
	}
	if len(policies) == 0 {
		return nil, errors.New("--for retention: no table has retention.then: delete or archive")
	}
	var tables []migrations.Housekeeping
	for _, p := range policies {
		one := migrations.Housekeeping{Table: migrations.Name{Schema: p.Table.Schema, Table: p.Table.Name}, Column: p.By}
		if p.Then == retention.Archive {
			one.Archive = &migrations.Name{Schema: p.Archive.Schema, Table: p.Archive.Name}
		}
		tables = append(tables, one)
	}
	user, database := cfg.Login()
	own := cfg.MaintenanceUser()
	if user == administrator {
		user = ""
	}
	role := cmp.Or(o.Role, own, user, "cdc_relay")
	part, err := migrations.Retention(migrations.Login{Role: role, Database: database}, tables)
	if err != nil {
		return nil, fmt.Errorf("--role: %w", err)
	}
	var b strings.Builder
	b.WriteString("-- The rights that `cdc-relay retention --once` needs beside those to connect. Run as the tables' owner.\n")
	if role == own && role != user {
		fmt.Fprintf(&b, "-- The role is that of maintenance.url, and needs no REPLICATION: CREATE ROLE %s LOGIN;\n", quoted(role))
	}
	fmt.Fprintf(&b, "-- To pause while standby servers are behind, it has to see them: GRANT pg_read_all_stats TO %s;\n\n%s\n", quoted(role), part.Up)
	return []migrations.File{{Name: "cdc_relay_retention.sql", Content: b.String()}}, nil
}

func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
