package ends

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox"
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
	c, err := kafkainbox.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{cancel, make(chan error, 1)}
	go func() { m.done <- c.Run(ctx) }()
	t.Cleanup(cancel)
	return m
}

func (m *member) stop(t testing.TB) {
	t.Helper()
	if err := m.end(t); err != nil {
		t.Errorf("stop consumer: %v", err)
	}
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

// A table that is missing ends the start; a database that does not answer is waited for.
func TestConsumer_StartTellsRefusedFromAbsent(t *testing.T) {
	db := harness.Postgres(t)
	s := newShop(t, db, harness.Kfake(t, sandbox.KafkaOptions{}), 1)
	cfg := s.config()
	cfg.Schema = "elsewhere"
	c, err := kafkainbox.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "42P01") || !strings.Contains(err.Error(), "sql --inbox") {
		t.Error(err)
	}
	proxy, err := sandbox.NewProxy(db.Server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	proxy.Refuse()
	cfg = s.config()
	cfg.DB = newPool(t, through(t, db.URL, proxy), 4)
	troubled := make(chan struct{}, 1000)
	cfg.Events.Trouble = func(error) { troubled <- struct{}{} }
	s.produce(t, 10, 2)
	m := s.start(t, cfg)
	for range 3 {
		<-troubled
	}
	proxy.Heal()
	s.awaitAll(t)
	m.stop(t)
	s.verify(t)
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
	admin := s.brokers.Admin(t)
	relaytest.Eventually(t, "all offsets are committed", func() (bool, string) {
		ends, err := admin.ListEndOffsets(t.Context(), s.topic)
		if err != nil {
			return false, err.Error()
		}
		committed, left := s.committed(t), int64(0)
		ends.Each(func(o kadm.ListedOffset) { left += o.Offset - committed[o.Partition] })
		return left == 0, fmt.Sprint("lag ", left)
	})
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
	at := map[int32]int64{}
	offsets, err := s.brokers.Admin(t).FetchOffsets(t.Context(), s.group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		t.Fatal(err)
	}
	offsets.Each(func(o kadm.OffsetResponse) { at[o.Partition] = max(o.At, 0) })
	return at
}

func header(r *kgo.Record, name string) (value string) {
	for _, h := range r.Headers {
		if h.Key == name {
			value = string(h.Value)
		}
	}
	return value
}

// ways are configurations that differ in how events are handled.
var ways = map[string]func(*kafkainbox.Config){
	"one at a time": func(*kafkainbox.Config) {},
	"parallel":      func(c *kafkainbox.Config) { c.Parallel = 4 },
	"rounds": func(c *kafkainbox.Config) {
		c.Handle, c.HandleRound = nil, kafkainbox.Pipelined(func(batch *pgx.Batch, r *kgo.Record) error {
			batch.Queue("INSERT INTO journal (event, key, seq) VALUES ($1, $2, $3)", string(r.Headers[0].Value), string(r.Key), number(r))
			return nil
		})
	},
	"server-side balancer": func(c *kafkainbox.Config) { c.Kafka = append(c.Kafka, kgo.ServerSideBalancer()) },
	"offsets":              func(c *kafkainbox.Config) { c.Offsets = true },
	"hints":                func(c *kafkainbox.Config) { c.Hints = inbox.Recent(100) },
}

func TestConsumer_HandlesEachEventOnce(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		harness.EachBroker(t, func(t *testing.T, brokers *harness.Brokers) {
			for _, way := range slices.Sorted(maps.Keys(ways)) {
				t.Run(way, func(t *testing.T) {
					db := harness.Postgres(t, db.Major())
					s := newShop(t, db, brokers, 3)
					cfg := s.config()
					ways[way](&cfg)
					s.unique = cfg.Offsets
					s.produce(t, 300, 20)
					s.repeat(t, 100)
					first, second := s.start(t, cfg), s.start(t, cfg)
					s.produce(t, 700, 20)
					s.repeat(t, 1000)
					s.produce(t, 10, 20)
					s.awaitAll(t)
					s.awaitCommitted(t)
					s.verify(t)
					first.stop(t)
					s.produce(t, 100, 20)
					s.awaitAll(t)
					second.stop(t)
					s.verify(t)
				})
			}
		})
	})
}

// Members join and leave without pause. Each partition moves some hundred times.
func TestConsumer_RebalanceStorm(t *testing.T) {
	harness.EachBroker(t, func(t *testing.T, brokers *harness.Brokers) {
		for _, way := range []string{"one at a time", "parallel", "server-side balancer", "offsets"} {
			t.Run(way, func(t *testing.T) {
				s := newShop(t, harness.Postgres(t), brokers, 12)
				cfg := s.config()
				ways[way](&cfg)
				s.unique = cfg.Offsets
				length := 6 * time.Second
				if testing.Short() {
					length = 2 * time.Second
				}
				members := []*member{s.start(t, cfg)}
				for end := time.Now().Add(length); time.Now().Before(end); {
					s.produce(t, 150, 40)
					if rand.IntN(3) == 0 {
						s.repeat(t, 200)
					}
					<-time.After(200 * time.Millisecond)
					if n := len(members); n > 1 && (n == 5 || rand.IntN(2) == 0) {
						i := rand.IntN(n)
						members[i].stop(t)
						members = slices.Delete(members, i, i+1)
					} else {
						members = append(members, s.start(t, cfg))
					}
				}
				s.awaitAll(t)
				for _, m := range members {
					m.stop(t)
				}
				s.verify(t)
			})
		}
	})
}

var errPoison = errors.New("poison with the customer's name in it")

func TestPoison_BlocksItsPartitionAloneAndHeals(t *testing.T) {
	s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 4)
	s.produce(t, 400, 30)
	poison := s.past[57]
	id := header(poison, "id")
	var mu sync.Mutex
	cured := false
	blocked, unblocked := make(chan *kafkainbox.RecordError, 100), make(chan string, 100)
	cfg := s.config()
	cfg.Handle = func(ctx context.Context, tx pgx.Tx, r *kgo.Record) error {
		if err := journal(ctx, tx, r); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if header(r, "id") == id && !cured {
			return errPoison
		}
		return nil
	}
	cfg.Events.Blocked = func(e *kafkainbox.RecordError) { blocked <- e }
	cfg.Events.Unblocked = func(topic string, number int32) { unblocked <- fmt.Sprint(topic, number) }
	m := s.start(t, cfg)
	var e *kafkainbox.RecordError
	select {
	case e = <-blocked:
	case <-time.After(relaytest.Patience):
		t.Fatal("it does not block")
	}
	if e.Partition != poison.Partition || e.Offset != poison.Offset || e.Attempts != 5 || !errors.Is(e, errPoison) || strings.Contains(e.Error(), "customer") {
		t.Errorf("%v", e)
	}
	behind := 0 // records that wait for the poison
	for _, r := range s.past {
		if r.Partition == poison.Partition && r.Offset >= poison.Offset {
			behind++
		}
	}
	s.awaitEffects(t, 400-behind)
	if n := s.effects(t); n != 400-behind {
		t.Errorf("%d effects, want %d", n, 400-behind)
	}
	mu.Lock()
	cured = true
	mu.Unlock()
	s.awaitAll(t)
	m.stop(t)
	s.verify(t)
	if len(unblocked) != 1 || len(blocked) != 0 {
		t.Errorf("blocked %d times more, unblocked %d times", len(blocked), len(unblocked))
	}
}

func TestPoison_BecomesADeadLetterAndIsHandledWhenItIsSentAgain(t *testing.T) {
	s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 2)
	letters := s.topic + "-dead-letters"
	s.brokers.CreateTopic(t, letters, 1)
	s.produce(t, 300, 30)
	poison := map[string]bool{header(s.past[11], "id"): true, header(s.past[200], "id"): true}
	var mu sync.Mutex
	attempts := map[string]int{}
	cfg := s.config()
	cfg.DeadLetterTopic = letters
	cfg.Handle = func(ctx context.Context, tx pgx.Tx, r *kgo.Record) error {
		mu.Lock()
		bad := poison[header(r, "id")]
		if bad {
			attempts[header(r, "id")]++
		}
		mu.Unlock()
		if bad && header(r, "id") == header(s.past[200], "id") {
			panic("a bug") //nolint:forbidigo // what the test is about
		}
		if bad {
			return kafkainbox.Permanent(errPoison)
		}
		return journal(ctx, tx, r)
	}
	m := s.start(t, cfg)
	s.awaitEffects(t, 298)
	s.awaitCommitted(t)
	dead := slices.Collect(maps.Keys(poison))
	s.verify(t, dead...)
	found := s.brokers.Read(t, letters)
	if len(found) != 2 {
		t.Fatalf("%d dead letters", len(found))
	}
	for _, letter := range found {
		if !poison[header(letter, "id")] || header(letter, "cdc-relay-error-topic") != s.topic || header(letter, "cdc-relay-error-consumer") != "billing" || strings.Contains(header(letter, "cdc-relay-error-message"), "customer") {
			t.Errorf("dead letter %v", letter.Headers)
		}
	}
	// The same events come again, and are set aside again; then they are cured, and sent again.
	s.repeat(t, 300)
	s.awaitCommitted(t)
	s.verify(t, dead...)
	mu.Lock()
	clear(poison)
	mu.Unlock()
	for _, r := range []*kgo.Record{s.past[11], s.past[200]} {
		for range 2 {
			s.send(t, []*kgo.Record{{Key: []byte("again " + header(r, "id")), Value: r.Value, Headers: r.Headers}})
		}
	}
	s.awaitAll(t)
	s.awaitCommitted(t)
	m.stop(t)
	s.verify(t)
}

func TestPoison_AmongOthersCountsAloneAndKeepsOrder(t *testing.T) {
	s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 1)
	s.produce(t, 200, 5)
	bad := header(s.past[100], "id")
	var mu sync.Mutex
	failed := map[int64]int{}
	cfg := s.config()
	cfg.RoundEvents, cfg.Parallel = 200, 3
	tries := 0
	cfg.Handle = func(ctx context.Context, tx pgx.Tx, r *kgo.Record) error {
		mu.Lock()
		defer mu.Unlock()
		if header(r, "id") == bad {
			if tries++; tries < 12 {
				return errPoison
			}
		}
		return journal(ctx, tx, r)
	}
	cfg.Events.Failed = func(e *kafkainbox.RecordError) {
		mu.Lock()
		defer mu.Unlock()
		failed[e.Offset]++
	}
	m := s.start(t, cfg)
	s.awaitAll(t)
	m.stop(t)
	s.verify(t)
	if offset := s.past[100].Offset; len(failed) != 1 || failed[offset] < 4 {
		t.Errorf("failed: %v; the poison is %d", failed, offset)
	}
}

// With several transactions at a time, what is done behind a record that is not does not move the
// offset past it.
func TestPoison_HoldsTheOffsetOfItsPartition(t *testing.T) {
	s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 1)
	s.produce(t, 300, 40)
	poison := s.past[10]
	cfg := s.config()
	cfg.Parallel = 4
	var mu sync.Mutex
	cured := false
	cfg.Handle = func(ctx context.Context, tx pgx.Tx, r *kgo.Record) error {
		mu.Lock()
		defer mu.Unlock()
		if header(r, "id") == header(poison, "id") && !cured {
			return errPoison
		}
		return journal(ctx, tx, r)
	}
	m := s.start(t, cfg)
	s.awaitEffects(t, 100)
	relaytest.Eventually(t, "offsets are committed", func() (bool, string) { return s.committed(t)[0] > 0, "" })
	m.stop(t)
	if at := s.committed(t)[0]; at != poison.Offset {
		t.Errorf("offset %d is committed, and %d has no effect", at, poison.Offset)
	}
	mu.Lock()
	cured = true
	mu.Unlock()
	m = s.start(t, cfg)
	s.awaitAll(t)
	s.awaitCommitted(t)
	m.stop(t)
	s.verify(t)
}

// A connection that ends while a record is handled says nothing about the record.
// While brokers do not take the dead letter, its record is neither marked nor passed.
func TestPoison_LetterComesBeforeTheOffset(t *testing.T) {
	s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 1)
	s.produce(t, 30, 5)
	poison := s.past[10]
	cfg := s.config()
	cfg.DeadLetterTopic = s.topic + "-dead-letters" // which is not there yet
	cfg.Kafka = append(cfg.Kafka, kgo.UnknownTopicRetries(0))
	cfg.Handle = func(ctx context.Context, tx pgx.Tx, r *kgo.Record) error {
		if header(r, "id") == header(poison, "id") {
			return kafkainbox.Permanent(errPoison)
		}
		return journal(ctx, tx, r)
	}
	troubled := make(chan error, 1000)
	cfg.Events.Trouble = func(err error) { troubled <- err }
	m := s.start(t, cfg)
	for range 3 {
		if err := <-troubled; !strings.Contains(err.Error(), "dead letter") {
			t.Error(err)
		}
	}
	<-time.After(1500 * time.Millisecond) // offsets are committed each second
	if at := s.committed(t)[0]; at > poison.Offset {
		t.Errorf("offset %d is committed, and %d is nowhere", at, poison.Offset)
	}
	if n := harness.Query[int](t, s.db, "SELECT count(*)::int FROM inbox WHERE dead"); n > 0 {
		t.Error("the key is marked")
	}
	s.brokers.CreateTopic(t, cfg.DeadLetterTopic, 1)
	s.awaitEffects(t, 29)
	s.awaitCommitted(t)
	m.stop(t)
	s.verify(t, header(poison, "id"))
	if letters := s.brokers.Read(t, cfg.DeadLetterTopic); len(letters) != 1 {
		t.Errorf("%d dead letters", len(letters))
	}
}

func TestPoison_IsNotARecordWhoseConnectionEnds(t *testing.T) {
	s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 1)
	letters := s.topic + "-dead-letters"
	s.brokers.CreateTopic(t, letters, 1)
	s.produce(t, 20, 3)
	cfg := s.config()
	cfg.DeadLetterTopic, cfg.RoundEvents = letters, 1
	cfg.Events.Trouble = func(error) {}
	var ended atomic.Int32
	cfg.Handle = func(ctx context.Context, tx pgx.Tx, r *kgo.Record) error {
		if header(r, "id") == header(s.past[7], "id") {
			switch n := ended.Add(1); {
			case n <= 8:
				tx.Conn().PgConn().Conn().Close()
			case n <= 16:
				_, _ = tx.Exec(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
			}
		}
		return journal(ctx, tx, r)
	}
	m := s.start(t, cfg)
	s.awaitAll(t)
	s.awaitCommitted(t)
	m.stop(t)
	s.verify(t)
	if dead := s.brokers.Read(t, letters); len(dead) != 0 || ended.Load() < 17 {
		t.Errorf("%d dead letters behind %d ends", len(dead), ended.Load())
	}
}

// A handler that goes on after a statement that failed, or ends the transaction, leaves no claim
// without its effect.
func TestPoison_OfAHandlerThatHidesItsErrors(t *testing.T) {
	s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 1)
	letters := s.topic + "-dead-letters"
	s.brokers.CreateTopic(t, letters, 1)
	s.produce(t, 60, 3)
	hides, ends := header(s.past[20], "id"), header(s.past[30], "id")
	cfg := s.config()
	cfg.DeadLetterTopic = letters
	cfg.Handle = func(ctx context.Context, tx pgx.Tx, r *kgo.Record) error {
		switch header(r, "id") {
		case hides:
			_, _ = tx.Exec(ctx, "INSERT INTO journal (event) VALUES (NULL)")
			return nil
		case ends:
			return tx.Commit(ctx)
		}
		return journal(ctx, tx, r)
	}
	m := s.start(t, cfg)
	s.awaitEffects(t, 58)
	s.awaitCommitted(t)
	m.stop(t)
	s.verify(t, hides, ends)
	if dead := s.brokers.Read(t, letters); len(dead) != 2 || !strings.Contains(header(dead[0], "cdc-relay-error-message"), "statement of the handler failed") || !strings.Contains(header(dead[1], "cdc-relay-error-message"), "committed or rolled back when") {
		t.Errorf("%d dead letters: %v", len(dead), dead)
	}
}

func TestConsumer_TakesBadRecords(t *testing.T) {
	s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 1)
	letters := s.topic + "-dead-letters"
	s.brokers.CreateTopic(t, letters, 1)
	huge := strings.Repeat("x", 700_000)
	h := func(pairs ...string) (headers []kgo.RecordHeader) {
		for i := 0; i < len(pairs); i += 2 {
			headers = append(headers, kgo.RecordHeader{Key: pairs[i], Value: []byte(pairs[i+1])})
		}
		return headers
	}
	good := map[string][]kgo.RecordHeader{
		"huge": h("id", huge), "other huge": h("id", huge+"y"), "twice": h("id", "a", "id", "b"), "the last counts": h("id", "b2", "id", "a"), "zero": h("id", "a\x00"), "no UTF-8": h("id", "\xff"),
		"idempotency key": h("id", "c", "idempotency_key", "k"), "empty idempotency key": h("id", "d", "idempotency_key", ""),
	}
	again := map[string][]kgo.RecordHeader{"same last id": h("id", "x", "id", "b"), "same idempotency key": h("id", "e", "idempotency_key", "k")}
	none := map[string][]kgo.RecordHeader{"none": nil, "empty": h("id", ""), "both empty": h("id", "", "idempotency_key", ""), "other case": h("ID", "1")}
	var handled []string
	cfg := s.config()
	cfg.DeadLetterTopic = letters
	cfg.Handle = func(_ context.Context, _ pgx.Tx, r *kgo.Record) error {
		handled = append(handled, string(r.Key)) // one partition, one goroutine
		return nil
	}
	for _, cases := range []map[string][]kgo.RecordHeader{good, again, none} {
		for _, name := range slices.Sorted(maps.Keys(cases)) {
			s.send(t, []*kgo.Record{{Key: []byte(name), Headers: cases[name]}}) // without a value
		}
	}
	m := s.start(t, cfg)
	s.awaitCommitted(t)
	m.stop(t)
	if want := slices.Sorted(maps.Keys(good)); !slices.Equal(handled, want) {
		t.Errorf("handled %q", handled)
	}
	var dead []string
	for _, r := range s.brokers.Read(t, letters) {
		dead = append(dead, string(r.Key))
	}
	if want := slices.Sorted(maps.Keys(none)); !slices.Equal(dead, want) {
		t.Errorf("dead %q", dead)
	}
}

// Of Kafka transactions only what is committed is handled. Their markers do not keep the group
// from the end of the topic.
func TestConsumer_ReadsCommittedTransactionsToTheEnd(t *testing.T) {
	harness.EachBroker(t, func(t *testing.T, brokers *harness.Brokers) {
		s := newShop(t, harness.Postgres(t), brokers, 2)
		client, err := kgo.NewClient(kgo.SeedBrokers(brokers.Addrs...), kgo.DefaultProduceTopic(s.topic), kgo.TransactionalID(s.topic))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		m := s.start(t, s.config())
		for n, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit, kgo.TryAbort} {
			if err := client.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			for i := range 50 {
				id := fmt.Sprint(n, "-", i)
				record := &kgo.Record{Key: fmt.Append(nil, i%7), Value: []byte(strconv.Itoa(n*50 + i + 1)), Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(id)}}}
				if err := client.ProduceSync(t.Context(), record).FirstErr(); err != nil {
					t.Fatal(err)
				}
				if end == kgo.TryCommit {
					s.ids[id] = true
				}
			}
			if err := client.EndTransaction(t.Context(), end); err != nil {
				t.Fatal(err)
			}
		}
		s.awaitAll(t)
		s.awaitCommitted(t)
		m.stop(t)
		s.verify(t)
	})
}
