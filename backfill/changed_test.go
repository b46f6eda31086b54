package backfill

import (
	"sync"
	"testing"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A change of the table waits from the snapshot on until all rows are read. They are sent as they
// were, and the stream goes on with the table as it is then.
func TestBackfill_AnAlterWaitsForTheRows(t *testing.T) {
	t.Parallel()
	for _, version := range harness.Versions() {
		for _, sql := range []string{"ALTER TABLE outbox ADD extra int DEFAULT 7", "ALTER TABLE outbox DROP COLUMN created_at", "TRUNCATE outbox"} {
			t.Run(version+" "+sql, func(t *testing.T) {
				t.Parallel()
				s := play(t, harness.Postgres(t, version), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
				s.write(t, 1, 2000)
				conn := s.db.Connect(t)
				changed := make(chan error, 1)
				var changing sync.WaitGroup
				done := func() bool { return len(changed) > 0 }
				text, err := s.attempt(t.Context(), Options{All: true, Yes: true, Order: []string{"id"}}, func(step string) {
					switch step {
					case "snapshot_taken": // and no row is read
						changing.Go(func() { _, err := conn.Exec(t.Context(), sql); changed <- err })
						wait(t.Context(), func() bool {
							return done() || harness.Query[bool](t, s.db, "SELECT count(*) > 0 FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'", conn.PgConn().PID())
						})
					case "sent":
						if done() {
							t.Error("the table was changed before its rows were read")
						}
					}
				})
				if err != nil {
					t.Fatalf("%v\n%s", err, text)
				}
				changing.Wait()
				if err := <-changed; err != nil {
					t.Fatal(err)
				}
				s.db.Exec(t, `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) SELECT n, 'a', (n % 5)::text, 'e', n::text FROM generate_series(2001, 2100) n`)
				s.stream(t)
				complete(t, s.committed(t), 2100, true)
			})
		}
	}
}
