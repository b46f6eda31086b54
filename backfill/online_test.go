package backfill

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/backfill/buckets"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/jackc/pgx/v5"
)

var (
	bucketed  = Options{All: true, Online: true, RowsAreKept: true, Buckets: 4, Yes: true}
	uncounted = Options{All: true, Online: true, RowsAreKept: true, Buckets: 4, Yes: true, AcceptDeletes: true} // after a crash of the server
)

// writesOn inserts row after row from a number on, each in a transaction of its own and every third in a
// savepoint, until stop, which tells the last one.
func (s *scene) writesOn(t *testing.T, from int) (stop func() int) {
	t.Helper()
	writing, end := context.WithCancel(t.Context())
	conn := s.db.Connect(t)
	last := make(chan int, 1)
	go func() {
		n := from
		for ; writing.Err() == nil; n++ {
			sql := `INSERT INTO outbox SELECT n, 'a', (n % 5)::text, 'e', n::text FROM generate_series($1::int, $1) n`
			var err error
			if n%3 == 0 {
				if _, err = conn.Exec(t.Context(), "BEGIN; SAVEPOINT s"); err == nil {
					if _, err = conn.Exec(t.Context(), sql, n); err == nil {
						_, err = conn.Exec(t.Context(), "COMMIT")
					}
				}
			} else {
				_, err = conn.Exec(t.Context(), sql, n)
			}
			if err != nil {
				t.Error(err)
				break
			}
		}
		last <- n - 1
	}()
	return sync.OnceValue(func() int { end(); return <-last })
}

// Rows that are written while the buckets are sent come from the table or from the stream, and never from
// both, whatever step was the last one of a call.
func TestOnline_SendsEachRowInOrder(t *testing.T) {
	t.Parallel()
	steps := []string{"", "slot_made", "begun", "some", "sent", "bucket_done", "caught_up", "snapshot_taken", "finished", "copied", "written", "dropped"}
	for _, version := range harness.VersionsFor(t) {
		for g, guarantee := range []string{"at_least_once", "exactly_once"} {
			for i, step := range steps {
				if testing.Short() && i%2 != g && step != "some" && step != "bucket_done" {
					continue // the other guarantee has it
				}
				t.Run(version+" "+guarantee+" "+step, func(t *testing.T) {
					t.Parallel()
					s := play(t, harness.Postgres(t, version), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, guarantee)...)
					s.write(t, 1, 2000)
					stop := s.writesOn(t, 2001)
					defer stop()
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					first, seen := bucketed, 0
					if step == "some" {
						first.MaxRate = 600
						go func() {
							wait(ctx, func() bool { return len(s.committed(t)) >= 700 })
							cancel()
						}()
					}
					text, err := s.attempt(ctx, first, func(at string) {
						if at != step {
							return
						}
						if seen++; seen == 2 || at != "sent" && at != "bucket_done" && at != "snapshot_taken" {
							cancel()
						}
					})
					if step != "" && step != "dropped" && !errors.Is(err, context.Canceled) {
						t.Fatalf("the first call: %v\n%s", err, text)
					}
					if step != "" {
						if text, err = s.attempt(t.Context(), bucketed, nil); err != nil {
							t.Fatalf("the second call: %v\n%s", err, text)
						}
					} else if err != nil {
						t.Fatalf("%v\n%s", err, text)
					}
					n := stop()
					s.stream(t)
					complete(t, s.committed(t), n, guarantee == "exactly_once" || step == "")
				})
			}
		}
	}
}

// The slot moves on while the buckets are sent.
func TestOnline_LetsGoOfTheWAL(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
	s.write(t, 1, 500)
	stop := s.writesOn(t, 501)
	var stood []string
	text, err := s.attempt(t.Context(), bucketed, func(step string) {
		if step == "caught_up" {
			s.db.Exec(t, "CHECKPOINT") // it logs which transactions run, from which the slot learns what it needs
			stood = append(stood, harness.Query[string](t, s.db, "SELECT restart_lsn::text FROM pg_replication_slots WHERE slot_name = $1", s.slot+"_backfill"))
		}
	})
	stop()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if len(stood) != 4 || stood[0] == stood[3] {
		t.Errorf("the slot held the WAL from %v on\n%s", stood, text)
	}
}

// A row that is deleted before its bucket is nowhere any more.
func TestOnline_StopsWhenRowsAreDeleted(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]struct{ sql, says string }{
		"deleted":          {"DELETE FROM outbox WHERE id = 3; SELECT pg_stat_force_next_flush()", "1 row deleted since the last bucket"},
		"emptied":          {"TRUNCATE outbox", "emptied, rewritten, detached or dropped"},
		"statistics reset": {"SELECT pg_stat_reset()", "was reset since the last bucket"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
			s.write(t, 1, 100)
			s.db.Exec(t, "INSERT INTO outbox VALUES (1000, 'a', 'b', 'e', '1'); DELETE FROM outbox WHERE id = 1000; SELECT pg_stat_force_next_flush()")
			conn := s.db.Connect(t)
			done := false
			text, err := s.attempt(t.Context(), bucketed, func(step string) {
				if step != "bucket_done" || done {
					return
				}
				done = true
				for _, each := range strings.Split(how.sql, "; ") {
					if _, err := conn.Exec(t.Context(), each); err != nil {
						t.Error(err)
					}
				}
			})
			if err == nil || !strings.Contains(err.Error(), how.says) {
				t.Fatalf("%v\n%s", err, text)
			}
			if text, err = s.attempt(t.Context(), bucketed, nil); err == nil || !strings.Contains(err.Error(), how.says) {
				t.Fatalf("the next call: %v\n%s", err, text)
			}
			s.must(t, uncounted)
		})
	}
}

// A commit is in the stream before a snapshot shows it. Its row is left out of the stream, so the next bucket has
// to wait for it.
func TestOnline_WaitsForACommitThatWasLeftOut(t *testing.T) {
	t.Parallel()
	s := play(t, harness.OwnPostgres(t, sandbox.PostgresOptions{Version: "18"}), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
	s.write(t, 1, 100)
	var h *hanging
	released := false
	text, err := s.attempt(t.Context(), bucketed, func(step string) {
		switch {
		case step == "bucket_done" && h == nil:
			h = s.hangs(t, "INSERT INTO outbox SELECT n, 'a', (n % 5)::text, 'e', n::text FROM generate_series(101, 105) n")
		case step == "commit_awaited" && !released:
			released = true
			h.goOn(t)
		}
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if !released {
		t.Fatal("no bucket waited")
	}
	s.stream(t)
	complete(t, s.committed(t), 105, true)
}

// Shards stream one after the other from the slot, which they leave together. Rows of one shard alone move it.
func TestOnline_OfShards(t *testing.T) {
	t.Parallel()
	for _, guarantee := range []string{"at_least_once", "exactly_once"} {
		for _, step := range []string{"", "caught_up", "bucket_done"} {
			t.Run(guarantee+" "+step, func(t *testing.T) {
				t.Parallel()
				s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), append(keeps(t, guarantee), "postgres.shards=2")...)
				s.write(t, 1, 500)
				n, seen := 500, 0
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				during := func(at string) {
					if at == "bucket_done" {
						s.db.Exec(t, "INSERT INTO outbox SELECT n, 'a', (n % 5)::text, 'e', n::text FROM generate_series($1::int, $1 + 4) n", n+1)
						s.db.Exec(t, "INSERT INTO outbox SELECT n, 'a', '1', 'e', n::text FROM generate_series($1::int, $1) n", n+6) // of one shard
						n += 10
						s.db.Exec(t, "INSERT INTO outbox SELECT n, 'a', (n % 5)::text, 'e', n::text FROM generate_series($1::int - 3, $1) n", n)
					}
					if at == step {
						if seen++; seen == 2 {
							cancel()
						}
					}
				}
				text, err := s.attempt(ctx, bucketed, during)
				if step != "" {
					if !errors.Is(err, context.Canceled) {
						t.Fatalf("the first call: %v\n%s", err, text)
					}
					step = ""
					text, err = s.attempt(t.Context(), bucketed, during)
				}
				if err != nil {
					t.Fatalf("%v\n%s", err, text)
				}
				if slots := harness.Query[int](t, s.db, "SELECT count(DISTINCT confirmed_flush_lsn)::int FROM pg_replication_slots WHERE slot_name LIKE $1", s.slot+"%"); slots != 1 {
					t.Errorf("the slots stand at %d positions", slots)
				}
				for i := range 2 {
					shard := *s
					shard.settings, shard.slot = s.settings.OfShard(i, 2), s.settings.Replication.OfShard(i).Slot
					shard.stream(t)
				}
				complete(t, s.committed(t), n, guarantee == "exactly_once")
			})
		}
	}
}

// A row that commits after the snapshot of its bucket, with an order value that is still to be read, is the
// stream's, also when the bucket is read on in a later snapshot.
func TestOnline_LeavesALateRowToTheStream(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "exactly_once")...)
	s.write(t, 1, 2998)
	s.write(t, 3000, 3000)
	one := bucketed
	one.Buckets = 1
	first := one
	first.MaxRate = slowly
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		wait(ctx, func() bool { return len(s.committed(t)) >= some })
		cancel()
	}()
	text, err := s.attempt(ctx, first, func(step string) {
		if step == "begun" {
			s.db.Exec(t, "INSERT INTO outbox SELECT 2999, 'a', '4', 'e', '2999', created_at FROM outbox WHERE id = 3000")
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("%v\n%s", err, text)
	}
	s.must(t, one)
	list := s.committed(t)
	if len(list) != 3000 || list[len(list)-1] != 2999 {
		t.Errorf("%d records, and the last one is %d", len(list), list[len(list)-1])
	}
}

// A consumer that drops what lies before the last position of its partition drops no row that it has not seen.
func TestOnline_PositionsGrowWithinAPartition(t *testing.T) {
	t.Parallel()
	for _, guarantee := range []string{"at_least_once", "exactly_once"} {
		t.Run(guarantee, func(t *testing.T) {
			t.Parallel()
			s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), append(keeps(t, guarantee), "relay.position_headers=true")...)
			s.keyedRows(t, 1, 100)
			n := 100
			text, err := s.attempt(t.Context(), bucketed, func(step string) {
				if step == "bucket_done" {
					n++
					s.keyed(t, n, 0)
				}
			})
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			n++
			s.keyed(t, n, 0)
			s.stream(t)
			last, dropped := "", 0
			records := s.brokers.Read(t, s.topic)
			for _, r := range records {
				header := map[string]string{}
				for _, h := range r.Headers {
					header[h.Key] = string(h.Value)
				}
				place := fmt.Sprintf("%20s %20s", strings.TrimPrefix(header[record.HeaderLSN], "0/"), header[record.HeaderSeq])
				if place <= last {
					dropped++
				}
				last = max(last, place)
			}
			if len(records) != n || dropped > 0 {
				t.Errorf("%d records of %d rows, of which the consumer drops %d", len(records), n, dropped)
			}
		})
	}
}

// Two tables have keys in common: a bucket has the rows of both.
func TestOnline_OfTwoTables(t *testing.T) {
	t.Parallel()
	topic := harness.Unique(t, "both")
	s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), append(keeps(t, "exactly_once"), "outbox[1].table=public.other", "outbox[0].topic="+topic, "outbox[1].topic="+topic)...)
	s.topic = topic
	s.db.Exec(t, "CREATE TABLE other (LIKE outbox INCLUDING ALL)")
	s.write(t, 1, 100)
	s.db.Exec(t, "INSERT INTO other SELECT n, 'a', (n % 5)::text, 'e', n::text FROM generate_series(101, 200) n")
	n := 200
	text, err := s.attempt(t.Context(), bucketed, func(step string) {
		if step == "bucket_done" {
			s.db.Exec(t, "INSERT INTO other SELECT n, 'a', (n % 5)::text, 'e', n::text FROM generate_series($1::int, $1 + 9) n", n+1)
			s.write(t, n+11, n+20)
			n += 20
		}
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	s.stream(t)
	list := s.committed(t)
	slices.Sort(list)
	if len(list) != n || len(slices.Compact(list)) != n {
		t.Errorf("%d records, want %d", len(list), n)
	}
}

func TestOnline_RefusesWhatItCannotDo(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
	forgets := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}))
	updates := s.with(t, "relay.detect_moved_slot=true")
	updates.settings.Replication.Wants = []wal.Wants{{Update: true}}
	for says, tt := range map[string]struct {
		of      *scene
		options Options
	}{
		"--online needs --all":                                  {s, Options{Online: true, Where: "id > 1"}},
		"--online needs --all, and no other":                    {s, Options{Online: true}},
		"--buckets 300 is not allowed; allowed: 1 to 256":       {s, Options{Online: true, All: true, Buckets: 300}},
		"--buckets -1 is not allowed":                           {s, Options{Online: true, All: true, Buckets: -1}},
		"--online does not send logical messages":               {s.with(t, "relay.detect_moved_slot=true", "outbox[0].topic="+s.topic, "outbox[1].message_prefix=m", "outbox[1].topic=m"), Options{Online: true, All: true}},
		"--online sends inserts only":                           {updates, Options{Online: true, All: true}},
		"--online needs --rows-are-kept":                        {s, Options{Online: true, All: true, Yes: true}},
		"--rows-are-kept and --accept-deletes are for --online": {s, Options{All: true, RowsAreKept: true}},
		"set relay.detect_moved_slot: true":                     {forgets, Options{Online: true, All: true}},
	} {
		text, err := tt.of.attempt(t.Context(), tt.options, nil)
		if _, ok := errors.AsType[*advice.Usage](err); !ok || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v\n%s", says, err, text)
		}
	}
}

// A backfill goes on as it began: online without the flags, and not online where it began otherwise.
func TestOnline_GoesOnAsItBegan(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
	s.write(t, 1, 100)
	s.endedAt(t, bucketed, "caught_up")
	s.write(t, 101, 200)
	if text := s.must(t, Options{Yes: true}); !strings.Contains(text, "online: 1 of 4 buckets") {
		t.Error(text)
	}
	s.stream(t)
	complete(t, s.committed(t), 200, true)

	s = play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
	s.write(t, 1, 100)
	s.endedAt(t, bucketed, "bucket_done")
	more := bucketed
	more.Buckets = 8
	if text, err := s.attempt(t.Context(), more, nil); err == nil || !strings.Contains(err.Error(), "the backfill began with 4 buckets, and --buckets asks for 8") || !strings.Contains(text, "online: 1 of 4 buckets and ") {
		t.Errorf("%v\n%s", err, text)
	}
	more.Restart = true
	if text := s.must(t, more); !strings.Contains(text, "in 8 buckets") {
		t.Error(text)
	}

	s = play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
	s.write(t, 1, 100)
	s.endedAt(t, all, "begun")
	if text, err := s.attempt(t.Context(), bucketed, nil); err == nil || !strings.Contains(err.Error(), "began without --online") {
		t.Errorf("%v\n%s", err, text)
	}
	s.must(t, all)
	complete(t, s.committed(t), 100, true)
}

// The index that the plan prints can be made, and a bucket is read by it. Where PostgreSQL allows none, the plan says so.
func TestOnline_PrintsAnIndexThatIsUsed(t *testing.T) {
	t.Parallel()
	plan := Options{Online: true, All: true, Buckets: 64}
	made := regexp.MustCompile(`CREATE INDEX CONCURRENTLY ON .*`)
	s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
	s.db.Exec(t, "INSERT INTO outbox SELECT n, 'a', n::text, 'e', n::text FROM generate_series(1, 20000) n")
	text := s.must(t, plan)
	s.db.Exec(t, made.FindString(text))
	s.db.Exec(t, "ANALYZE outbox")
	key := buckets.Key{Column: "aggregate_id"}
	var explained strings.Builder
	rows, err := s.db.Connect(t).Query(t.Context(), "EXPLAIN SELECT * FROM outbox WHERE "+key.Condition(3, 64)+" ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	var line string
	if _, err := pgx.ForEachRow(rows, []any{&line}, func() error { explained.WriteString(line); return nil }); err != nil {
		t.Fatal(err)
	}
	if said := explained.String(); !strings.Contains(said, "Index") || strings.Contains(said, "Seq Scan") {
		t.Error(said)
	}

	for typ, says := range map[string]string{"date": "PostgreSQL allows no index on the text of a key of that type", "uuid": "CREATE INDEX CONCURRENTLY ON"} {
		s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
		s.db.Exec(t, "ALTER TABLE outbox ALTER COLUMN aggregate_id TYPE "+typ+" USING NULL")
		if text := s.must(t, plan); !strings.Contains(text, says) {
			t.Errorf("%s: %s", typ, text)
		} else if index := made.FindString(text); index != "" {
			s.db.Exec(t, index)
		}
	}
}
