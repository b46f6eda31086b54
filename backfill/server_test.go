package backfill

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
)

const tableSQL = `CREATE TABLE public.outbox (id bigint PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, payload text, created_at timestamptz DEFAULT now())`

// scene is a table with rows, and brokers.
type scene struct {
	db       *harness.Database
	brokers  *harness.Brokers
	settings relay.Config
	topic    string // of the events
	slot     string
}

// play makes a scene: how are settings of the configuration.
func play(t *testing.T, db *harness.Database, brokers *harness.Brokers, how ...string) *scene {
	t.Helper()
	s := &scene{db: db, brokers: brokers, slot: harness.Unique(t, "bf"), topic: harness.Unique(t, "events")}
	db.Exec(t, tableSQL)
	cfg, err := config.Load(config.Options{Set: append([]string{
		"postgres.url=" + db.URL, "postgres.slot=" + s.slot, "postgres.publication=" + s.slot,
		"kafka.brokers=" + strings.Join(brokers.Addrs, ","), "kafka.create_topics.enabled=true", "kafka.create_topics.partitions=1",
		"outbox.table=public.outbox", "outbox.topic=" + s.topic,
	}, how...)})
	if err != nil {
		t.Fatal(err)
	}
	s.settings = cfg.Relay()
	return s
}

// keeps are the settings of a relay that keeps positions.
func keeps(t *testing.T, guarantee string) []string {
	t.Helper()
	return []string{"relay.guarantee=" + guarantee, "relay.detect_moved_slot=" + strconv.FormatBool(guarantee == "at_least_once"), "relay.checkpoint_topic=" + harness.Unique(t, "positions")}
}

func (s *scene) write(t *testing.T, from, to int) {
	t.Helper()
	s.db.Exec(t, `INSERT INTO outbox SELECT n, 'a', (n % 5)::text, 'e', n::text FROM generate_series($1::int, $2) n`, from, to)
}

// attempt is one call.
func (s *scene) attempt(ctx context.Context, options Options, onStep func(string)) (string, error) {
	var text bytes.Buffer
	var mu sync.Mutex
	out := lockedWriter{&mu, &text}
	b := &Backfill{
		Settings: s.settings, Options: options, Out: Output{Result: out, Meanwhile: out}, Log: zerolog.Nop(), OnStep: onStep,
		Sample: 300 * time.Millisecond, Every: 100 * time.Millisecond,
	}
	err := b.Run(ctx)
	mu.Lock()
	defer mu.Unlock()
	return text.String(), err
}

type lockedWriter struct {
	mu *sync.Mutex
	to *bytes.Buffer
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}

// must succeeds.
func (s *scene) must(t *testing.T, options Options) string {
	t.Helper()
	text, err := s.attempt(t.Context(), options, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return text
}

// stream runs the relay until the WAL's present end is confirmed.
func (s *scene) stream(t *testing.T) {
	t.Helper()
	r, err := relay.Open(s.settings, relay.Events{}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	end := harness.Query[string](t, s.db, "SELECT pg_current_wal_lsn()::text")
	until, err := wal.ParseLSN(end)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	wait(ctx, func() bool { return wal.LSN(r.Status().LSN.Confirmed) >= until })
	if ctx.Err() != nil {
		t.Fatalf("the stream is at %v", r.Status())
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	s.free(t)
}

// free waits until nobody streams from the slot: a server says its last word before it lets go.
func (s *scene) free(t *testing.T) {
	t.Helper()
	wait(t.Context(), func() bool {
		return !harness.Query[bool](t, s.db, "SELECT bool_or(active) FROM pg_replication_slots WHERE slot_name = $1", s.slot)
	})
}

// wait returns when it is good, or ctx ends.
func wait(ctx context.Context, good func() bool) {
	tick := time.NewTicker(30 * time.Millisecond)
	defer tick.Stop()
	for !good() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// committed are the records that consumers of committed ones see, in their order.
func (s *scene) committed(t *testing.T) []int {
	t.Helper()
	admin := s.brokers.Admin(t)
	ends, err := admin.ListEndOffsets(t.Context(), s.topic)
	if err != nil {
		t.Fatal(err)
	}
	end, found := ends.Lookup(s.topic, 0)
	if !found || end.Err != nil {
		return nil
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(s.brokers.Addrs...), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{s.topic: {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
	defer cancel()
	var list []int
	for next := int64(0); next < end.Offset; {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("read topic %s: at %d of %d", s.topic, next, end.Offset)
		}
		for records := fetches.RecordIter(); !records.Done(); {
			r := records.Next()
			next = r.Offset + 1
			if r.Attrs.IsControl() {
				continue
			}
			n, err := strconv.Atoi(string(r.Value))
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, n)
		}
	}
	return list
}

// complete holds that 1 to n are there, each key's first ones in order; once: none twice.
func complete(t *testing.T, list []int, n int, once bool) {
	t.Helper()
	first := map[int]bool{}
	last := map[int]int{}
	for _, v := range list {
		if first[v] {
			continue
		}
		first[v] = true
		if v < last[v%5] {
			t.Errorf("of key %d comes %d behind %d", v%5, v, last[v%5])
		}
		last[v%5] = v
	}
	var missing []int
	for v := range n {
		if !first[v+1] {
			missing = append(missing, v+1)
		}
	}
	if len(missing) > 0 {
		t.Errorf("%d of %d are missing, from %d on", len(missing), n, missing[0])
	}
	if once && len(list) != n {
		t.Errorf("%d records, want %d", len(list), n)
	}
}

var all = Options{All: true, Yes: true}

// A call that is to be interrupted sends so few rows a second that it is not near its end when some are
// there, however late somebody looks.
const (
	slowly = 60
	some   = 20
)

// Whatever step was the last one of a call, the next calls complete it: nothing is lost, each
// key's rows come in order, and with exactly-once none comes twice.
func TestBackfill_ResumesWithoutLoss(t *testing.T) {
	t.Parallel()
	steps := []string{"slot_made", "snapshot_taken", "begun", "some", "sent", "finished", "copied", "written", "dropped"}
	for _, version := range harness.VersionsFor(t) {
		for _, guarantee := range []string{"at_least_once", "exactly_once"} {
			for _, step := range steps {
				t.Run(version+" "+guarantee+" "+step, func(t *testing.T) {
					t.Parallel()
					s := play(t, harness.Postgres(t, version), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, guarantee)...)
					s.write(t, 1, 3000)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					first := all
					if step == "some" {
						first.MaxRate = slowly
						go func() {
							wait(ctx, func() bool { return len(s.committed(t)) >= some })
							cancel()
						}()
					}
					text, err := s.attempt(ctx, first, func(at string) {
						if at == step {
							cancel()
						}
					})
					if step != "dropped" && !errors.Is(err, context.Canceled) {
						t.Fatalf("the first call: %v\n%s", err, text)
					}
					s.write(t, 3001, 3500)
					text, err = s.attempt(t.Context(), all, nil)
					if err != nil {
						t.Fatalf("the second call: %v\n%s", err, text)
					}
					s.write(t, 3501, 4000)
					s.stream(t)
					complete(t, s.committed(t), 4000, guarantee == "exactly_once")
				})
			}
		}
	}
}

// A call that was killed leaves its Kafka transaction open, and the brokers end it after a minute.
func TestBackfill_AnInterruptedCallIsGoneOnWithAtOnce(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "exactly_once")...)
	s.write(t, 1, 100)
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := s.attempt(ctx, all, func(step string) {
		if step == "begun" {
			cancel()
		}
	}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	system := harness.Query[string](t, s.db, "SELECT system_identifier::text FROM pg_control_system()")
	killed, err := kgo.NewClient(kgo.SeedBrokers(s.brokers.Addrs...), kgo.TransactionalID(stored.TransactionalID(system, s.slot)), kgo.DefaultProduceTopic(s.settings.CheckpointTopic))
	if err == nil {
		t.Cleanup(killed.Close)
		err = errors.Join(killed.BeginTransaction(), killed.ProduceSync(t.Context(), kgo.StringRecord("of a transaction that nobody ends")).FirstErr())
	}
	if err != nil {
		t.Fatal(err)
	}
	soon, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	plan := all
	plan.Yes = false
	if text, err := s.attempt(soon, plan, nil); err == nil || !strings.Contains(text, "an open Kafka transaction hides what follows it") {
		t.Errorf("the plan: %v\n%s", err, text)
	}
	soon, stop = context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	if text, err := s.attempt(soon, all, nil); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if n := len(s.committed(t)); n != 100 {
		t.Errorf("%d records of 100 rows", n)
	}
}

// Rows that committed after the slot's beginning, and lie among those that are still to be read,
// are the stream's.
func TestBackfill_ExactlyOnceDuplicatesNothing(t *testing.T) {
	t.Parallel()
	each := func(t *testing.T, db *harness.Database, brokers *harness.Brokers) {
		s := play(t, db, brokers, keeps(t, "exactly_once")...)
		for n := 1; n <= 4000; n += 2 { // the odd ones are old
			if n%1000 == 1 {
				s.db.Exec(t, `INSERT INTO outbox SELECT n, 'a', (n % 5)::text, 'e', n::text FROM generate_series($1::int, $2, 2) n`, n, n+998)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		byID := all
		byID.Order = []string{"id"} // by which newer rows lie between old ones
		slow := byID
		slow.MaxRate = slowly
		go func() {
			wait(ctx, func() bool { return len(s.committed(t)) >= some })
			cancel()
		}()
		if text, err := s.attempt(ctx, slow, nil); !errors.Is(err, context.Canceled) {
			t.Fatalf("%v\n%s", err, text)
		}
		s.db.Exec(t, `INSERT INTO outbox SELECT n, 'a', (n % 5)::text, 'e', n::text FROM generate_series(2, 4000, 2) n`)
		s.must(t, byID)
		s.stream(t)
		list := s.committed(t)
		slices.Sort(list)
		for i, v := range list {
			if v != i+1 {
				t.Fatalf("the %d-th is %d; %d records", i+1, v, len(list))
			}
		}
		if len(list) != 4000 {
			t.Errorf("%d records", len(list))
		}
	}
	for _, version := range harness.VersionsFor(t) {
		t.Run(version+" kfake", func(t *testing.T) {
			t.Parallel()
			each(t, harness.Postgres(t, version), harness.Kfake(t, sandbox.KafkaOptions{}))
		})
	}
	t.Run("18 kafka", func(t *testing.T) {
		t.Parallel()
		each(t, harness.Postgres(t, "18"), harness.Kafka(t))
	})
}

// A slot that would be lost before the end is not made unless the operator accepts it.
func TestBackfill_WarnsThatTheSlotWillNotLast(t *testing.T) {
	t.Parallel()
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Version: "18", Settings: map[string]string{"max_slot_wal_keep_size": "64MB"}})
	s := play(t, db, harness.Kfake(t, sandbox.KafkaOptions{}))
	s.write(t, 1, 20_000) // so that the slot is lost at some KiB a second
	var writing sync.WaitGroup
	var writers []int64
	for range 3 { // loops of the server's own, of which one or two may not run while the WAL is measured
		conn := db.Connect(t)
		writers = append(writers, int64(conn.PgConn().PID()))
		writing.Go(func() {
			_, err := conn.Exec(context.WithoutCancel(t.Context()), "DO $$ BEGIN LOOP PERFORM pg_logical_emit_message(false, 'x', repeat('x', 2000)), pg_sleep(0.005); END LOOP; END $$")
			if pg, ended := errors.AsType[*pgconn.PgError](err); !ended || pg.Code != "57P01" {
				t.Errorf("a writer: %v", err)
			}
		})
	}
	for _, pid := range writers {
		wait(t.Context(), func() bool {
			return harness.Query[bool](t, db, "SELECT count(*) > 0 FROM pg_stat_activity WHERE pid = $1 AND state = 'active' AND query LIKE 'DO %'", pid)
		})
	}
	slow := Options{All: true, MaxRate: 1}
	text, err := s.attempt(t.Context(), slow, nil)
	if err != nil || !strings.Contains(text, "the slot would be lost after about") {
		t.Errorf("the plan: %v\n%s", err, text)
	}
	slow.Yes = true
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err = s.attempt(ctx, slow, func(string) { cancel() })
	if refused, ok := errors.AsType[*advice.Refused](err); !ok || !strings.Contains(refused.Error(), "--accept-wal") {
		t.Errorf("it begins: %v", err)
	}
	if n := harness.Query[int64](t, db, "SELECT count(*) FROM pg_replication_slots"); n != 0 {
		t.Errorf("%d slots", n)
	}
	db.Exec(t, "SELECT pg_terminate_backend(pid) FROM unnest($1::int8[]::int[]) pid", writers)
	writing.Wait()
	if text := s.must(t, Options{All: true, Yes: true}); strings.Contains(text, "would be lost") {
		t.Errorf("the server is quiet:\n%s", text)
	}
}

// Rows that no record can be made of.
func TestBackfill_RejectedRows(t *testing.T) {
	t.Parallel()
	for _, guarantee := range []string{"at_least_once", "exactly_once"} {
		t.Run(guarantee, func(t *testing.T) {
			t.Parallel()
			db, brokers := harness.Postgres(t, "15"), harness.Kfake(t, sandbox.KafkaOptions{})
			s := play(t, db, brokers, append(keeps(t, guarantee), "kafka.max_message_bytes=100KiB")...)
			s.write(t, 1, 50)
			db.Exec(t, "UPDATE outbox SET payload = repeat('secret', 100000) WHERE id = 20")
			_, err := s.attempt(t.Context(), all, nil)
			blocked, ok := errors.AsType[*relay.BlockedError](err)
			if !ok || !strings.Contains(err.Error(), "id = 20") || !strings.Contains(err.Error(), "public.outbox") || strings.Contains(err.Error(), "pg_replication_slot_advance") || strings.Contains(err.Error(), "secret") {
				t.Fatalf("%+v: %v", blocked, err)
			}
			s.settings.OnReject, s.settings.DeadLetterTopic = relay.DeadLetterOnReject, harness.Unique(t, "letters")
			if text := s.must(t, all); !strings.Contains(text, "1 dead letter among them") {
				t.Errorf("it says\n%s", text)
			}
			list := s.committed(t)
			slices.Sort(list)
			list = slices.Compact(list)
			if len(list) != 49 || slices.Contains(list, 20) {
				t.Errorf("there are %v", list)
			}
			if n := len(brokers.Read(t, s.settings.DeadLetterTopic)); n == 0 {
				t.Error("no dead letter")
			}
		})
	}
}

// Orders with equal values, without values, over quoted names, and tables without rows.
func TestBackfill_Tables(t *testing.T) {
	t.Parallel()
	db, brokers := harness.Postgres(t, "15"), harness.Kfake(t, sandbox.KafkaOptions{})
	for name, c := range map[string]struct {
		sql   string
		order []string
		rows  int
	}{
		"no rows":           {"", nil, 0},
		"one row":           {"INSERT INTO %s SELECT 1, 'a', '1', 'e', '1'", nil, 1},
		"one time":          {"INSERT INTO %s SELECT n, 'a', (n %% 5)::text, 'e', n::text, '2026-01-01' FROM generate_series(1, 10000) n", nil, 10000},
		"no time":           {"INSERT INTO %s SELECT n, 'a', (n %% 5)::text, 'e', n::text, NULL FROM generate_series(1, 100) n", nil, 100},
		"times and none":    {"INSERT INTO %s SELECT n, 'a', (n %% 5)::text, 'e', n::text, CASE WHEN n > 50 THEN '2026-01-01'::timestamptz + n * interval '1s' END FROM generate_series(1, 100) n", nil, 100},
		"a column as given": {"INSERT INTO %s SELECT n, 'a', (n %% 5)::text, 'e', n::text, now() - n * interval '1s' FROM generate_series(1, 100) n", []string{"Id It"}, 100},
	} {
		db.Exec(t, fmt.Sprintf(`CREATE SCHEMA "Out %s"`, name))
		for _, attempts := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s in %d", name, attempts), func(t *testing.T) {
				t.Parallel()
				table := fmt.Sprintf(`"Out %s"."Box ""%d"`, name, attempts)
				db.Exec(t, "CREATE TABLE "+table+` ("Id It" bigint PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, payload text, created_at timestamptz)`)
				if c.sql != "" {
					db.Exec(t, fmt.Sprintf(c.sql, table))
				}
				s := play(t, harness.Postgres(t, "15"), brokers, keeps(t, "exactly_once")...)
				s.db = db
				s.settings.Replication.URL = db.URL
				s.settings.Replication.Tables = []wal.Table{{Schema: "Out " + name, Name: fmt.Sprintf(`Box "%d`, attempts)}}
				s.settings.Router.Mappings[0].Columns.ID = "Id It"
				options := Options{All: true, Yes: true, Order: c.order}
				if attempts == 2 && c.rows > 0 {
					ctx, cancel := context.WithCancel(t.Context())
					slow := options
					slow.MaxRate = max(2, c.rows)
					go func() {
						wait(ctx, func() bool { return len(s.committed(t)) >= c.rows/4 })
						cancel()
					}()
					if text, err := s.attempt(ctx, slow, nil); err != nil && ctx.Err() == nil { // a cut connect names another cause
						t.Fatalf("%v\n%s", err, text)
					}
				}
				s.must(t, options)
				list := s.committed(t)
				complete(t, list, c.rows, true)
				if !slices.IsSorted(list) {
					t.Errorf("they are not in order: %v", list)
				}
			})
		}
	}
}
