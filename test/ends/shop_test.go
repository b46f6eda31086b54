package ends

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox/kafkainbox"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// shop is a topic with events of known order, and a database with a journal of their effects.
// What it judges by is the records and the journal, which know nothing of the inbox.
type shop struct {
	db      *harness.Database
	brokers *harness.Brokers
	pool    *pgxpool.Pool
	topic   string
	group   string
	sent    *kgo.Client
	unique  bool // nothing is in the topic twice

	mu   sync.Mutex
	seqs map[string]int64 // of each key, the last
	past []*kgo.Record    // all records, for repeats
	ids  map[string]bool
}

func newShop(t testing.TB, db *harness.Database, brokers *harness.Brokers, partitions int32) *shop {
	t.Helper()
	createInbox(t, db)
	s := &shop{db: db, brokers: brokers, pool: newPool(t, db.URL, 24), topic: harness.Unique(t, "orders"), group: harness.Unique(t, "billing"), seqs: map[string]int64{}, ids: map[string]bool{}}
	brokers.CreateTopic(t, s.topic, partitions)
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers.Addrs...), kgo.DefaultProduceTopic(s.topic), kgo.ProducerLinger(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	s.sent = client
	return s
}

// standing says who has which partition, what of it is left, what the database does, and what consumers of this
// process do.
func (s *shop) standing() string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var b strings.Builder
	admin := kadm.NewClient(s.sent)
	lags, err := admin.Lag(ctx, s.group)
	fmt.Fprintln(&b, "group", s.group, err)
	lags.Each(func(group kadm.DescribedGroupLag) {
		fmt.Fprintln(&b, group.State, group.Error())
		for _, lag := range group.Lag.Sorted() {
			member := "nobody's"
			if lag.Member != nil {
				member = "of " + lag.Member.MemberID
			}
			fmt.Fprintf(&b, "partition %d %s: committed %d of %d\n", lag.Partition, member, lag.Commit.At, lag.End.Offset)
		}
	})
	if conn, err := pgx.Connect(ctx, s.db.URL); err == nil {
		rows, _ := conn.Query(ctx, `SELECT concat_ws(' ', pid, state, wait_event_type, wait_event, pg_blocking_pids(pid)::text, clock_timestamp() - state_change, left(query, 120))
			FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		fmt.Fprintln(&b, strings.Join(lines, "\n"), err)
		for _, q := range []string{"SELECT 'progress ' || to_jsonb(p)::text FROM inbox_progress p", "SELECT 'attempt ' || to_jsonb(p)::text FROM inbox_attempts p"} {
			rows, _ := conn.Query(ctx, q)
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			fmt.Fprintln(&b, strings.Join(lines, "\n"), err)
		}
		_ = conn.Close(ctx)
	}
	var all strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&all, 2)
	for stack := range strings.SplitSeq(all.String(), "\n\n") {
		if strings.Contains(stack, "kafkainbox") {
			fmt.Fprint(&b, stack, "\n\n")
		}
	}
	return b.String()
}

// produce sends n events of some keys, each with the next number of its key.
func (s *shop) produce(t testing.TB, n, keys int) {
	t.Helper()
	s.mu.Lock()
	var records []*kgo.Record
	for range n {
		key := fmt.Sprint("k", rand.IntN(keys))
		s.seqs[key]++
		id := fmt.Sprintf("%s-%d", key, s.seqs[key])
		s.ids[id] = true
		records = append(records, &kgo.Record{Key: []byte(key), Value: []byte(strconv.FormatInt(s.seqs[key], 10)), Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(id)}, {Key: "eventType", Value: []byte("T")}}})
	}
	s.past = append(s.past, records...)
	s.mu.Unlock()
	s.send(t, records)
}

// repeat sends a stretch of the past again, in its order, as a relay does after a crash.
func (s *shop) repeat(t testing.TB, n int) {
	t.Helper()
	if s.unique {
		return
	}
	s.mu.Lock()
	from := max(0, len(s.past)-n)
	var again []*kgo.Record
	for _, r := range s.past[from:] {
		again = append(again, &kgo.Record{Key: r.Key, Value: r.Value, Headers: r.Headers})
	}
	s.mu.Unlock()
	s.send(t, again)
}

func (s *shop) send(t testing.TB, records []*kgo.Record) {
	t.Helper()
	if err := s.sent.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// journal is the effect of a record.
func journal(ctx context.Context, tx pgx.Tx, r *kgo.Record) error {
	_, err := tx.Exec(ctx, "INSERT INTO journal (event, key, seq) VALUES ($1, $2, $3)", string(r.Headers[0].Value), string(r.Key), number(r))
	return err
}

func number(r *kgo.Record) int64 {
	n, _ := strconv.ParseInt(string(r.Value), 10, 64)
	return n
}

func (s *shop) config() kafkainbox.Config {
	return kafkainbox.Config{
		Consumer: "billing", Group: s.group, Brokers: s.brokers.Addrs, Topics: []string{s.topic}, DB: s.pool, Handle: journal, RoundEvents: 50,
		Retry: kafkainbox.Retry{First: 5 * time.Millisecond, Max: 50 * time.Millisecond},
		Kafka: []kgo.Opt{kgo.HeartbeatInterval(200 * time.Millisecond), kgo.FetchMaxWait(200 * time.Millisecond)},
	}
}

// member is a running consumer.
type member struct {
	cancel context.CancelFunc
	done   chan error
}

func (s *shop) start(t testing.TB, cfg kafkainbox.Config) *member {
	t.Helper()
	if cfg.Events.Trouble == nil {
		cfg.Events.Trouble = func(err error) {
			if t.Context().Err() == nil {
				t.Log("trouble: ", err)
			}
		}
	}
	if cfg.Events.Blocked == nil {
		cfg.Events.Blocked = func(err *kafkainbox.RecordError) {
			if t.Context().Err() == nil {
				t.Log("blocked: ", err)
			}
		}
	}
	c, err := kafkainbox.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{cancel, make(chan error, 1)}
	go func() { m.done <- c.Run(ctx) }()
	t.Cleanup(cancel)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.standing())
		}
	})
	return m
}

func (m *member) stop(t testing.TB) {
	t.Helper()
	if err := m.end(t); err != nil {
		t.Errorf("stop consumer: %v", err)
	}
}

// leave is stop while other members come and go: the group may rebalance for longer than the last
// commit waits. What is not committed then comes again, and verify shows that it has no second effect.
func (m *member) leave(t testing.TB) {
	t.Helper()
	err := m.end(t)
	if err == nil {
		return
	}
	if errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), "commit offsets") {
		t.Log(err)
		return
	}
	t.Errorf("stop consumer: %v", err)
}

// end stops the consumer, and returns its error.
func (m *member) end(t testing.TB) error {
	t.Helper()
	m.cancel()
	select {
	case err := <-m.done:
		return err
	case <-time.After(relaytest.Patience):
		t.Fatal("the consumer does not stop")
		return nil
	}
}

// through is an address by way of a proxy.
func through(t testing.TB, address string, proxy *sandbox.Proxy) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = proxy.Addr()
	return u.String()
}

func (s *shop) effects(t testing.TB) int {
	return harness.Query[int](t, s.db, "SELECT count(*)::int FROM journal")
}

func (s *shop) awaitEffects(t testing.TB, n int) {
	t.Helper()
	relaytest.Eventually(t, fmt.Sprint(n, " effects"), func() (bool, string) {
		got := s.effects(t)
		return got >= n, fmt.Sprint(got)
	})
}

// awaitAll waits until each event has an effect.
func (s *shop) awaitAll(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	n := len(s.ids)
	s.mu.Unlock()
	s.awaitEffects(t, n)
}

// awaitCommitted waits until the group has committed the ends of the topic.
func (s *shop) awaitCommitted(t testing.TB) {
	t.Helper()
	relaytest.Eventually(t, "all offsets are committed", func() (bool, string) {
		ends, err := kadm.NewClient(s.sent).ListEndOffsets(t.Context(), s.topic)
		if err != nil {
			return false, err.Error()
		}
		committed, err := s.offsets(t)
		if err != nil { // the coordinator may be on its way to another broker, or begin
			return false, err.Error()
		}
		left := int64(0)
		ends.Each(func(o kadm.ListedOffset) { left += o.Offset - committed[o.Partition] })
		return left == 0, fmt.Sprint("lag ", left)
	})
}

// finish waits until the consumer has handled and committed everything, stops it, and verifies what
// it left.
func (s *shop) finish(t testing.TB, m *member) {
	t.Helper()
	s.awaitAll(t)
	s.awaitCommitted(t)
	m.stop(t)
	s.verify(t)
}

// verify is E1 to E4: each event has its effect once, effects of a key are in order, no committed
// offset is ahead of the effects, and no claim is without its effect. Dead are ids without one.
func (s *shop) verify(t testing.TB, dead ...string) {
	t.Helper()
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, s.db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	// Before the journal is read: what is committed then has its effect by now.
	committed := s.committed(t)
	rows, err := conn.Query(ctx, "SELECT event, key, seq FROM journal ORDER BY n")
	if err != nil {
		t.Fatal(err)
	}
	type effect struct {
		Event, Key string
		Seq        int64
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[effect])
	if err != nil {
		t.Fatal(err)
	}
	seen, last := map[string]int{}, map[string]int64{}
	for _, e := range all {
		if seen[e.Event]++; seen[e.Event] > 1 {
			t.Errorf("E1: %s has %d effects", e.Event, seen[e.Event])
		}
		if e.Seq <= last[e.Key] {
			t.Errorf("E2: key %s: %d behind %d", e.Key, e.Seq, last[e.Key])
		}
		last[e.Key] = e.Seq
	}
	s.mu.Lock()
	want := maps.Clone(s.ids)
	s.mu.Unlock()
	for _, id := range dead {
		delete(want, id)
	}
	lost := 0
	for id := range want {
		if seen[id] == 0 {
			lost++
		}
	}
	if lost > 0 || len(seen) != len(want) {
		t.Errorf("E1: %d events have no effect; %d effects of %d events", lost, len(seen), len(want))
	}
	for _, r := range s.brokers.Read(t, s.topic) {
		id := header(r, "id")
		if r.Offset < committed[r.Partition] && want[id] && seen[id] == 0 {
			t.Errorf("E3: partition %d: %d is committed, and offset %d has no effect", r.Partition, committed[r.Partition], r.Offset)
		}
	}
	if n := harness.Query[int](t, s.db, "SELECT count(*)::int FROM inbox AS i WHERE NOT dead AND NOT EXISTS (SELECT FROM journal WHERE event = split_part(i.key, '/', 3))"); n > 0 {
		t.Errorf("E4: %d claims have no effect", n)
	}
}

func (s *shop) committed(t testing.TB) map[int32]int64 {
	t.Helper()
	at, err := s.offsets(t)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// offsets are those that the group has committed. It is asked over one client: a test that waits
// asks every 20 ms, and would have as many connections.
func (s *shop) offsets(t testing.TB) (map[int32]int64, error) {
	at := map[int32]int64{}
	offsets, err := kadm.NewClient(s.sent).FetchOffsets(t.Context(), s.group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, err
	}
	offsets.Each(func(o kadm.OffsetResponse) { at[o.Partition] = max(o.At, 0) })
	return at, nil
}

func header(r *kgo.Record, name string) (value string) {
	for _, h := range r.Headers {
		if h.Key == name {
			value = string(h.Value)
		}
	}
	return value
}
