package integration

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// restored is a server whose disk is put back to a copy of it, under a relay with exactly-once. That makes no new
// timeline, and new rows get positions that the checkpoint covers.
type restored struct {
	db    *harness.Database
	p     *relaytest.Pipeline
	topic string
	rows  string // writes them
}

func newRestored(t *testing.T) *restored {
	t.Helper()
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Version: harness.Versions()[0]})
	p, w := exactlyOnce(t, db, harness.Kfake(t, kfakeDefault), "")
	return &restored{db, p, w.Topic(), `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
		SELECT $1, gen_random_uuid(), $2, to_jsonb(repeat('x', $4)) FROM generate_series(1, $3)`}
}

// newRestoredMessages has messages outside any transaction for rows.
func newRestoredMessages(t *testing.T) *restored {
	t.Helper()
	s := newRestored(t)
	s.p = relaytest.New(t, s.db, s.p.Brokers, []string{"{message_prefix: outbox}"}, "relay: {guarantee: exactly_once, checkpoint_topic: "+s.p.Settings().CheckpointTopic+"}")
	s.p.Setup(t)
	s.rows = `SELECT pg_logical_emit_message(false, 'outbox', json_build_object('id', gen_random_uuid(), 'aggregateType', $1::text, 'aggregateId', 'a',
		'type', $2::text, 'payload', repeat('x', $4))::text) FROM generate_series(1, $3)`
	return s
}

func (s *restored) insert(t *testing.T, event string, n, size int) {
	t.Helper()
	s.db.Exec(t, s.rows, strings.TrimSuffix(s.topic, "-events"), event, n, size)
}

// delivered counts the records by event.
func (s *restored) delivered(t *testing.T) map[string]int {
	t.Helper()
	found := map[string]int{}
	for _, record := range readCommitted(t, s.p, s.topic) {
		found[header(record, "eventType")]++
	}
	return found
}

func TestExactlyOnce_ADiskThatIsPutBackLosesNoNewRow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		restored func(*testing.T) *restored
		beyond   bool
	}{
		"whose WAL ends before the checkpoint": {newRestored, false},
		"that was written past the checkpoint": {newRestored, true},
		"that was written past a message":      {newRestoredMessages, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := c.restored(t)
			r := s.p.Start(t)
			r.AwaitStreaming(t)
			s.insert(t, "first", 5, 10)
			s.p.AwaitCaughtUp(t)
			putBack := s.db.CopyDisk(t)
			s.insert(t, "gone", 500, 1000)
			s.p.AwaitCaughtUp(t)
			r.Stop(t)

			putBack()
			s.insert(t, "new", 3, 10)
			if c.beyond {
				s.db.Exec(t, "SELECT pg_switch_wal()")
			}
			r = s.p.Start(t)
			r.Await(t, "the rows that are gone are reported", func(s status.Status) bool { return s.State == status.Streaming && s.DataLoss == 1 })
			s.insert(t, "new", 4, 10)
			s.p.AwaitCaughtUp(t)
			r.Stop(t)
			if found := s.delivered(t); found["new"] != 7 || found["first"] < 5 || found["gone"] != 500 {
				t.Errorf("delivered %v", found)
			}
		})
	}
}

// Only other tables were written after the copy, so the checkpoint's last row is in it.
func TestExactlyOnce_ADiskThatIsPutBackUnderOtherTablesRepeatsNothing(t *testing.T) {
	t.Parallel()
	s := newRestored(t)
	s.db.Exec(t, "CREATE TABLE other AS SELECT 1 AS n")
	r := s.p.Start(t)
	r.AwaitStreaming(t)
	s.insert(t, "first", 5, 10)
	s.p.AwaitCaughtUp(t)
	putBack := s.db.CopyDisk(t)
	s.db.Exec(t, "INSERT INTO other SELECT generate_series(1, 20000)")
	s.p.AwaitCaughtUp(t)
	r.Stop(t)
	before := s.delivered(t)["first"]

	putBack()
	s.insert(t, "new", 3, 10)
	s.db.Exec(t, "SELECT pg_switch_wal()")
	r = s.p.Start(t)
	r.AwaitStreaming(t)
	s.insert(t, "new", 4, 10)
	s.p.AwaitCaughtUp(t)
	r.Await(t, "nothing is taken for lost", func(s status.Status) bool { return s.DataLoss == 0 })
	r.Stop(t)
	if found := s.delivered(t); found["new"] != 7 || found["first"] != before {
		t.Errorf("delivered %v, and %d first ones before", found, before)
	}
}

// A server that crashes has the slot where it was last saved, behind what the checkpoint covers. The stream shows
// the checkpoint's last transaction, so nothing is taken for lost, and nothing is sent again.
func TestExactlyOnce_ACrashOfTheServerRepeatsNothing(t *testing.T) {
	t.Parallel()
	for name, restored := range map[string]func(*testing.T) *restored{"rows": newRestored, "messages outside any transaction": newRestoredMessages} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := restored(t)
			r := s.p.Start(t)
			r.AwaitStreaming(t)
			s.db.Exec(t, "CHECKPOINT")
			s.insert(t, "first", 50, 1000)
			s.p.AwaitCaughtUp(t)
			s.db.Exec(t, "SELECT pg_logical_emit_message(false, 'filler', repeat('x', 3000000))") // the checkpoint is far behind the last row
			s.p.AwaitCaughtUp(t)
			r.Stop(t)
			before := s.p.Confirmed(t)
			stop(t, s.db, sandbox.Immediate)
			start(t, s.db)
			t.Logf("the slot went from %s back to %s", before, s.p.Confirmed(t))
			r = s.p.Start(t)
			r.AwaitStreaming(t)
			s.insert(t, "second", 2, 10)
			s.p.AwaitCaughtUp(t)
			r.Await(t, "nothing is taken for lost", func(s status.Status) bool { return s.DataLoss == 0 })
			r.Stop(t)
			if found := s.delivered(t); found["first"] != 50 || found["second"] != 2 {
				t.Errorf("delivered %v", found)
			}
		})
	}
}
