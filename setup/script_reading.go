package setup

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/migrations"
)

// kafkaRights are what a command needs on the brokers.
var kafkaRights = map[string]string{
	ForReplay: "those of the relay; with exactly_once also on the transactional id that ends with -replay (the prefix cdc-relay-)",
	ForAudit:  "READ and DESCRIBE on the topics of the records, on the dead-letter topic and, where positions are kept, on the checkpoint topic; DESCRIBE_CONFIGS shows which topics are compacted",
}

// reading is the grants of a command that only reads tables.
func (o Script) reading(cfg *config.Config) ([]migrations.File, error) {
	if o.Format != "plain" || o.CreateTable || o.ColumnList || o.Partitioned || o.WithoutRole {
		return nil, fmt.Errorf("--for %s goes with --role and --out alone: it prints grants", o.For)
	}
	var names []migrations.Name
	for _, t := range cfg.Relay().Replication.Tables {
		names = append(names, migrations.Name{Schema: t.Schema, Table: t.Name})
	}
	if len(names) == 0 {
		return nil, errors.New("--for " + o.For + ": the configuration has no table")
	}
	user, database := cfg.Login()
	if user == administrator {
		user = ""
	}
	role := cmp.Or(o.Role, user, "cdc_relay")
	part, err := migrations.Read(role, names)
	if err != nil {
		return nil, fmt.Errorf("--role: %w", err)
	}
	_, grants, _ := strings.Cut(part.Up, "\n") // which begins with what they are for
	var b strings.Builder
	fmt.Fprintf(&b, "-- The rights that `cdc-relay %s` needs. Run as the tables' owner.\n", o.For)
	replication := "no REPLICATION"
	if o.For == ForReplay {
		replication = "REPLICATION to take the slot, without --to-topic and --accept-order"
	}
	create, err := migrations.RoleIfMissing(role, "")
	if err != nil {
		return nil, fmt.Errorf("--role: %w", err)
	}
	fmt.Fprintf(&b, "-- The role needs %s.\n-- Kafka: %s.\n\n%s\n", replication, kafkaRights[o.For], create)
	if database != "" {
		fmt.Fprintf(&b, "GRANT CONNECT ON DATABASE %s TO %s;\n", quoted(database), quoted(role))
	}
	b.WriteString(grants + "\n")
	return []migrations.File{{Name: "cdc_relay_" + o.For + ".sql", Content: b.String()}}, nil
}
