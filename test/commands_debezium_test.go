package test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// fillDebezium writes what docs/coming-from-debezium.md takes for there: a
// connector on the relay's slot, and its worker.
func (w workplace) fillDebezium(t *testing.T, database string) {
	t.Helper()
	slot := ""
	for _, assignment := range w.environ {
		if value, ok := strings.CutPrefix(assignment, "CDC_RELAY_POSTGRES_SLOT="); ok {
			slot = value
		}
	}
	address, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	connector, err := json.Marshal(map[string]string{
		"name": "outbox", "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "topic.prefix": "shop", "plugin.name": "pgoutput",
		"database.hostname": address.Hostname(), "database.port": address.Port(), "database.dbname": strings.TrimPrefix(address.Path, "/"), "database.user": address.User.Username(),
		"slot.name": slot, "publication.name": "cdc_relay", "table.include.list": "public.outbox",
		"transforms": "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
		"transforms.outbox.route.by.field": "aggregate_type", "transforms.outbox.table.field.event.key": "aggregate_id",
	})
	if err != nil {
		t.Fatal(err)
	}
	worker := "key.converter=org.apache.kafka.connect.storage.StringConverter\nvalue.converter=org.apache.kafka.connect.storage.StringConverter\noffset.storage.file.filename=offsets.json\n"
	for name, content := range map[string]string{
		"outbox.json":       string(connector),
		"worker.properties": worker,
		"cdc-relay.yaml":    fmt.Sprintf("postgres: {slot: %s}\n", slot), // the rest is in the environment
	} {
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// storePosition writes the worker's file of offsets: it stands where the slot stands.
func (w workplace) storePosition(t *testing.T, db *harness.Database) {
	t.Helper()
	lsn := harness.Query[int64](t, db, "SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots WHERE database = current_database() LIMIT 1")
	content := fmt.Sprintf(`{"offsets":[{"partition":{"server":"shop"},"offset":{"lsn":%d,"lsn_proc":%d,"messageType":"BEGIN"}}]}`, lsn, lsn)
	if err := os.WriteFile(filepath.Join(w.dir, "offsets.json"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
