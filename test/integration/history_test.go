package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// A standby that lags is promoted: rows were delivered that the new primary does not
// have. The relay goes on with what it has, says so, and does not take rows from the
// old primary when that comes back.
func TestHistory_PromotedStandbyIsFollowedAndTheOldPrimaryRefused(t *testing.T) {
	t.Parallel()
	for _, version := range harness.Versions() {
		t.Run("postgres"+version, func(t *testing.T) {
			t.Parallel() // servers of its own, whose stops take their time
			db := harness.OwnPostgres(t, sandbox.PostgresOptions{Version: version})
			brokers := harness.Kfake(t, kfakeDefault)
			p := relaytest.New(t, db, brokers, []string{"{table: public.outbox}"})
			p.Setup(t)
			topic := harness.Unique(t, "order")
			brokers.CreateTopic(t, topic+"-events", 1)
			insert := func(n int) {
				db.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT $1, gen_random_uuid(), 'x', '{}' FROM generate_series(1, $2)", topic, n)
			}
			delivered := func() int { // events; an older server takes its slot back when it stops
				events := map[string]bool{}
				for _, record := range brokers.Read(t, topic+"-events") {
					events[string(record.Headers[0].Value)] = true
				}
				return len(events)
			}
			r := p.Start(t)
			r.AwaitStreaming(t)
			insert(10)
			p.AwaitCaughtUp(t)

			// The standby is the primary's files of this moment; it gets no WAL after it.
			stop(t, db, sandbox.Fast)
			data := filepath.Join(db.Server.Dir(), "data")
			primary, standby := data+".primary", data+".standby"
			if out, err := exec.CommandContext(t.Context(), "cp", "-a", data, standby).CombinedOutput(); err != nil {
				t.Fatalf("copy the files: %v\n%s", err, out)
			}
			start(t, db)
			r.AwaitStreaming(t)
			insert(5)
			p.AwaitCaughtUp(t)
			lost := p.Confirmed(t)
			r.Await(t, "the rows that will be lost are confirmed", func(s status.Status) bool { return s.LSN.Confirmed >= status.Position(lost) })

			stop(t, db, sandbox.Immediate)
			rename(t, data, primary)
			rename(t, standby, data)
			if err := os.WriteFile(filepath.Join(data, "standby.signal"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			start(t, db)
			db.Exec(t, "SELECT pg_promote()")
			r.Await(t, "the lost rows are reported", func(s status.Status) bool { return s.State == status.Streaming && s.DataLoss == 1 })
			insert(3)
			p.AwaitCaughtUp(t)
			if n := delivered(); n != 18 {
				t.Errorf("%d events, want 10, the 5 of the old primary and 3 of the new one", n)
			}

			stop(t, db, sandbox.Fast)
			rename(t, data, standby)
			rename(t, primary, data)
			start(t, db)
			insert(7)
			r.Await(t, "the old primary is refused", func(s status.Status) bool { return s.State == status.Reconnecting && s.Reason == "stale_primary" })
			if n := delivered(); n != 18 {
				t.Errorf("%d events after the old primary came back, want 18", n)
			}

			stop(t, db, sandbox.Immediate)
			rename(t, data, primary)
			rename(t, standby, data)
			start(t, db)
			insert(2)
			p.AwaitCaughtUp(t)
			r.AwaitStreaming(t)
			r.Stop(t)
			if n := delivered(); n != 20 {
				t.Errorf("%d events in the end, want 20", n)
			}
		})
	}
}

func stop(t *testing.T, db *harness.Database, mode sandbox.StopMode) {
	t.Helper()
	if err := db.Server.Stop(t.Context(), mode); err != nil {
		t.Fatal(err)
	}
}

func start(t *testing.T, db *harness.Database) {
	t.Helper()
	if err := db.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}
