package backfill

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A server that crashes forgets how many rows were deleted, also where it had counted none.
func TestOnline_RefusesCountsThatACrashBegan(t *testing.T) {
	t.Parallel()
	for _, version := range harness.VersionsFor(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := play(t, harness.OwnPostgres(t, sandbox.PostgresOptions{Version: version}), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "exactly_once")...)
			s.keyedRows(t, 1, 100)
			s.endsAfter(t, bucketed, "bucket_done", 1, nil)
			s.on(t, "DELETE FROM outbox WHERE aggregate_id = 'e' AND id < 50", "CHECKPOINT")
			s.crash(t)
			s.wantRefused(t, "was reset since the last bucket, as by a crash")
			s.must(t, uncounted)
		})
	}
}

// A stop that is none keeps the counts.
func TestOnline_GoesOnAfterAStopOfTheServer(t *testing.T) {
	t.Parallel()
	s := play(t, harness.OwnPostgres(t, sandbox.PostgresOptions{Version: "18"}), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "exactly_once")...)
	s.keyedRows(t, 1, 100)
	s.endsAfter(t, bucketed, "bucket_done", 1, nil)
	if err := s.db.Server.Restart(t.Context(), sandbox.Fast); err != nil {
		t.Fatal(err)
	}
	s.must(t, bucketed)
	s.stream(t)
	arrived(t, s.committed(t), 100, true)
}

// Rows that a partition had before it was attached were never in the WAL of the table.
func TestOnline_WarnsOfAPartitionThatCame(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
	s.db.Exec(t, "DROP TABLE outbox")
	s.db.Exec(t, tableSQL+" PARTITION BY RANGE (id)")
	s.db.Exec(t, "CREATE TABLE first PARTITION OF outbox FOR VALUES FROM (0) TO (1000)")
	s.keyedRows(t, 1, 100)
	buckets := 0
	text, err := s.attempt(t.Context(), bucketed, func(step string) {
		if step == "bucket_done" {
			if buckets++; buckets == 2 {
				s.db.Exec(t, "CREATE TABLE second PARTITION OF outbox FOR VALUES FROM (1000) TO (2000)")
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, "second came since the last bucket: of rows that it had before, those of the 2 buckets that are sent already are not sent") {
		t.Error(text)
	}
}

// Without the key's column no row can be divided any more: a person has to decide.
func TestOnline_RefusesATableWithoutItsKey(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
	s.keyedRows(t, 1, 100)
	renamed := false
	text, err := s.attempt(t.Context(), bucketed, func(step string) {
		if step == "bucket_done" && !renamed {
			renamed = true
			s.db.Exec(t, "ALTER TABLE outbox RENAME aggregate_id TO aggregate_number")
			s.db.Exec(t, "INSERT INTO outbox VALUES (101, 'a', 'c', 'e', '1')")
		}
	})
	if refused, ok := errors.AsType[*advice.Refused](err); !ok || !strings.Contains(refused.Error(), `has no column "aggregate_id" any more`) {
		t.Errorf("%T: %v\n%s", err, err, text)
	}
}

// A publication that lost the table for a moment lacks rows of buckets that are sent. The call says since where, and does
// not end as if all were well.
func TestOnline_SaysThatThePublicationWasChanged(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "exactly_once")...)
	s.keyedRows(t, 1, 100)
	s.endsAfter(t, bucketed, "bucket_done", 2, nil)
	s.db.Exec(t, "ALTER PUBLICATION "+s.slot+" DROP TABLE outbox")
	s.keyed(t, 101, 0)
	s.db.Exec(t, "ALTER PUBLICATION "+s.slot+" ADD TABLE outbox")
	written := harness.Query[string](t, s.db, "SELECT pg_current_wal_insert_lsn()::text")
	text, err := s.attempt(t.Context(), bucketed, nil)
	if refused, ok := errors.AsType[*advice.Refused](err); !ok || !strings.Contains(refused.Error(), "the backfill is complete, but for rows of table public.outbox") {
		t.Errorf("%v\n%s", err, text)
	}
	since := regexp.MustCompile(`public\.outbox was changed since ([0-9A-F/]+)`).FindAllStringSubmatch(text, -1)
	if len(since) != 2 || since[0][1] != since[1][1] || harness.Query[bool](t, s.db, "SELECT $1::pg_lsn >= $2::pg_lsn", since[0][1], written) {
		t.Errorf("it says since %v, and the row was written before %s\n%s", since, written, text)
	}
}

// What run would have to do next does not help a backfill.
func TestOnline_SaysHowToGoOnWithoutItsPublication(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "exactly_once")...)
	s.keyedRows(t, 1, 100)
	s.endsAfter(t, bucketed, "bucket_done", 2, nil)
	s.db.Exec(t, "DROP PUBLICATION "+s.slot)
	s.keyed(t, 101, 0)
	text, err := s.attempt(t.Context(), bucketed, nil)
	refused, ok := errors.AsType[*advice.Refused](err)
	if !ok || !strings.Contains(refused.Error(), "--restart") || strings.Contains(refused.Error(), "teardown") {
		t.Fatalf("%v\n%s", err, text)
	}
	again := bucketed
	again.Restart = true
	s.must(t, again)
}

// With exactly-once nothing is sent twice because somebody deleted the record of what was sent.
func TestBackfill_RefusesASlotWithoutItsRecord(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]Options{"online": bucketed, "of one snapshot": all} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "exactly_once")...)
			s.keyedRows(t, 1, 100)
			step := map[bool]string{true: "bucket_done", false: "sent"}[options.Online]
			s.endsAfter(t, options, step, 1, nil)
			other := s.with(t, "relay.guarantee=exactly_once", "relay.checkpoint_topic="+harness.Unique(t, "empty"))
			text, err := other.attempt(t.Context(), options, nil)
			if refused, ok := errors.AsType[*advice.Refused](err); !ok || !strings.Contains(refused.Error(), "there is no record of the backfill that made slot") {
				t.Errorf("%v\n%s", err, text)
			}
			s.must(t, options)
			s.stream(t)
			arrived(t, s.committed(t), 100, true)
		})
	}
}

// A lost slot has the next call begin anew, which needs the operator's word again, and says how much is repeated.
func TestOnline_AsksForTheWordAgainWhereItBeginsAnew(t *testing.T) {
	t.Parallel()
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Version: "18", Settings: map[string]string{"max_slot_wal_keep_size": "64MB"}})
	s := play(t, db, harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
	s.keyedRows(t, 1, 100)
	s.endsAfter(t, bucketed, "bucket_done", 2, nil)
	for range 10 {
		db.Exec(t, "SELECT pg_logical_emit_message(true, 'x', 'x'), pg_switch_wal()")
	}
	db.Exec(t, "CHECKPOINT")
	text, err := s.attempt(t.Context(), Options{Yes: true}, nil)
	if refused, ok := errors.AsType[*advice.Refused](err); !ok || !strings.Contains(refused.Error(), "cannot be continued, and starts from the beginning") || !strings.Contains(refused.Error(), "--online --all --rows-are-kept --yes") {
		t.Fatalf("%v\n%s", err, text)
	}
	if text := s.must(t, bucketed); !strings.Contains(text, "rows that it sent will be repeated") {
		t.Error(text)
	}
	s.stream(t)
	arrived(t, s.committed(t), 100, false)
}
