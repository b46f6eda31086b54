package integration

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// Rows wait in the slot while a mapped column gets another type: from one that has no exact
// binary form to one that has.
func TestTypeChange_RowsFromBeforeItAreDelivered(t *testing.T) {
	t.Parallel()
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		for _, kind := range []string{"kind", "numeric"} {
			t.Run(kind, func(t *testing.T) {
				schema := harness.Unique(t, "types")
				brokers := harness.Kfake(t, kfakeDefault)
				db.Exec(t, "CREATE SCHEMA "+schema)
				db.Exec(t, "CREATE TYPE "+schema+".kind AS ENUM ('1', '2')")
				if kind == "kind" {
					kind = schema + ".kind"
				}
				table := schema + ".outbox"
				db.Exec(t, "CREATE TABLE "+table+" (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_type text, aggregate_id text, event_type "+kind+", payload jsonb)")
				p := relaytest.New(t, db, brokers, []string{"{table: " + table + ", preset: outbox}"})
				p.Setup(t)
				brokers.CreateTopic(t, "order-events", 1)
				insert := func(event string) {
					db.Exec(t, "INSERT INTO "+table+" (aggregate_type, aggregate_id, event_type, payload) SELECT 'order', 'a', '"+event+"', '{}' FROM generate_series(1, 10)")
				}
				insert("1")
				db.Exec(t, "ALTER TABLE "+table+" ALTER COLUMN event_type TYPE text USING event_type::text")
				insert("2")
				r := p.Start(t)
				r.Await(t, "all rows", func(s status.Status) bool { return s.EventsPublished == 20 })
				if n := r.Status().Reconnects; n != 0 {
					t.Errorf("%d reconnects are counted for a session that was to read text", n)
				}
				r.Stop(t)
				if n := len(brokers.Read(t, "order-events")); n != 20 {
					t.Errorf("%d records for 20 rows", n)
				}
			})
		}
	})
}

// A column was added while the relay was stopped. It starts, delivers and confirms rows from
// before and after. Then PostgreSQL crashes, which takes the slot back to before the column.
func TestCrash_BehindAnAddedColumnIsPassed(t *testing.T) {
	t.Parallel()
	for _, version := range harness.VersionsFor(t) {
		t.Run(version, func(t *testing.T) {
			db := harness.OwnPostgres(t, sandbox.PostgresOptions{Version: version})
			brokers := harness.Kfake(t, kfakeDefault)
			db.Exec(t, "CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_type text, aggregate_id text, event_type text, payload jsonb)")
			p := relaytest.New(t, db, brokers, []string{"{table: public.outbox, preset: outbox}"})
			p.Setup(t)
			brokers.CreateTopic(t, "order-events", 1)
			db.Exec(t, "CHECKPOINT")
			insert := func() {
				db.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT 'order', 'a', 'x', '{}' FROM generate_series(1, 5)")
			}
			insert()
			db.Exec(t, "ALTER TABLE outbox ADD COLUMN traceparent text")
			insert()
			r := p.Start(t)
			p.AwaitCaughtUp(t)
			stop(t, db, sandbox.Immediate)
			start(t, db)
			insert()
			r.Await(t, "all rows", func(s status.Status) bool { return s.State == status.Streaming && s.EventsPublished >= 15 }) // 15 where the server had saved the slot
			p.AwaitCaughtUp(t)
			r.Stop(t)
		})
	}
}
