package backfill

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres/snapshot"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// stopAt is a call that is interrupted at a step.
func (s *scene) stopAt(t *testing.T, options Options, at func(step string) bool) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	text, err := s.attempt(ctx, options, func(step string) {
		if at(step) {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("%v\n%s", err, text)
	}
	return text
}

// The plan of a call that goes on is about the buckets that are left.
func TestOnline_ForetellsTheRest(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
	s.write(t, 1, 1000)
	plan := Options{Online: true, All: true, Buckets: 4, MaxRate: 100}
	if text := s.must(t, plan); !strings.Contains(text, "\ntakes about 14s: 100 rows a second") { // 10 for the rows, 4 for the buckets
		t.Error(text)
	}
	sent := 0
	s.stopAt(t, bucketed, func(step string) bool {
		if step == "bucket_done" {
			sent++
		}
		return sent == 3
	})
	if text := s.must(t, Options{MaxRate: 100}); !strings.Contains(text, "3 of 4 buckets") || !strings.Contains(text, "\nthe rest takes about 4s: 100 rows a second") || !strings.Contains(text, "comes 1 time on top") {
		t.Error(text)
	}
	s.stopAt(t, bucketed, func(step string) bool { return step == "bucket_done" })
	text := s.must(t, Options{MaxRate: 100})
	if !strings.Contains(text, "4 of 4 buckets") || !strings.Contains(text, "all buckets are sent") || strings.Contains(text, "takes about") {
		t.Error(text)
	}
	s.must(t, bucketed)
}

// The plan names an index as long as there is none, of each table and partition.
func TestOnline_SeesTheIndexThatIsThere(t *testing.T) {
	t.Parallel()
	made := regexp.MustCompile(`CREATE INDEX CONCURRENTLY ON \S+ (.*)`)
	const by = "each bucket reads its own rows by an index of table public.outbox"
	for _, version := range harness.VersionsFor(t) {
		for name, tt := range map[string]struct {
			table, rows string
			leaves      []string
			how         string
		}{
			"table": {tableSQL, "INSERT INTO outbox SELECT n, 'a', n::text, 'e', n::text FROM generate_series(1, 3) n", []string{"outbox"}, "outbox.table=public.outbox"},
			"partitions": {strings.Replace(tableSQL, "id bigint PRIMARY KEY", "id bigint, PRIMARY KEY (id)", 1) + " PARTITION BY RANGE (id); CREATE TABLE low PARTITION OF outbox FOR VALUES FROM (1) TO (10); CREATE TABLE high PARTITION OF outbox FOR VALUES FROM (10) TO (20)",
				"INSERT INTO outbox SELECT n, 'a', n::text, 'e', n::text FROM generate_series(1, 19) n", []string{"low", "high"}, "outbox.table=public.outbox"},
			"a key of two columns": {"CREATE TABLE outbox (id bigint PRIMARY KEY, topic text NOT NULL, partition_key text, aggregate_id text, payload text, created_at timestamptz DEFAULT now())",
				"INSERT INTO outbox SELECT n, 'any', NULL, n::text, n::text FROM generate_series(1, 3) n", []string{"outbox"}, "outbox.preset=outboxd"},
		} {
			t.Run(version+" "+name, func(t *testing.T) {
				t.Parallel()
				s := play(t, harness.Postgres(t, version), harness.Kfake(t, sandbox.KafkaOptions{}), append(keeps(t, "at_least_once"), tt.how)...)
				s.db.Exec(t, "DROP TABLE outbox")
				for _, each := range strings.Split(tt.table, "; ") {
					s.db.Exec(t, each)
				}
				s.db.Exec(t, tt.rows)
				for _, n := range []int{1, 16} {
					plan := Options{Online: true, All: true, Buckets: n}
					text := s.must(t, plan)
					index := made.FindStringSubmatch(text)
					if index == nil || strings.Contains(text, by) || !strings.Contains(text, "without an index the time") {
						t.Fatalf("without one: %s", text)
					}
					for _, leaf := range tt.leaves {
						if text := s.must(t, plan); strings.Contains(text, by) {
							t.Errorf("before that of %s: %s", leaf, text)
						}
						s.db.Exec(t, fmt.Sprintf("CREATE INDEX %s_bucket ON %[1]s %s", leaf, index[1]))
					}
					if text := s.must(t, plan); !strings.Contains(text, by) || strings.Contains(text, "without an index") || made.MatchString(text) {
						t.Errorf("%d buckets: %s", n, text)
					}
					for _, leaf := range tt.leaves {
						s.db.Exec(t, "DROP INDEX "+leaf+"_bucket")
					}
				}
			})
		}
	}
}

// Where the server has no room for the slots the plan says so, and nothing is made.
func TestBackfill_SeesThatNoSlotIsFree(t *testing.T) {
	t.Parallel()
	s := play(t, harness.OwnPostgres(t, sandbox.PostgresOptions{Version: "18", Settings: map[string]string{"max_replication_slots": "3"}}), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
	s.write(t, 1, 10)
	s.db.Exec(t, "SELECT pg_create_logical_replication_slot('other', 'pgoutput'), pg_create_logical_replication_slot('another', 'pgoutput')")
	const says = "too few of the server's 3 replication slots are free (max_replication_slots); 2 slots are needed"
	for _, options := range []Options{{All: true}, {All: true, Online: true}} {
		if text := s.must(t, options); !strings.Contains(text, "warning: ") || !strings.Contains(text, says) {
			t.Errorf("%+v: %s", options, text)
		}
		options.Yes, options.RowsAreKept = true, options.Online
		text, err := s.attempt(t.Context(), options, func(step string) { t.Errorf("it did %s", step) })
		if !isRefused(err) || !strings.Contains(err.Error(), says) || !strings.Contains(text, says) {
			t.Errorf("%+v: %v\n%s", options, err, text)
		}
		if n := harness.Query[int](t, s.db, "SELECT count(*)::int FROM pg_publication"); n != 0 {
			t.Errorf("%+v: it made a publication", options)
		}
	}
	s.db.Exec(t, "SELECT pg_drop_replication_slot('other')")
	s.endedAt(t, all, "begun")
	if text := s.must(t, Options{}); strings.Contains(text, "warning: ") { // one exists, and one is free
		t.Error(text)
	}
	s.db.Exec(t, "SELECT pg_create_logical_replication_slot('other', 'pgoutput')")
	if text := s.must(t, Options{}); !strings.Contains(text, "too few of the server's 3 replication slots") {
		t.Error(text)
	}
	s.db.Exec(t, "SELECT pg_drop_replication_slot('other')")
	s.must(t, all)
}

// A call that waits for the lock of another one says whose it is.
func TestBackfill_SaysThatItWaitsForTheLock(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
	s.write(t, 1, 10)
	holder, err := snapshot.Open(t.Context(), s.settings.Replication)
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Lock(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(3*time.Second, holder.Close)
	text := s.must(t, all)
	if says := `waiting up to 15s for the lock of slot "` + s.slot + `_backfill": another session holds the lock: pid `; strings.Count(text, says) != 1 {
		t.Errorf("it does not say once %q:\n%s", says, text)
	}
}
