package cutover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/backfill"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
)

// shape is a table as polling publishers have it.
type shape struct {
	columns string // beside those of every outbox
	pending string // what the publisher asks for
	publish string // what it sets
}

var (
	byTime   = shape{"published_at timestamptz, retry_count int NOT NULL DEFAULT 0", "published_at IS NULL", "published_at = now()"}
	byFlag   = shape{"processed boolean", "processed IS NOT TRUE", "processed = true"}
	byStatus = shape{"status text NOT NULL DEFAULT 'PENDING'", "status = 'PENDING'", "status = 'SENT'"}
	deleting = shape{"note text", "true", ""}
)

// scene is a table, its writers, its publisher, and brokers.
type scene struct {
	db       *harness.Database
	brokers  *harness.Brokers
	settings relay.Config
	shape    shape
	table    string
	topic    string
	slot     string

	mu     sync.Mutex
	ledger map[string][]int // what writers committed, by key, in the order of commits
}

// ownServer is one for the tests of a version, with prepared transactions.
func ownServer(t *testing.T, version string) *harness.Database {
	t.Helper()
	return harness.OwnPostgres(t, sandbox.PostgresOptions{Version: version, Settings: map[string]string{"max_prepared_transactions": "30", "max_replication_slots": "50", "max_wal_senders": "50", "max_connections": "200"}})
}

func play(t *testing.T, db *harness.Database, shape shape, how ...string) *scene {
	t.Helper()
	s := &scene{
		db: db, brokers: harness.Kfake(t, sandbox.KafkaOptions{}), shape: shape, ledger: map[string][]int{},
		slot: harness.Unique(t, "co"), topic: harness.Unique(t, "events"), table: harness.Unique(t, "outbox"),
	}
	db.Exec(t, fmt.Sprintf(`CREATE TABLE %s (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL,
		event_type text NOT NULL, payload text, created_at timestamptz DEFAULT now(), %s)`, s.table, shape.columns))
	cfg, err := config.Load(config.Options{Set: append([]string{
		"postgres.url=" + db.URL, "postgres.slot=" + s.slot, "postgres.publication=" + s.slot,
		"kafka.brokers=" + strings.Join(s.brokers.Addrs, ","), "kafka.create_topics.enabled=true", "kafka.create_topics.partitions=1",
		"outbox.table=public." + s.table, "outbox.topic=" + s.topic, "outbox.preset=outbox",
	}, how...)})
	if err != nil {
		t.Fatal(err)
	}
	s.settings = cfg.Relay()
	s.brokers.CreateTopic(t, s.topic, 1)
	return s
}

// keeps are the settings of a relay that keeps positions.
func keeps(t *testing.T, guarantee string) []string {
	t.Helper()
	return []string{"relay.guarantee=" + guarantee, "relay.detect_moved_slot=" + strconv.FormatBool(guarantee == "at_least_once"), "relay.checkpoint_topic=" + harness.Unique(t, "positions")}
}

// background runs something until the test or its stop.
func background(t *testing.T, do func(ctx context.Context)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); do(ctx) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// writers insert rows of keys of their own, and commit in every way that there is.
func (s *scene) writers(t *testing.T, n int) (stop func()) {
	t.Helper()
	conns := make([]*pgx.Conn, n)
	for i := range conns {
		conns[i] = s.db.Connect(t)
	}
	return background(t, func(ctx context.Context) {
		var all sync.WaitGroup
		for i, conn := range conns {
			all.Go(func() { s.writer(ctx, t, conn, i) })
		}
		all.Wait()
	})
}

func (s *scene) writer(ctx context.Context, t *testing.T, conn *pgx.Conn, number int) {
	random := rand.New(rand.NewPCG(uint64(number), 7))
	var last [2]int
	for round := 0; ctx.Err() == nil; round++ {
		which := random.IntN(2)
		key := fmt.Sprintf("%d-%d", number, which)
		next := last[which]
		var wrote []int
		insert := func() string {
			next++
			wrote = append(wrote, next)
			return fmt.Sprintf("INSERT INTO %s (aggregate_type, aggregate_id, event_type, payload) VALUES ('a', '%s', 'e', '%d'); ", s.table, key, next)
		}
		sql := fmt.Sprintf("BEGIN; SET LOCAL synchronous_commit = %s; ", []string{"on", "off"}[random.IntN(2)])
		if random.IntN(2) == 0 {
			sql += insert()
		}
		sql += "SAVEPOINT one; " + insert()
		switch random.IntN(4) {
		case 0:
			sql += "ROLLBACK TO one; "
			next--
			wrote = wrote[:len(wrote)-1]
		case 1:
			sql += "SAVEPOINT two; " + insert() + "RELEASE one; "
		}
		sql += fmt.Sprintf("SELECT pg_sleep(%f); ", random.Float64()/60)
		end, committed := "COMMIT", true
		switch random.IntN(8) {
		case 0:
			end, committed = "ROLLBACK", false
		case 1:
			name := fmt.Sprintf("%s-%d-%d", s.slot, number, round)
			if _, err := conn.PgConn().Exec(context.WithoutCancel(ctx), sql+"PREPARE TRANSACTION '"+name+"'").ReadAll(); err != nil {
				t.Errorf("writer: %v", err)
				return
			}
			sql, end = "", "COMMIT PREPARED '"+name+"'"
		}
		if _, err := conn.PgConn().Exec(context.WithoutCancel(ctx), sql+end).ReadAll(); err != nil {
			t.Errorf("writer: %v", err)
			return
		}
		if committed {
			last[which] = next
			s.mu.Lock()
			s.ledger[key] = append(s.ledger[key], wrote...)
			s.mu.Unlock()
		}
	}
}

// publisher is a poller as the texts about the outbox have it.
type publisher struct {
	locks  bool          // FOR UPDATE SKIP LOCKED, in one transaction with the mark
	slow   time.Duration // between the sending and the mark
	sent   atomic.Int64
	frozen atomic.Bool
}

func (s *scene) publisher(t *testing.T, p *publisher) (stop func()) {
	t.Helper()
	conn := s.db.Connect(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(s.brokers.Addrs...), kgo.ProducerLinger(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	end := background(t, func(ctx context.Context) {
		for ctx.Err() == nil {
			n := 0
			if !p.frozen.Load() {
				if n, err = s.poll(context.WithoutCancel(ctx), conn, client, p); err != nil {
					t.Errorf("publisher: %v", err)
					return
				}
			}
			if n == 0 {
				select {
				case <-time.After(20 * time.Millisecond):
				case <-ctx.Done():
				}
			}
		}
	})
	return func() {
		t.Helper()
		end()
		pid := int64(conn.PgConn().PID())
		_ = conn.Close(context.Background())
		// A session that is idle adds to the statistics for the last time after ten seconds, and one that ends at once.
		s.await(t, "the publisher's session ends", func() bool {
			return harness.Query[int64](t, s.db, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid) == 0
		})
	}
}

func (s *scene) poll(ctx context.Context, conn *pgx.Conn, client *kgo.Client, p *publisher) (int, error) {
	query := fmt.Sprintf("SELECT id, aggregate_id, payload FROM %s WHERE %s ORDER BY id LIMIT 20", s.table, s.shape.pending)
	if p.locks {
		query += " FOR UPDATE SKIP LOCKED"
		if _, err := conn.Exec(ctx, "BEGIN"); err != nil {
			return 0, err
		}
		defer func() { _, _ = conn.Exec(ctx, "COMMIT") }()
	}
	rows, err := conn.Query(ctx, query)
	if err != nil {
		return 0, err
	}
	var ids []int64
	var records []*kgo.Record
	for rows.Next() {
		var id int64
		var key, payload string
		if err := rows.Scan(&id, &key, &payload); err != nil {
			return 0, err
		}
		ids = append(ids, id)
		records = append(records, &kgo.Record{Topic: s.topic, Key: []byte(key), Value: []byte(payload), Headers: []kgo.RecordHeader{{Key: "by", Value: []byte("publisher")}}})
	}
	if err := rows.Err(); err != nil || len(ids) == 0 {
		return 0, err
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return 0, err
	}
	p.sent.Add(int64(len(ids)))
	if p.slow > 0 {
		<-time.After(p.slow)
	}
	done := "UPDATE " + s.table + " SET " + s.shape.publish + " WHERE id = ANY ($1)"
	if s.shape.publish == "" {
		done = "DELETE FROM " + s.table + " WHERE id = ANY ($1)"
	}
	_, err = conn.Exec(ctx, done, ids)
	return len(ids), err
}

// attempt is one call.
func (s *scene) attempt(ctx context.Context, options Options, onStep func(string)) (string, error) {
	var text bytes.Buffer
	var mu sync.Mutex
	out := lockedWriter{&mu, &text}
	if options.Stall == 0 {
		options.Stall = 2 * time.Second
	}
	c := &Cutover{
		Settings: s.settings, Options: options, Out: backfill.Output{Result: out, Meanwhile: out}, Log: zerolog.Nop(), OnStep: onStep,
		LookEvery: 30 * time.Millisecond,
	}
	err := c.Run(ctx)
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

// refused ends with an error that says something.
func (s *scene) refused(t *testing.T, options Options, says string) error {
	t.Helper()
	text, err := s.attempt(t.Context(), options, nil)
	if err == nil || !strings.Contains(err.Error(), says) {
		t.Fatalf("%v, and was to say %q\n%s", err, says, text)
	}
	return err
}

// relay runs until it is stopped, and then everything that it read is delivered.
func (s *scene) relay(t *testing.T) (caughtUp, stop func()) {
	t.Helper()
	r, err := relay.Open(s.settings, relay.Events{}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	end := background(t, func(ctx context.Context) { failed = r.Run(ctx) })
	caughtUp = func() {
		t.Helper()
		// A commit that wrote nothing but its own record is asynchronous too. This one flushes all before it.
		s.db.Exec(t, "SELECT pg_logical_emit_message(true, 'caught up', '')")
		end, err := wal.ParseLSN(harness.Query[string](t, s.db, "SELECT pg_current_wal_flush_lsn()::text"))
		if err != nil {
			t.Fatal(err)
		}
		s.await(t, "the relay catches up", func() bool { return wal.LSN(r.Status().LSN.Confirmed) >= end })
	}
	return caughtUp, func() {
		t.Helper()
		end()
		if failed != nil {
			t.Error(failed)
		}
		s.await(t, "the slot is free", func() bool { // a server says its last word before it lets go
			return !harness.Query[bool](t, s.db, "SELECT active FROM pg_replication_slots WHERE slot_name = $1", s.slot)
		})
	}
}

func (s *scene) await(t *testing.T, what string, good func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !good(); {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func (s *scene) drained(t *testing.T) {
	t.Helper()
	s.await(t, "the publisher sends the rest", func() bool {
		return harness.Query[int64](t, s.db, "SELECT count(*) FROM "+s.table+" WHERE "+s.shape.pending) == 0
	})
}

func (s *scene) slots(t *testing.T) string {
	t.Helper()
	return harness.Query[string](t, s.db, `SELECT coalesce(string_agg(slot_name, ' ' ORDER BY slot_name), '') FROM pg_replication_slots WHERE slot_name LIKE '`+s.slot+`%'`)
}

// judge holds the topic against what writers committed: each row once and each key in order.
func (s *scene) judge(t *testing.T) (byPublisher, byRelay int) {
	t.Helper()
	got := map[string][]int{}
	for _, r := range s.committed(t) {
		n, err := strconv.Atoi(string(r.Value))
		if err != nil {
			t.Fatal(err)
		}
		got[string(r.Key)] = append(got[string(r.Key)], n)
		if len(r.Headers) > 0 && r.Headers[0].Key == "by" {
			byPublisher++
		} else {
			byRelay++
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, want := range s.ledger {
		if !slices.Equal(got[key], want) {
			at := 0
			for at < min(len(got[key]), len(want)) && got[key][at] == want[at] {
				at++
			}
			t.Errorf("key %s has %d records, want %d; the first difference is at %d: %v, want %v", key, len(got[key]), len(want), at,
				got[key][at:min(len(got[key]), at+5)], want[at:min(len(want), at+5)])
		}
	}
	for key := range got {
		if s.ledger[key] == nil {
			t.Errorf("key %s was never committed", key)
		}
	}
	return byPublisher, byRelay
}

// committed are the records that consumers of committed ones see, in their order.
func (s *scene) committed(t *testing.T) (list []*kgo.Record) {
	t.Helper()
	ends, err := s.brokers.Admin(t).ListEndOffsets(t.Context(), s.topic)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup(s.topic, 0)
	client, err := kgo.NewClient(kgo.SeedBrokers(s.brokers.Addrs...), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{s.topic: {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
	defer cancel()
	for next := int64(0); next < end.Offset; {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("read topic %s: at %d of %d", s.topic, next, end.Offset)
		}
		for records := fetches.RecordIter(); !records.Done(); {
			r := records.Next()
			next = r.Offset + 1
			if !r.Attrs.IsControl() {
				list = append(list, r)
			}
		}
	}
	return list
}

// cancelled has a call end when a step is done.
func (s *scene) cancelledAt(t *testing.T, options Options, step string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reached := false
	text, err := s.attempt(ctx, options, func(at string) {
		if at == step {
			reached = true
			cancel()
		}
	})
	if !reached || err != nil && !errors.Is(err, context.Canceled) {
		t.Fatalf("step %s was reached: %t, %v\n%s", step, reached, err, text)
	}
}
