package backfill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/jackc/pgx/v5/pgconn"
)

// keyOf has a key for each of four buckets.
var keyOf = []string{"a", "c", "b", "e"}

// keyed writes a row whose key is in a bucket.
func (s *scene) keyed(t *testing.T, id, bucket int) {
	t.Helper()
	s.db.Exec(t, `INSERT INTO outbox VALUES ($1::int, 'a', $2, 'e', $1::text)`, id, keyOf[bucket])
}

func (s *scene) keyedRows(t *testing.T, from, to int) {
	t.Helper()
	s.db.Exec(t, `INSERT INTO outbox SELECT n, 'a', (ARRAY['a','c','b','e'])[1 + n % 4], 'e', n::text FROM generate_series($1::int, $2) n`, from, to)
}

// on runs statements on one connection.
func (s *scene) on(t *testing.T, statements ...string) {
	t.Helper()
	conn := s.db.Connect(t)
	for _, sql := range statements {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Error(err)
		}
	}
}

// with is the scene with other settings.
func (s *scene) with(t *testing.T, how ...string) *scene {
	t.Helper()
	other := *s
	cfg, err := config.Load(config.Options{Set: append([]string{
		"postgres.url=" + s.db.URL, "postgres.slot=" + s.slot, "postgres.publication=" + s.slot,
		"kafka.brokers=" + s.brokers.Addrs[0], "kafka.create_topics.enabled=true", "kafka.create_topics.partitions=1",
		"outbox.table=public.outbox", "outbox.topic=" + s.topic,
	}, how...)})
	if err != nil {
		t.Fatal(err)
	}
	other.settings = cfg.Relay()
	return &other
}

// arrived holds that rows 1 to n have come, and with once that none came twice.
func arrived(t *testing.T, list []int, n int, once bool) {
	t.Helper()
	times := map[int]int{}
	for _, v := range list {
		times[v]++
	}
	for v := 1; v <= n; v++ {
		if times[v] == 0 || once && times[v] > 1 {
			t.Errorf("row %d came %d times", v, times[v])
		}
	}
}

// endsAfter is a call that is interrupted at the nth time of a step; during is called at each step before.
func (s *scene) endsAfter(t *testing.T, o Options, step string, n int, during func(at string, times int)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	times := map[string]int{}
	text, err := s.attempt(ctx, o, func(at string) {
		times[at]++
		if during != nil {
			during(at, times[at])
		}
		if at == step && times[at] == n {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("%v\n%s", err, text)
	}
}

// wantRefused calls again, and holds that nothing is done.
func (s *scene) wantRefused(t *testing.T, says string) {
	t.Helper()
	before := len(s.committed(t))
	if text, err := s.attempt(t.Context(), bucketed, nil); err == nil || !strings.Contains(err.Error(), says) {
		t.Fatalf("%v, want %q\n%s", err, says, text)
	}
	if after := len(s.committed(t)); after != before {
		t.Errorf("%d records were sent", after-before)
	}
}

// A server that crashes has a slot stand further back than it said. What the stream brings again of buckets that
// were pending then is in the topics from the table.
func TestOnline_SendsOnceWhatACrashBringsAgain(t *testing.T) {
	t.Parallel()
	s := play(t, harness.OwnPostgres(t, sandbox.PostgresOptions{Version: "18"}), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "exactly_once")...)
	s.keyedRows(t, 1, 100)
	s.endsAfter(t, bucketed, "bucket_done", 3, func(at string, times int) {
		if at == "bucket_done" && times == 1 {
			s.keyed(t, 101, 0) // the stream's
			s.keyed(t, 102, 1) // the table's, left out of the stream
		}
	})
	said := harness.Query[string](t, s.db, "SELECT confirmed_flush_lsn::text FROM pg_replication_slots")
	if err := s.db.Server.Restart(t.Context(), sandbox.Immediate); err != nil {
		t.Fatal(err)
	}
	if has := harness.Query[string](t, s.db, "SELECT confirmed_flush_lsn::text FROM pg_replication_slots"); has == said {
		t.Fatalf("the slot still stands at %s", has)
	}
	s.must(t, uncounted)
	s.stream(t)
	arrived(t, s.committed(t), 102, true)
}

// A snapshot sees commits that are not on disk yet. A server that crashes gives their transactions' ids to others,
// which the bucket does not have.
func TestOnline_SendsRowsWithTheIDOfALostTransaction(t *testing.T) {
	t.Parallel()
	for _, guarantee := range []string{"at_least_once", "exactly_once"} {
		t.Run(guarantee, func(t *testing.T) {
			t.Parallel()
			s := play(t, harness.OwnPostgres(t, sandbox.PostgresOptions{Version: "18", Settings: map[string]string{"wal_writer_delay": "1000"}}), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, guarantee)...)
			s.keyedRows(t, 1, 100)
			var lost string
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if text, err := s.attempt(ctx, bucketed, func(step string) {
				switch {
				case step == "caught_up" && lost == "":
					s.on(t, "SET synchronous_commit = off", "INSERT INTO outbox VALUES (101, 'a', 'c', 'e', '101')")
					lost = harness.Query[string](t, s.db, "SELECT xmin::text FROM outbox WHERE id = 101")
				case step == "bucket_done" && lost != "" && ctx.Err() == nil:
					if err := s.db.Server.Kill(); err != nil {
						t.Error(err)
					}
					cancel()
				}
			}); err == nil {
				t.Fatalf("it was not interrupted\n%s", text)
			}
			if err := s.db.Server.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			sent, has := slices.Contains(s.committed(t), 101), harness.Query[bool](t, s.db, "SELECT EXISTS (SELECT FROM outbox WHERE id = 101)")
			if sent && !has {
				t.Error("a row was sent that the server has lost")
			}
			s.keyed(t, 102, 1)
			s.writeWAL(t, 1)
			s.must(t, uncounted)
			s.stream(t)
			if !slices.Contains(s.committed(t), 102) {
				t.Error("a row with the id of a lost transaction is missing")
			}
		})
	}
}

// A call that only has the slots to make does not move the slot over WAL that nobody has streamed. Where only a crash
// took the slot back, it goes on.
func TestOnline_FinishesOnlyInTheSameHistory(t *testing.T) {
	t.Parallel()
	for _, guarantee := range []string{"at_least_once", "exactly_once"} {
		t.Run(guarantee, func(t *testing.T) {
			t.Parallel()
			s := play(t, harness.OwnPostgres(t, sandbox.PostgresOptions{Version: "18"}), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, guarantee)...)
			s.write(t, 1, 100)
			s.endedAt(t, bucketed, "bucket_done")
			putBack := s.db.CopyDisk(t)
			s.writeWAL(t, 4)
			s.endedAt(t, bucketed, "finished")
			putBack()
			s.write(t, 101, 200)
			s.writeWAL(t, 8)
			s.wantRefused(t, "the server has another one")
			again := bucketed
			again.Restart = true
			s.endsAfter(t, again, "finished", 1, func(at string, times int) {
				if at == "caught_up" && times == 2 {
					s.write(t, 201, 205)
				}
			})
			s.crash(t)
			s.must(t, bucketed)
			s.write(t, 206, 210)
			s.stream(t)
			arrived(t, s.committed(t), 210, false)
		})
	}
}

// The last place of a bucket is kept by one guarantee alone, and the other would read too little.
func TestOnline_RefusesAnotherGuaranteeMidway(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
	s.keyedRows(t, 1, 100)
	s.endsAfter(t, bucketed, "bucket_done", 1, nil)
	other := s.with(t, "relay.guarantee=exactly_once", "relay.checkpoint_topic="+s.settings.CheckpointTopic)
	other.wantRefused(t, "the backfill began with relay.guarantee: at_least_once")
	s.must(t, bucketed)
	s.stream(t)
	arrived(t, s.committed(t), 100, false)
}

// A slot of the same name that is another one has rows only from its own beginning on.
func TestOnline_BeginsAnewWithAnotherSlot(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
	s.keyedRows(t, 1, 100)
	s.endsAfter(t, bucketed, "bucket_done", 2, nil)
	s.keyed(t, 101, 0)
	s.with(t, "relay.detect_moved_slot=false").endedAt(t, all, "begun")
	s.must(t, bucketed)
	s.keyed(t, 102, 0)
	s.stream(t)
	arrived(t, s.committed(t), 102, false)
}

// Another table takes the name between two buckets.
func TestOnline_RefusesAnotherTableOfTheName(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
	s.keyedRows(t, 1, 100)
	renamed := false
	text, err := s.attempt(t.Context(), bucketed, func(step string) {
		if step == "caught_up" && !renamed {
			renamed = true
			s.db.Exec(t, "ALTER TABLE outbox RENAME TO outbox_old")
			s.db.Exec(t, tableSQL)
			s.db.Exec(t, "ALTER PUBLICATION "+s.slot+" ADD TABLE outbox")
		}
	})
	if err == nil || !strings.Contains(err.Error(), "it is another table than when the command began") {
		t.Fatalf("%v\n%s", err, text)
	}
	s.db.Exec(t, "DROP TABLE outbox")
	s.db.Exec(t, "ALTER TABLE outbox_old RENAME TO outbox")
	s.must(t, bucketed)
	s.stream(t)
	arrived(t, s.committed(t), 100, false)
}

// The disk is put back between two calls, and the WAL has grown past what the first one saw: transactions of other
// rows have the ids that the snapshot of the last bucket sees.
func TestOnline_RefusesADiskThatWasPutBack(t *testing.T) {
	t.Parallel()
	for _, guarantee := range []string{"at_least_once", "exactly_once"} {
		t.Run(guarantee, func(t *testing.T) {
			t.Parallel()
			s := play(t, harness.OwnPostgres(t, sandbox.PostgresOptions{Version: "18"}), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, guarantee)...)
			s.keyedRows(t, 1, 100)
			s.endsAfter(t, bucketed, "bucket_done", 1, nil)
			putBack := s.db.CopyDisk(t)
			for n := range 50 {
				s.keyed(t, 1001+n, n%4)
			}
			s.endsAfter(t, bucketed, "bucket_done", 1, nil)
			putBack()
			for n := range 40 {
				s.keyed(t, 101+n, n%4)
			}
			s.writeWAL(t, 4)
			s.wantRefused(t, "the server has another one")
			again := bucketed
			again.Restart = true
			s.must(t, again)
			s.stream(t)
			arrived(t, s.committed(t), 140, false)
		})
	}
}

// Of one key: 101 commits first and waits for a standby, 102 commits next and does not wait. No bucket has 102 alone.
func TestOnline_KeepsTheOrderOfCommits(t *testing.T) {
	t.Parallel()
	s := play(t, harness.OwnPostgres(t, sandbox.PostgresOptions{Version: "18"}), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "exactly_once")...)
	s.keyedRows(t, 1, 100)
	var h *hanging
	released := false
	text, err := s.attempt(t.Context(), bucketed, func(step string) {
		switch {
		case step == "caught_up" && h == nil:
			h = s.hangs(t, "INSERT INTO outbox VALUES (101, 'a', 'c', 'e', '101')")
			s.on(t, "SET synchronous_commit = local", "INSERT INTO outbox VALUES (102, 'a', 'c', 'e', '102')")
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
	list := s.committed(t)
	arrived(t, list, 102, true)
	if slices.Index(list, 101) > slices.Index(list, 102) {
		t.Error("102 comes before 101")
	}
}

// crash has the server lose what it had not written of the slot's position.
func (s *scene) crash(t *testing.T) {
	t.Helper()
	if err := s.db.Server.Restart(t.Context(), sandbox.Immediate); err != nil {
		t.Fatal(err)
	}
}

// After a crash the last record of a key is that of its last row.
func TestOnline_EndsEachKeyWithItsLastRowAfterACrash(t *testing.T) {
	t.Parallel()
	s := play(t, harness.OwnPostgres(t, sandbox.PostgresOptions{Version: "18"}), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
	s.keyedRows(t, 1, 100)
	s.endsAfter(t, bucketed, "bucket_done", 3, func(at string, times int) {
		if at == "caught_up" && times == 1 {
			s.keyed(t, 101, 1)
			s.keyed(t, 102, 0)
			s.keyed(t, 103, 1)
		}
	})
	s.crash(t)
	s.must(t, uncounted)
	s.stream(t)
	list := s.committed(t)
	arrived(t, list, 103, false)
	of := slices.DeleteFunc(list, func(n int) bool { return n != 101 && n != 103 })
	if of[len(of)-1] != 103 {
		t.Errorf("the key comes as %v", of)
	}
}

// A call is killed while it streams or after it, a later one at the next bucket, and then the server crashes.
func TestOnline_SendsOnceAfterAKillAndACrash(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"streamed", "caught_up"} {
		for _, phase := range []int{1, 2} {
			t.Run(fmt.Sprint(step, phase), func(t *testing.T) {
				t.Parallel()
				s := play(t, harness.OwnPostgres(t, sandbox.PostgresOptions{Version: "18"}), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "exactly_once")...)
				s.keyedRows(t, 1, 100)
				s.endsAfter(t, bucketed, step, phase, func(at string, times int) {
					if at == "bucket_done" {
						s.keyed(t, 99+2*times, 0)  // the stream's
						s.keyed(t, 100+2*times, 2) // left out
					}
				})
				s.keyed(t, 101+2*phase, 3)
				s.endsAfter(t, bucketed, "bucket_done", 1, nil)
				s.crash(t)
				s.must(t, uncounted)
				s.stream(t)
				arrived(t, s.committed(t), 101+2*phase, true)
			})
		}
	}
}

// With shards, too, rows of another history are not taken for delivered.
func TestOnline_OfShardsTrustsNoDiskThatWasPutBack(t *testing.T) {
	t.Parallel()
	s := play(t, harness.OwnPostgres(t, sandbox.PostgresOptions{Version: "18"}), harness.Kfake(t, sandbox.KafkaOptions{}), append(keeps(t, "exactly_once"), "postgres.shards=2")...)
	s.keyedRows(t, 1, 100)
	s.endsAfter(t, bucketed, "bucket_done", 1, nil)
	putBack := s.db.CopyDisk(t)
	s.writeWAL(t, 4)
	for n := range 8 {
		s.keyed(t, 1001+n, 0)
	}
	s.endsAfter(t, bucketed, "caught_up", 1, nil)
	putBack()
	for n := range 40 {
		s.keyed(t, 101+n, n%4)
	}
	s.writeWAL(t, 8)
	s.wantRefused(t, "the server has another one")
	again := bucketed
	again.Restart = true
	s.must(t, again)
	for i := range 2 {
		shard := *s
		shard.settings, shard.slot = s.settings.OfShard(i, 2), s.settings.Replication.OfShard(i).Slot
		shard.stream(t)
	}
	arrived(t, s.committed(t), 140, false)
}

// A commit that waits for a standby while the slot is made is in the snapshot of that, which is of the WAL, and not yet
// in one of SQL. The slot does not bring it.
func TestOnline_SendsACommitThatHungWhenTheSlotWasMade(t *testing.T) {
	t.Parallel()
	s := ownScene(t)
	s.keyedRows(t, 1, 49)
	s.keyedRows(t, 51, 100)
	waitedFor := func(number string) {
		wait(t.Context(), func() bool {
			return harness.Query[bool](t, s.db, "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted AND transactionid::text = $1)", number)
		})
	}
	end := func(c *pgconn.PgConn) {
		if _, err := c.Exec(t.Context(), "ROLLBACK").ReadAll(); err != nil {
			t.Fatal(err)
		}
	}
	one, first := s.numbered(t)
	var text string
	var err error
	var h *hanging
	released, ended := false, make(chan struct{})
	go func() {
		defer close(ended)
		text, err = s.attempt(t.Context(), bucketed, func(at string) {
			if at == "commit_awaited" && !released {
				released = true
				h.goOn(t)
			}
		})
	}()
	waitedFor(first)
	other, second := s.numbered(t)
	end(one)
	waitedFor(second)
	h = s.hangs(t, "INSERT INTO outbox VALUES (50, 'a', 'c', 'e', '50')")
	end(other)
	<-ended
	if err != nil || !released {
		t.Fatalf("%v, a bucket waited: %t\n%s", err, released, text)
	}
	s.stream(t)
	arrived(t, s.committed(t), 100, true)
}

// Rows of a table that is configured in the middle are the stream's.
func TestOnline_GoesOnBesideATableThatIsAdded(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "exactly_once")...)
	s.write(t, 1, 2000)
	first := bucketed
	first.Buckets, first.MaxRate = 1, slowly
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		wait(ctx, func() bool { return len(s.committed(t)) >= some })
		cancel()
	}()
	if text, err := s.attempt(ctx, first, nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v\n%s", err, text)
	}
	s.db.Exec(t, "CREATE TABLE other (LIKE outbox INCLUDING ALL)")
	s.db.Exec(t, "ALTER PUBLICATION "+s.slot+" ADD TABLE other")
	s.db.Exec(t, "INSERT INTO other SELECT n, 'a', (n % 5)::text, 'e', n::text FROM generate_series(2001, 2010) n")
	two := s.with(t, "relay.guarantee=exactly_once", "relay.checkpoint_topic="+s.settings.CheckpointTopic, "outbox[0].table=public.outbox", "outbox[0].topic="+s.topic, "outbox[1].table=public.other", "outbox[1].topic="+s.topic)
	two.must(t, Options{Yes: true})
	two.stream(t)
	arrived(t, s.committed(t), 2010, true)
}

// With position headers a transaction larger than the window is read twice. Two of them between two buckets are each
// remembered.
func TestOnline_StreamsTwoTransactionsLargerThanTheWindow(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), append(keeps(t, "at_least_once"), "relay.position_headers=true", "relay.max_in_flight_bytes=64KiB")...)
	s.keyedRows(t, 1, 100)
	text, err := s.attempt(t.Context(), bucketed, func(at string) {
		if at != "bucket_done" || slices.Contains(s.committed(t), 101) || harness.Query[bool](t, s.db, "SELECT EXISTS (SELECT FROM outbox WHERE id = 101)") {
			return
		}
		for _, first := range []int{101, 601} {
			s.db.Exec(t, `INSERT INTO outbox SELECT n, 'a', 'a', 'e', lpad(n::text, 500, '0') FROM generate_series($1::int, $1 + 499) n`, first)
		}
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	s.stream(t)
	arrived(t, s.committed(t), 1100, false)
}
