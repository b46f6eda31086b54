package takeover_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// A worker that was killed takes up where its offsets say.
func TestDebezium_StreamsAndIsKilledAndStartedAgain(t *testing.T) {
	t.Parallel()
	db, brokers := harness.Postgres(t), harness.Kafka(t)
	name := harness.Unique(t, "debezium")
	topic := name + ".event.Order"
	brokers.CreateTopic(t, topic, 1)
	db.Exec(t, `CREATE TABLE outbox (id int PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL, payload text)`)
	host, port, err := net.SplitHostPort(db.Server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	connector := fmt.Appendf(nil, `{"name": %q, "config": {
		"connector.class": "io.debezium.connector.postgresql.PostgresConnector", "plugin.name": "pgoutput", "snapshot.mode": "no_data",
		"database.hostname": %q, "database.port": %q, "database.user": "postgres", "database.password": "", "database.dbname": %q,
		"topic.prefix": "app", "slot.name": %q, "publication.name": %q, "publication.autocreate.mode": "filtered", "table.include.list": "public.outbox",
		"transforms": "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
		"transforms.outbox.route.topic.replacement": "%s.event.${routedByValue}"}}`, name, host, port, db.Name, name, name, name)

	d := harness.Debezium(t, sandbox.DebeziumOptions{Brokers: brokers.Addrs})
	start := func() {
		t.Helper()
		if err := d.Post(t.Context(), connector); err != nil {
			t.Fatal(err)
		}
		if err := d.AwaitRunning(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		relaytest.Eventually(t, "the slot is active", func() (bool, string) {
			return harness.Query[bool](t, db, "SELECT coalesce(bool_or(active), false) FROM pg_replication_slots WHERE slot_name = $1", name), d.Log()
		})
	}
	arrived := func(n int) {
		t.Helper()
		relaytest.Eventually(t, "the records arrived", func() (bool, string) { return len(brokers.Read(t, topic)) >= n, d.Log() })
	}

	start()
	db.Exec(t, `INSERT INTO outbox VALUES (1, 'Order', 'a', 'x')`)
	arrived(1)
	if err := d.Kill(); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, `INSERT INTO outbox VALUES (2, 'Order', 'b', 'x')`)
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	start()
	arrived(2)
	if err := d.Halt(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if state, err := d.Await(t.Context(), name, func(s sandbox.ConnectorState) bool { return s.Connector == "STOPPED" }); err != nil {
		t.Fatal(state, err)
	}
	var refused *sandbox.ConnectError
	if err := d.Post(t.Context(), connector); !errors.As(err, &refused) || !strings.Contains(refused.Message, "already exists") {
		t.Errorf("the same connector again: %v", err)
	}
	switch err := d.Stop(20 * time.Second); {
	case errors.Is(err, sandbox.ErrKilled):
		t.Log(err) // how Kafka Connect ends is not what is tested; it has stored and shown everything by now
	case err != nil:
		t.Fatal(err)
	}
}
