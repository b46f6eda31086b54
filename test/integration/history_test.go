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
	for _, version := range harness.VersionsFor(t) {
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

			servers := newTwoServers(t, db)
			r.AwaitStreaming(t)
			insert(5)
			p.AwaitCaughtUp(t)
			lost := p.Confirmed(t)
			r.Await(t, "the rows that will be lost are confirmed", func(s status.Status) bool { return s.LSN.Confirmed >= status.Position(lost) })

			stop(t, db, sandbox.Immediate)
			servers.promote(t)
			r.Await(t, "the lost rows are reported", func(s status.Status) bool { return s.State == status.Streaming && s.DataLoss == 1 })
			insert(3)
			p.AwaitCaughtUp(t)
			if n := delivered(); n != 18 {
				t.Errorf("%d events, want 10, the 5 of the old primary and 3 of the new one", n)
			}

			stop(t, db, sandbox.Fast)
			servers.startPrimary(t)
			insert(7)
			r.Await(t, "the old primary is refused", func(s status.Status) bool { return s.State == status.Reconnecting && s.Reason == "stale_primary" })
			if n := delivered(); n != 18 {
				t.Errorf("%d events after the old primary came back, want 18", n)
			}

			stop(t, db, sandbox.Immediate)
			servers.startStandby(t)
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

// twoServers are a primary and a standby that take turns at one address.
type twoServers struct {
	db                     *harness.Database
	data, primary, standby string // folders: of the server that runs, and of each while it does not
}

// newTwoServers gives the standby the primary's files of this moment; it gets no WAL
// after it. The primary runs.
func newTwoServers(t *testing.T, db *harness.Database) *twoServers {
	t.Helper()
	data := filepath.Join(db.Server.Dir(), "data")
	s := &twoServers{db: db, data: data, primary: data + ".primary", standby: data + ".standby"}
	stop(t, db, sandbox.Fast)
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", s.data, s.standby).CombinedOutput(); err != nil {
		t.Fatalf("copy the files: %v\n%s", err, out)
	}
	start(t, db)
	return s
}

// promote starts the standby in the place of the primary, which is stopped, and promotes it.
func (s *twoServers) promote(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.standby, "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s.startStandby(t)
	s.db.Exec(t, "SELECT pg_promote()")
}

// startPrimary starts the old primary in the place of the new one, which is stopped.
func (s *twoServers) startPrimary(t *testing.T) {
	t.Helper()
	rename(t, s.data, s.standby)
	rename(t, s.primary, s.data)
	start(t, s.db)
}

// startStandby starts the new primary in the place of the old one, which is stopped.
func (s *twoServers) startStandby(t *testing.T) {
	t.Helper()
	rename(t, s.data, s.primary)
	rename(t, s.standby, s.data)
	start(t, s.db)
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
