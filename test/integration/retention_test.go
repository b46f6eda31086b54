package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/retention"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
	"github.com/cdc-relay/cdc-relay/upkeep"
	"github.com/rs/zerolog"
)

// housekeeping is a pipeline whose rows go, set up by the program itself: it writes what lies
// before the slot.
func housekeeping(t testing.TB, version, then, more string) *relaytest.Pipeline {
	t.Helper()
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Version: version, Settings: map[string]string{"max_prepared_transactions": "20"}})
	p := relaytest.New(t, db, harness.Kfake(t, kfakeDefault), []string{"{table: public.outbox, retention: {keep: 1h, then: " + then + "}}"},
		"maintenance: {in_run: false, wait: 2s, max_rows_per_second: 0}", "relay: {checkpoint_topic: positions, "+more+"}")
	if code := p.Exec(t, "setup", "--create-table").Wait(t); code != 0 {
		t.Fatalf("setup ended with %d", code)
	}
	p.Brokers.CreateTopic(t, "order-events", 3)
	return p
}

const insertEvent = `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES ('%s', 'order', '%d', 'x', '{}'); `

// committer writes rows in every way that there is, and remembers those that are committed.
type committer struct {
	mu  sync.Mutex
	ids []string
	all sync.WaitGroup
}

func (c *committer) start(ctx context.Context, t *testing.T, db *harness.Database, n int) {
	t.Helper()
	for w := range n {
		conn := db.Connect(t)
		c.all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), uint64(time.Now().UnixNano())))
			for ctx.Err() == nil {
				sql, wrote, end := transaction(random, w)
				if name, prepared := strings.CutPrefix(end, "COMMIT PREPARED "); prepared {
					if _, err := conn.PgConn().Exec(context.Background(), sql+"PREPARE TRANSACTION "+name).ReadAll(); err != nil {
						t.Error(err)
						return
					}
					sql = ""
				}
				if _, err := conn.PgConn().Exec(context.Background(), sql+end).ReadAll(); err != nil {
					t.Error(err)
					return
				}
				if end != "ROLLBACK" {
					c.mu.Lock()
					c.ids = append(c.ids, wrote...)
					c.mu.Unlock()
				}
			}
		})
	}
}

// transaction is one with savepoints, what it leaves, and its end.
func transaction(random *rand.Rand, writer int) (sql string, wrote []string, end string) {
	insert := func() string {
		id := fmt.Sprintf("%08x-%04x-4000-8000-%012x", random.Uint32(), writer, random.Int64N(1<<48))
		wrote = append(wrote, id)
		return fmt.Sprintf(insertEvent, id, writer)
	}
	sql = fmt.Sprintf("BEGIN; SET LOCAL synchronous_commit = %s; ", []string{"on", "off"}[random.IntN(2)])
	if random.IntN(2) == 0 {
		sql += insert()
	}
	kept := len(wrote)
	sql += "SAVEPOINT one; " + insert()
	switch random.IntN(3) {
	case 0:
		sql += "ROLLBACK TO one; "
		wrote = wrote[:kept]
	case 1:
		sql += "SAVEPOINT two; " + insert() + "RELEASE one; "
	}
	if random.IntN(8) == 0 {
		sql += fmt.Sprintf("SELECT pg_sleep(%f); ", random.Float64()/5)
	}
	switch random.IntN(6) {
	case 0:
		end = "ROLLBACK"
	case 1:
		end = fmt.Sprintf("COMMIT PREPARED '%d-%d'", writer, random.Uint64())
	default:
		end = "COMMIT"
	}
	return sql, wrote, end
}

// vanished are the ids that were committed by now and are neither in the table nor in the topic.
func (c *committer) vanished(t *testing.T, p *relaytest.Pipeline, tables string) (lost []string, gone int) {
	t.Helper()
	c.mu.Lock()
	committed := slices.Clone(c.ids)
	c.mu.Unlock()
	there := make(map[string]bool)
	for id := range strings.SplitSeq(harness.Query[string](t, p.DB, "SELECT coalesce(string_agg(id::text, ' '), '') FROM ("+tables+") rows"), " ") {
		there[id] = true
	}
	sent := make(map[string]bool) // read afterwards
	for _, r := range p.Brokers.Read(t, "order-events") {
		for _, h := range r.Headers {
			if h.Key == "id" {
				sent[string(h.Value)] = true
			}
		}
	}
	for _, id := range committed {
		if there[id] {
			continue
		}
		if gone++; !sent[id] {
			lost = append(lost, id)
		}
	}
	return lost, gone
}

// sweep deletes whatever its age, again and again, until ctx ends.
func sweep(ctx context.Context, t *testing.T, p *relaytest.Pipeline) (rows int) {
	t.Helper()
	policies, cfg := p.Config.Retention()
	policies[0].Keep = 0
	service, err := retention.Open(ctx, cfg, zerolog.Nop())
	if err != nil {
		if ctx.Err() == nil {
			t.Error(err)
		}
		return 0
	}
	defer service.Close()
	for ctx.Err() == nil {
		done, err := service.Once(ctx, &policies[0], func(upkeep.Done) {})
		rows += done.Rows
		if err != nil && ctx.Err() == nil && !upkeep.Unfinished(err) {
			t.Error(err)
			return rows
		}
		if done.Rows == 0 {
			<-time.After(20 * time.Millisecond)
		}
	}
	return rows
}

// Rows of every kind of commit are swept while they are written, and the relay ends and begins.
// Whenever it stands still, what is gone from the table is in the topic.
func TestRetention_DeletesOnlyWhatIsDelivered(t *testing.T) {
	t.Parallel()
	for i, version := range harness.Versions() {
		for j, guarantee := range []string{"detect_moved_slot: true", "guarantee: exactly_once"} {
			if harness.Left(i, j) {
				continue
			}
			t.Run("postgres"+version+" "+guarantee, func(t *testing.T) {
				t.Parallel()
				p := housekeeping(t, version, "delete", guarantee)
				writing, stop := context.WithCancel(t.Context())
				defer stop()
				var c committer
				c.start(writing, t, p.DB, 4)
				swept := 0
				for range scale(t, "RETENTION_ROUNDS", 5) {
					r := p.Start(t)
					r.AwaitStreaming(t)
					sweeping, end := context.WithCancel(t.Context())
					var sweeper sync.WaitGroup
					sweeper.Go(func() { swept += sweep(sweeping, t, p) })
					relaytest.Eventually(t, "rows are swept", func() (bool, string) {
						return harness.Query[int64](t, p.DB, "SELECT n_tup_del FROM pg_stat_user_tables WHERE relname = 'outbox'") > int64(swept), ""
					})
					r.Stop(t)
					time.AfterFunc(500*time.Millisecond, end) // rows that nobody delivers are written meanwhile
					<-sweeping.Done()
					sweeper.Wait()
					lost, gone := c.vanished(t, p, "TABLE outbox")
					if len(lost) > 0 {
						t.Fatalf("%d of %d rows are gone and were not delivered: %q", len(lost), gone, lost[:min(5, len(lost))])
					}
					p.AwaitReleased(t)
				}
				stop()
				c.all.Wait()
				r := p.Start(t)
				r.AwaitStreaming(t)
				p.AwaitCaughtUp(t)
				final, end := context.WithCancel(t.Context())
				defer end()
				relaytest.Eventually(t, "everything is swept", func() (bool, string) {
					policies, cfg := p.Config.Retention()
					policies[0].Keep = 0
					service, err := retention.Open(final, cfg, zerolog.Nop())
					if err != nil {
						return false, err.Error()
					}
					defer service.Close()
					done, err := service.Once(final, &policies[0], func(upkeep.Done) {})
					swept += done.Rows
					n := harness.Query[int64](t, p.DB, "SELECT count(*) FROM outbox")
					return n == 0, fmt.Sprintf("%d rows are left, %v", n, err)
				})
				lost, gone := c.vanished(t, p, "TABLE outbox")
				if len(lost) > 0 || gone != len(c.ids) || swept > gone || swept == 0 || gone < 100 { // a pass that is ended while it commits does not count
					t.Errorf("%d rows of %d are gone, %d were swept, not delivered: %q", gone, len(c.ids), swept, lost[:min(5, len(lost))])
				}
				t.Logf("%d rows swept", swept)
			})
		}
	}
}

// Killed between any two of its statements, it has moved each row or not at all.
func TestRetention_KilledInTheMiddleLosesNothing(t *testing.T) {
	t.Parallel()
	p := housekeeping(t, "", "archive, archive_table: public.archive", "detect_moved_slot: true")
	p.DB.Exec(t, "CREATE TABLE archive (LIKE outbox INCLUDING DEFAULTS)")
	p.DB.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, created_at) SELECT 'order', n::text, 'x', '{}', now() - interval '2h' FROM generate_series(1, 30000) n")
	p.Start(t).AwaitStreaming(t)
	p.AwaitCaughtUp(t)
	left := int64(30_000)
	for kill := range 8 {
		process := p.Exec(t, "retention", "--once", "--set", "maintenance.max_rows_per_second=2000", "--set", "maintenance.batch_rows=20") // a hundred transactions a second, for 15 s
		begun := left
		relaytest.Eventually(t, "it is at work", func() (bool, string) {
			left = harness.Query[int64](t, p.DB, "SELECT count(*) FROM outbox")
			return left < begun || process.Ended(), process.Output()
		})
		time.Sleep(time.Duration(kill*7) * time.Millisecond) //nolint:forbidigo // it is killed at any moment
		process.Kill()
		relaytest.Eventually(t, "its connection is gone", func() (bool, string) {
			return harness.Query[int64](t, p.DB, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'cdc-relay maintenance'") == 0, ""
		})
		rows := harness.Query[string](t, p.DB, "SELECT (SELECT count(*) FROM outbox) + (SELECT count(*) FROM archive) || ' ' || (SELECT count(DISTINCT id) FROM (TABLE outbox UNION ALL TABLE archive) rows)")
		if rows != "30000 30000" {
			t.Fatalf("after %d kills: rows and ids are %s, want 30000 of each", kill+1, rows)
		}
	}
	if left == 0 {
		t.Error("nothing was left for the last one: the test kills too late")
	}
	if code := p.Exec(t, "retention", "--once", "--set", "maintenance.wait=60s").Wait(t); code != 0 {
		t.Errorf("the last one ended with %d", code)
	}
	if n := harness.Query[int64](t, p.DB, "SELECT count(*) FROM archive"); n != 30_000 {
		t.Errorf("the archive has %d rows", n)
	}
}

// Two processes at a time: the second one touches nothing.
func TestRetention_OneProcessAtATime(t *testing.T) {
	t.Parallel()
	p := housekeeping(t, "", "delete", "detect_moved_slot: true")
	p.DB.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, created_at) SELECT 'order', n::text, 'x', '{}', now() - interval '2h' FROM generate_series(1, 2000) n")
	p.Start(t).AwaitStreaming(t)
	p.AwaitCaughtUp(t)
	first := p.Exec(t, "retention", "--once", "--set", "maintenance.max_rows_per_second=50", "--set", "maintenance.wait=60s")
	relaytest.Eventually(t, "it is at work", func() (bool, string) {
		return harness.Query[int64](t, p.DB, "SELECT count(*) FROM outbox") < 2000, first.Output()
	})
	second := p.Exec(t, "retention", "--once")
	if code := second.Wait(t); code != 1 || !strings.Contains(second.Output(), "another session holds the lock: pid ") {
		t.Errorf("the second one ended with %d: %s", code, second.Output())
	}
	first.Terminate(t)
	if code := first.Wait(t); code != 1 || !strings.Contains(first.Output(), "interrupted by a signal") {
		t.Errorf("the first one ended with %d: %s", code, first.Output())
	}
}

// The names of rows do not outlive their connection.
func TestRetention_ALostConnectionEndsIt(t *testing.T) {
	t.Parallel()
	p := housekeeping(t, "", "delete", "detect_moved_slot: true")
	p.DB.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, created_at) SELECT 'order', n::text, 'x', '{}', now() - interval '2h' FROM generate_series(1, 5000) n")
	p.Start(t).AwaitStreaming(t)
	p.AwaitCaughtUp(t)
	process := p.Exec(t, "retention", "--once", "--set", "maintenance.max_rows_per_second=100", "--set", "maintenance.wait=60s")
	relaytest.Eventually(t, "it is at work", func() (bool, string) {
		return harness.Query[int64](t, p.DB, "SELECT count(*) FROM outbox") < 5000, process.Output()
	})
	p.DB.Exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'cdc-relay maintenance'")
	if code := process.Wait(t); code != 1 {
		t.Errorf("it ended with %d: %s", code, process.Output())
	}
	if n := harness.Query[int64](t, p.DB, "SELECT count(*) FROM outbox"); n == 0 {
		t.Error("nothing is left")
	}
}

// Rows of every kind of commit get marks while they are written, and the relay ends and begins.
// Whenever it stands still, every row with a mark is in the topic; in the end, each has one.
func TestMark_OnlyDelivered(t *testing.T) {
	t.Parallel()
	for _, guarantee := range []string{"detect_moved_slot: true", "guarantee: exactly_once"} {
		t.Run(guarantee, func(t *testing.T) {
			t.Parallel()
			db := harness.OwnPostgres(t, sandbox.PostgresOptions{Settings: map[string]string{"max_prepared_transactions": "20"}})
			p := relaytest.New(t, db, harness.Kfake(t, kfakeDefault), []string{"{table: public.outbox, mark: {column: published_at}}"},
				"maintenance: {wait: 2s, max_rows_per_second: 0}", "relay: {checkpoint_topic: positions, "+guarantee+"}")
			if code := p.Exec(t, "setup", "--create-table").Wait(t); code != 0 {
				t.Fatalf("setup ended with %d", code)
			}
			p.DB.Exec(t, "ALTER TABLE outbox ADD published_at timestamptz; CREATE INDEX unpublished ON outbox (created_at) WHERE published_at IS NULL")
			p.Brokers.CreateTopic(t, "order-events", 3)
			writing, stop := context.WithCancel(t.Context())
			defer stop()
			var c committer
			c.start(writing, t, p.DB, 4)
			marked := func() int64 {
				return harness.Query[int64](t, p.DB, "SELECT count(*) FROM outbox WHERE published_at IS NOT NULL")
			}
			for range scale(t, "RETENTION_ROUNDS", 3) {
				r := p.Exec(t, "run")
				before := marked()
				relaytest.Eventually(t, "rows are marked", func() (bool, string) { return marked() > before+20, r.Output() })
				r.Kill()
				p.AwaitReleased(t)
				if lost, n := c.vanished(t, p, "SELECT id FROM outbox WHERE published_at IS NULL"); len(lost) > 0 {
					t.Fatalf("%d of %d marked rows were not delivered: %q", len(lost), n, lost[:min(5, len(lost))])
				}
			}
			stop()
			c.all.Wait()
			r := p.Exec(t, "run")
			relaytest.Eventually(t, "all rows are marked", func() (bool, string) {
				n := harness.Query[int64](t, p.DB, "SELECT count(*) FROM outbox WHERE published_at IS NULL")
				return n == 0, fmt.Sprintf("%d rows have no mark; %s", n, r.Output())
			})
			if n := marked(); n != int64(len(c.ids)) || n < 60 {
				t.Errorf("%d rows are marked of %d", n, len(c.ids))
			}
			r.Terminate(t)
			r.Wait(t)
		})
	}
}
