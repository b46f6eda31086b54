package ends

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/inbox/kafkainbox"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

var errPoison = errors.New("poison with the customer's name in it")

func TestPoison_BlocksItsPartitionAloneAndHeals(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
	s.finish(t, m)
}

func TestPoison_AmongOthersCountsAloneAndKeepsOrder(t *testing.T) {
	t.Parallel()
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
			if tries++; tries < 16 { // up to 8 of them to be alone, where all keys are in one queue
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
	t.Parallel()
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
	relaytest.Eventually(t, "what is before the poison is committed", func() (bool, string) {
		at := s.committed(t)[0]
		return at >= poison.Offset, fmt.Sprint(at)
	})
	m.stop(t)
	if at := s.committed(t)[0]; at != poison.Offset {
		t.Errorf("offset %d is committed, and %d has no effect", at, poison.Offset)
	}
	mu.Lock()
	cured = true
	mu.Unlock()
	m = s.start(t, cfg)
	s.finish(t, m)
}

// While brokers do not take the dead letter, its record is neither marked nor passed.
func TestPoison_LetterComesBeforeTheOffset(t *testing.T) {
	t.Parallel()
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
	cfg.Events.Trouble = func(err error) {
		select {
		case troubled <- err:
		default: // it goes on, whoever looks
		}
	}
	m := s.start(t, cfg)
	for range 3 {
		if err := <-troubled; !strings.Contains(err.Error(), "dead letter") {
			t.Error(err)
		}
	}
	relaytest.Eventually(t, "offsets are committed", func() (bool, string) { return s.committed(t)[0] > 0, "" })
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

// A client that is refused a producer id keeps to that: what to do is said, and nothing is passed.
func TestPoison_LetterOfAClientThatMayNotWrite(t *testing.T) {
	t.Parallel()
	s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 1)
	letters := s.topic + "-dead-letters"
	s.brokers.CreateTopic(t, letters, 1)
	s.produce(t, 20, 5)
	poison := s.past[10]
	refused := s.brokers.Fake.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, TopLevel: true, Err: kerr.ClusterAuthorizationFailed, Count: -1})
	cfg := s.config()
	cfg.DeadLetterTopic = letters
	cfg.Handle = func(ctx context.Context, tx pgx.Tx, r *kgo.Record) error {
		if header(r, "id") == header(poison, "id") {
			return kafkainbox.Permanent(errPoison)
		}
		return journal(ctx, tx, r)
	}
	troubled := make(chan error, 1000)
	cfg.Events.Trouble = func(err error) {
		select {
		case troubled <- err:
		default: // it goes on, whoever looks
		}
	}
	m := s.start(t, cfg)
	for range 2 {
		if err := <-troubled; !errors.Is(err, kerr.ClusterAuthorizationFailed) || !strings.Contains(err.Error(), "grant WRITE on the topic") || !strings.Contains(err.Error(), "start the consumer again") {
			t.Error(err)
		}
	}
	refused.Remove()
	m.stop(t)
	m = s.start(t, cfg)
	s.awaitEffects(t, 19)
	s.awaitCommitted(t)
	m.stop(t)
	s.verify(t, header(poison, "id"))
	if letters := s.brokers.Read(t, letters); len(letters) != 1 {
		t.Errorf("%d dead letters", len(letters))
	}
}

// A connection that ends some times while a record is handled says nothing about the record.
func TestPoison_IsNotARecordWhoseConnectionEnds(t *testing.T) {
	t.Parallel()
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
			case n <= 4: // until it is watched
				tx.Conn().PgConn().Conn().Close()
			case n <= 8: // one attempt less than Retry.Attempts
				_, _ = tx.Exec(ctx, endsItsConnection)
			}
		}
		return journal(ctx, tx, r)
	}
	m := s.start(t, cfg)
	s.finish(t, m)
	if dead := s.brokers.Read(t, letters); len(dead) != 0 || ended.Load() != 9 {
		t.Errorf("%d dead letters behind %d ends", len(dead), ended.Load())
	}
}

// A handler that goes on after a statement that failed, ends the transaction, or leaves rows open has no claim
// without its effect.
func TestPoison_OfAHandlerThatHidesItsErrors(t *testing.T) {
	t.Parallel()
	s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 1)
	letters := s.topic + "-dead-letters"
	s.brokers.CreateTopic(t, letters, 1)
	s.produce(t, 60, 3)
	hides, ends, open := header(s.past[20], "id"), header(s.past[30], "id"), header(s.past[40], "id")
	cfg := s.config()
	cfg.DeadLetterTopic = letters
	cfg.Handle = func(ctx context.Context, tx pgx.Tx, r *kgo.Record) error {
		switch header(r, "id") {
		case hides:
			_, _ = tx.Exec(ctx, "INSERT INTO journal (event) VALUES (NULL)")
			return nil
		case ends:
			return tx.Commit(ctx)
		case open:
			_, err := tx.Query(ctx, "SELECT 1") //nolint:sqlclosecheck // what the test is about
			return err
		}
		return journal(ctx, tx, r)
	}
	m := s.start(t, cfg)
	s.awaitEffects(t, 57)
	s.awaitCommitted(t)
	m.stop(t)
	s.verify(t, hides, ends, open)
	dead := s.brokers.Read(t, letters)
	if len(dead) != 3 {
		t.Fatalf("%d dead letters: %v", len(dead), dead)
	}
	for i, want := range []string{"statement of the handler failed", "committed or rolled back when", "left the rows"} {
		if got := header(dead[i], "cdc-relay-error-message"); !strings.Contains(got, want) {
			t.Errorf("dead letter %d: %s", i, got)
		}
	}
}

// sentTo calls a function before a record goes to a topic.
type sentTo struct {
	topic string
	do    func()
}

func (s sentTo) OnProduceRecordBuffered(r *kgo.Record) {
	if r.Topic == s.topic {
		s.do()
	}
}

// Two members may believe to own a partition. What the other one handled, after the last attempt
// of this one failed, is no dead key: its dead letter, sent again, would be handled a second time.
func TestPoison_ThatAnotherMemberHandledIsNoDeadKey(t *testing.T) {
	t.Parallel()
	s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 1)
	letters := s.topic + "-dead-letters"
	s.brokers.CreateTopic(t, letters, 1)
	s.produce(t, 1, 1)
	cfg := s.config()
	cfg.DeadLetterTopic = letters
	cfg.Handle = func(context.Context, pgx.Tx, *kgo.Record) error { return kafkainbox.Permanent(errPoison) }
	other := sentTo{letters, func() {
		s.db.Exec(t, "INSERT INTO inbox (consumer, key, at) VALUES ('billing', $1, now())", s.topic+"/i/"+header(s.past[0], "id"))
	}}
	cfg.Kafka = append(cfg.Kafka, kgo.WithHooks(other))
	m := s.start(t, cfg)
	s.awaitCommitted(t)
	m.stop(t)
	if n := harness.Query[int](t, s.db, "SELECT count(*)::int FROM inbox WHERE NOT dead"); n != 1 {
		t.Errorf("%d keys are claimed: the dead letter would be handled again", n)
	}
}

// The relay sends records of up to 1 MiB. Such a one becomes a dead letter, too: how large a record
// may be is the brokers' decision.
func TestPoison_OfTheLargestSizeBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 1)
	letters := s.topic + "-dead-letters"
	s.brokers.CreateTopic(t, letters, 1)
	client, err := kgo.NewClient(kgo.SeedBrokers(s.brokers.Addrs...), kgo.ProducerBatchMaxBytes(2<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	large := &kgo.Record{Topic: s.topic, Key: []byte("k"), Value: make([]byte, 1_020_000), Headers: []kgo.RecordHeader{{Key: "id", Value: []byte("large")}}}
	if err := client.ProduceSync(t.Context(), large).FirstErr(); err != nil {
		t.Fatal(err)
	}
	cfg := s.config()
	cfg.DeadLetterTopic = letters
	cfg.Handle = func(context.Context, pgx.Tx, *kgo.Record) error { return kafkainbox.Permanent(errPoison) }
	m := s.start(t, cfg)
	s.awaitCommitted(t)
	m.stop(t)
	if sent := s.brokers.Read(t, letters); len(sent) != 1 || len(sent[0].Value) != len(large.Value) {
		t.Errorf("%d dead letters", len(sent))
	}
}
