package integration

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

func contains(text, part string) bool { return strings.Contains(text, part) }

// notPast fails the test if the transaction that ended before a position, and was not
// delivered, is confirmed. Up to where it commits a relay may confirm what it hears of
// the server, so a position from before the transaction is no bound.
func notPast(t *testing.T, p *relaytest.Pipeline, end wal.LSN) {
	t.Helper()
	if confirmed := p.Confirmed(t); confirmed >= end {
		t.Errorf("confirmed %s, past what was written before %s and not delivered", confirmed, end)
	}
}

// Server 18 answers a missing publication with a notice and skips rows in
// silence; the relay must not confirm past them.
func TestPublication_DroppedInMidStreamBlocksAndLosesNothing(t *testing.T) {
	t.Parallel()
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		p, w := outbox(t, db, harness.Kfake(t, kfakeDefault))
		r := p.Start(t)
		w.Insert(t, 10)
		p.AwaitCaughtUp(t)
		db.Exec(t, "DROP PUBLICATION "+p.Slot)
		w.Insert(t, 10)
		end := p.WALEnd(t)
		status := r.AwaitBlocked(t, "publication_missing")
		if !contains(status.Message, p.Slot) {
			t.Errorf("message %q does not name the publication", status.Message)
		}
		notPast(t, p, end)
	})
}

// The notice alone is enough: the look from beside the stream may come too late.
func TestPublication_TheServersNoticeBlocks(t *testing.T) {
	t.Parallel()
	p, w := outbox(t, harness.Postgres(t, "18"), harness.Kfake(t, kfakeDefault))
	settings := p.Settings()
	settings.ProbeInterval = time.Hour
	r := p.StartWith(t, settings, relay.Events{})
	w.Insert(t, 10)
	p.AwaitCaughtUp(t)
	p.DB.Exec(t, "DROP PUBLICATION "+p.Slot)
	w.Insert(t, 10)
	end := p.WALEnd(t)
	r.AwaitBlocked(t, "publication_missing")
	notPast(t, p, end)
}

// Up to version 17 the server ends the copy with an error at a row from before its
// publication. What lies before that row comes in the same moment.
func TestPublication_AwayForARowLeavesTheRowsBeforeItDelivered(t *testing.T) {
	t.Parallel()
	p, w := outbox(t, harness.Postgres(t, "15"), harness.Kfake(t, kfakeDefault))
	w.Insert(t, 10)
	for _, sql := range []string{
		"DROP PUBLICATION " + p.Slot,
		"INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('unread', gen_random_uuid(), 'Unread', '{}')",
		"CREATE PUBLICATION " + p.Slot + " FOR TABLE outbox WITH (publish = 'insert')",
	} {
		p.DB.Exec(t, sql)
	}
	settings := p.Settings()
	settings.OnBlocked = relay.ExitWhenBlocked
	r := p.StartWith(t, settings, relay.Events{})
	if err := r.Wait(t); postgres.Reason(err) != "publication_missing" {
		t.Errorf("it ended with %v", err)
	}
	w.Verify(t)
}

// Rows written while the table was not published are not in the stream, so the
// relay does not go on by itself once it is published again: somebody has to
// look, and starts it anew.
func TestTable_TakenOutOfThePublicationBlocksUntilARestart(t *testing.T) {
	t.Parallel()
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		p, w := outbox(t, db, harness.Kfake(t, kfakeDefault))
		r := p.Start(t)
		w.Insert(t, 10)
		p.AwaitCaughtUp(t)
		db.Exec(t, "CREATE TABLE other (id int); ALTER PUBLICATION "+p.Slot+" SET TABLE other")
		status := r.AwaitBlocked(t, "table_unpublished")
		if !contains(status.Message, "public.outbox") {
			t.Errorf("message %q does not name the table", status.Message)
		}
		db.Exec(t, "ALTER PUBLICATION "+p.Slot+" SET TABLE outbox")
		r.Stop(t)
		r = p.Start(t)
		r.AwaitStreaming(t)
		w.Insert(t, 10)
		p.AwaitCaughtUp(t)
		r.Stop(t)
		w.Verify(t)
	})
}

// What the mapping does not use may change under the stream.
func TestDDL_OnUnmappedColumnsIsFollowed(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *harness.Database, brokers *harness.Brokers) {
		p, w := outbox(t, db, brokers)
		r := p.Start(t)
		for _, ddl := range []string{
			"ALTER TABLE outbox ADD COLUMN tenant text DEFAULT 'a'",
			"ALTER TABLE outbox ADD COLUMN attempts int",
			"ALTER TABLE outbox ALTER attempts TYPE bigint",
			"ALTER TABLE outbox DROP COLUMN attempts",
			"ALTER TABLE outbox RENAME COLUMN tenant TO customer",
			"ALTER TABLE outbox ALTER event_type TYPE varchar(100)",
			"CREATE INDEX ON outbox (customer)",
			"VACUUM FULL outbox",
		} {
			w.Insert(t, 5)
			db.Exec(t, ddl)
			w.Insert(t, 5)
		}
		p.AwaitCaughtUp(t)
		r.Stop(t)
		if duplicates := w.Verify(t); duplicates != 0 {
			t.Errorf("duplicates = %d", duplicates)
		}
	})
}

func TestDDL_OnAMappedColumnBlocksBeforeTheFirstRowOfTheNewShape(t *testing.T) {
	t.Parallel()
	for name, ddl := range map[string]string{
		"renamed": "ALTER TABLE outbox RENAME COLUMN payload TO body",
		"dropped": "ALTER TABLE outbox DROP COLUMN payload",
	} {
		t.Run(name, func(t *testing.T) {
			harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
				p, w := outbox(t, db, harness.Kfake(t, kfakeDefault))
				r := p.Start(t)
				w.Insert(t, 20)
				p.AwaitCaughtUp(t)
				db.Exec(t, ddl)
				if name == "renamed" {
					db.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, body) VALUES ('x', gen_random_uuid(), 'x', '{}')")
				} else {
					db.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type) VALUES ('x', gen_random_uuid(), 'x')")
				}
				end := p.WALEnd(t)
				status := r.AwaitBlocked(t, "schema")
				for _, part := range []string{"public.outbox", "payload"} {
					if !contains(status.Message, part) {
						t.Errorf("message %q does not name %s", status.Message, part)
					}
				}
				notPast(t, p, end)
				w.Verify(t)
			})
		})
	}
}

// A slot that somebody drops under a blocked or streaming relay is never made
// anew: what it missed would be lost in silence.
func TestSlot_DroppedInMidStreamBlocks(t *testing.T) {
	t.Parallel()
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		p, w := outbox(t, db, harness.Kfake(t, kfakeDefault))
		r := p.Start(t)
		w.Insert(t, 10)
		p.AwaitCaughtUp(t)
		conn := db.Connect(t)
		relaytest.Eventually(t, "the slot is dropped", func() (bool, string) {
			return harness.Query[int](t, db, `WITH ended AS (SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1)
				SELECT count(*) FROM ended`, p.Slot) == 1 && dropSlot(t, conn, p.Slot), "it is in use"
		})
		status := r.AwaitBlocked(t, "slot_missing")
		if !contains(status.Message, p.Slot) {
			t.Errorf("message %q does not name the slot", status.Message)
		}
		if n := harness.Query[int](t, db, "SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1", p.Slot); n != 0 {
			t.Error("the relay made the slot anew")
		}
	})
}

func dropSlot(t *testing.T, conn *pgx.Conn, slot string) bool {
	t.Helper()
	_, err := conn.Exec(t.Context(), "SELECT pg_drop_replication_slot($1)", slot)
	return err == nil
}

// A change is noticed by the next look. What was written since the last one may be missing
// before the confirmed position, and the message names where to look for it.
func TestPublication_DriftNamesWhereToLook(t *testing.T) {
	t.Parallel()
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		brokers := harness.Kfake(t, kfakeDefault)
		p := relaytest.New(t, db, brokers, []string{"{table: public.outbox}"})
		p.Setup(t)
		w := p.NewWorkload(t, "outbox", harness.Unique(t, "order"))
		brokers.CreateTopic(t, w.Topic(), 1)
		r := p.Start(t)
		r.AwaitStreaming(t)
		w.Insert(t, 1)
		p.AwaitCaughtUp(t)
		dropped := p.WALEnd(t)
		db.Exec(t, "ALTER PUBLICATION "+p.Slot+" DROP TABLE outbox")
		w.Insert(t, 1) // a row that no stream will have
		missing := p.WALEnd(t)
		db.Exec(t, "CREATE TABLE other AS SELECT generate_series(1, 1000)")
		status := r.AwaitBlocked(t, "table_unpublished")
		found := regexp.MustCompile(`rows written after ([0-9A-F]+/[0-9A-F]+) may be missing`).FindStringSubmatch(status.Message)
		if found == nil {
			t.Fatalf("the message %q names no position", status.Message)
		}
		if at, err := wal.ParseLSN(found[1]); err != nil || at > missing {
			t.Errorf("look behind %s: the row that is missing lies before %s, the publication was changed behind %s", found[1], missing, dropped)
		}
		r.Stop(t)
	})
}
