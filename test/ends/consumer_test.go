package ends

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/kafkainbox"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A table that is missing ends the start; a database that does not answer is waited for.
func TestConsumer_StartTellsRefusedFromAbsent(t *testing.T) {
	t.Parallel()
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
	troubled := make(chan struct{}, 3)
	cfg.Events.Trouble = func(error) {
		select {
		case troubled <- struct{}{}:
		default: // it goes on, whoever looks
		}
	}
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
	t.Parallel()
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		harness.EachBroker(t, func(t *testing.T, brokers *harness.Brokers) {
			for i, way := range slices.Sorted(maps.Keys(ways)) {
				if left(brokers, i) {
					continue
				}
				t.Run(way, func(t *testing.T) {
					t.Parallel()
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
	t.Parallel()
	harness.EachBroker(t, func(t *testing.T, brokers *harness.Brokers) {
		for i, way := range []string{"one at a time", "parallel", "server-side balancer", "offsets"} {
			if left(brokers, i) {
				continue
			}
			t.Run(way, func(t *testing.T) {
				t.Parallel()
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
						members[i].leave(t)
						members = slices.Delete(members, i, i+1)
					} else {
						members = append(members, s.start(t, cfg))
					}
				}
				s.awaitAll(t)
				for _, m := range members {
					m.leave(t)
				}
				s.verify(t)
			})
		}
	})
}

func TestConsumer_TakesBadRecords(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
		s.finish(t, m)
	})
}
