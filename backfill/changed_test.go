package backfill

import (
	"context"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// change is a statement that changes the table, and waits for who reads it.
type change struct {
	pid  uint32
	done chan error
}

// changes begins one, and returns once it waits for a lock or is done.
func (s *scene) changes(t *testing.T, sql string) *change {
	t.Helper()
	conn := s.db.Connect(t)
	c := &change{conn.PgConn().PID(), make(chan error, 1)}
	go func() { _, err := conn.Exec(context.WithoutCancel(t.Context()), sql); c.done <- err }()
	wait(t.Context(), func() bool { return c.over() || s.waits(t, c.pid) })
	return c
}

func (c *change) over() bool { return len(c.done) > 0 }

func (s *scene) waits(t *testing.T, pid uint32) bool {
	t.Helper()
	return harness.Query[bool](t, s.db, "SELECT count(*) > 0 FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'", int64(pid))
}

// ends requires it to go on once nobody holds the table.
func (c *change) ends(t *testing.T) {
	t.Helper()
	select {
	case err := <-c.done:
		if err != nil {
			t.Fatal(err)
		}
	case <-t.Context().Done():
		t.Fatal("the change waits although nothing holds the table")
	}
}

// later writes rows that are the stream's, whatever columns there are.
func (s *scene) later(t *testing.T, from, to int) {
	t.Helper()
	s.db.Exec(t, `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) SELECT n, 'a', (n % 5)::text, 'e', n::text FROM generate_series($1::int, $2) n`, from, to)
}

var byID = Options{All: true, Yes: true, Order: []string{"id"}, MaxRate: 1000}

// A change of the table waits until all rows are read. They are sent as they were, and the stream
// goes on with the table as it is then.
func TestBackfill_AChangeWaitsForTheRows(t *testing.T) {
	t.Parallel()
	for _, version := range harness.VersionsFor(t) {
		for _, sql := range []string{"ALTER TABLE outbox ADD extra int DEFAULT 7", "ALTER TABLE outbox DROP COLUMN created_at", "TRUNCATE outbox"} {
			t.Run(version+" "+sql, func(t *testing.T) {
				t.Parallel()
				s := play(t, harness.Postgres(t, version), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
				s.write(t, 1, 3000)
				begun := make(chan *change, 1)
				go func() {
					wait(t.Context(), func() bool { return len(s.committed(t)) >= some })
					begun <- s.changes(t, sql)
				}()
				early := false
				quick := byID
				quick.MaxRate = 3000 // what was sent waits for the change
				text, err := s.attempt(t.Context(), quick, func(step string) {
					if step == "sent" {
						c := <-begun
						early = c.over()
						begun <- c
					}
				})
				if err != nil {
					t.Fatalf("%v\n%s", err, text)
				}
				if early {
					t.Error("the table was changed before its rows were read")
				}
				(<-begun).ends(t)
				s.later(t, 3001, 3100)
				s.stream(t)
				complete(t, s.committed(t), 3100, true)
			})
		}
	}
}

// A change that waits for the snapshot while the snapshot's reader is still to lock the table, or to
// lock it again, would wait for ever, and writers behind it. The backfill gives way to it, and
// goes on with the next call.
func TestBackfill_GivesWayToAChangeThatItsReaderWaitsBehind(t *testing.T) {
	t.Parallel()
	givesWay := func(t *testing.T, s *scene, options Options, onStep func(string)) {
		t.Helper()
		text, err := s.attempt(t.Context(), options, onStep)
		if postgres.Reason(err) != fault.ReasonLockTimeout || !strings.Contains(err.Error(), "public.outbox") || !strings.Contains(err.Error(), "run the command again") {
			t.Fatalf("it ended with %v\n%s", err, text)
		}
	}
	for _, guarantee := range []string{"at_least_once", "exactly_once"} {
		t.Run("before the first row, "+guarantee, func(t *testing.T) {
			t.Parallel()
			s := play(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, guarantee)...)
			s.write(t, 1, 500)
			var c *change
			givesWay(t, s, byID, func(step string) {
				if step == "snapshot_taken" {
					c = s.changes(t, "ALTER TABLE outbox ADD extra int DEFAULT 7")
				}
			})
			c.ends(t)
			s.must(t, byID)
			s.later(t, 501, 600)
			s.stream(t)
			complete(t, s.committed(t), 600, true)
		})
		t.Run("after a lost reader, "+guarantee, func(t *testing.T) {
			t.Parallel()
			s := play(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, guarantee)...)
			s.db.Exec(t, "ALTER TABLE outbox ADD fill text DEFAULT repeat('x', 20000)") // more than a socket holds
			s.write(t, 1, 3000)
			begun := make(chan *change, 1)
			go func() {
				wait(t.Context(), func() bool { return len(s.committed(t)) >= some })
				begun <- s.changes(t, "ALTER TABLE outbox ADD extra int DEFAULT 7")
				wait(t.Context(), func() bool { // the reader may have room in its socket for a moment
					return harness.Query[int64](t, s.db, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'cdc-relay backfill' AND wait_event = 'ClientWrite'`) > 0
				})
			}()
			slow := byID
			slow.MaxRate = slowly
			givesWay(t, s, slow, nil)
			(<-begun).ends(t)
			again := byID
			again.MaxRate, again.Restart = 0, true // the table has another shape
			s.must(t, again)
			s.later(t, 3001, 3100)
			s.stream(t)
			complete(t, s.committed(t), 3100, false)
		})
	}
}
