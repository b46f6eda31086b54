package integration

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/sandbox/ledger"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// exactlyOnce is outbox with the guarantee of that name.
func exactlyOnce(t *testing.T, db *harness.Database, brokers *harness.Brokers, relay string) (*relaytest.Pipeline, *relaytest.Workload) {
	t.Helper()
	topic := harness.Unique(t, "checkpoints")
	p, w := outbox(t, db, brokers, fmt.Sprintf("relay: {guarantee: exactly_once, checkpoint_topic: %s%s}", topic, relay))
	if _, err := topics.EnsureCheckpointTopic(t.Context(), p.Settings().Kafka.Connection, p.Settings().Kafka.CreateTopics, topic, false); err != nil {
		t.Fatal(err)
	}
	return p, w
}

// readCommitted is what consumers see that read committed records.
func readCommitted(t *testing.T, p *relaytest.Pipeline, names ...string) []*kgo.Record {
	t.Helper()
	var all []*kgo.Record
	for _, topic := range names {
		err := topics.ReadTopic(t.Context(), p.Settings().Kafka.Connection, topic, func(m *topics.Message) error {
			r := &kgo.Record{Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, Timestamp: m.Timestamp, Key: m.Key, Value: m.Value}
			for _, h := range m.Headers {
				r.Headers = append(r.Headers, kgo.RecordHeader(h))
			}
			all = append(all, r)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// verifyOnce fails the test unless everything was delivered once, in order.
func verifyOnce(t *testing.T, p *relaytest.Pipeline, w *relaytest.Workload) ledger.Report {
	t.Helper()
	report := w.Ledger.Check(readCommitted(t, p, w.Topic()))
	t.Log(report)
	if err := report.Err(); err != nil {
		t.Fatal(err)
	}
	if report.Committed == 0 || report.Duplicates != 0 {
		t.Fatalf("%d committed, %d duplicates", report.Committed, report.Duplicates)
	}
	return report
}

// finishOnce has a last run deliver the rest, and stop.
func finishOnce(t *testing.T, p *relaytest.Pipeline) {
	t.Helper()
	running := p.Exec(t, "run")
	p.AwaitCaughtUp(t)
	running.Terminate(t)
	if code := running.Wait(t); code != 0 {
		t.Errorf("exit code of the last run = %d\n%s", code, running.Output())
	}
}

// The relay is killed again and again at work; consumers of committed records see
// every row once.
func TestExactlyOnce_KillsDuplicateNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *harness.Database, brokers *harness.Brokers) {
		kills, late := scale(t, "CDC_RELAY_TEST_KILLS", killsFor(brokers)/3), 0
		p, w := exactlyOnce(t, db, brokers, "")
		random := rand.New(rand.NewPCG(w.Seed, 1))
		w.Start(t, 2, 10*time.Millisecond)
		for done := 0; done < kills; {
			if killAtWork(t, p, w, random) {
				done++
			} else if late++; late > tooLate(kills) {
				t.Fatalf("%d of %d kills came after the last acknowledgement", late, late+done)
			}
		}
		w.Stop(t)
		finishOnce(t, p)
		verifyOnce(t, p, w)
	})
}

func TestExactlyOnce_StopsDuplicateNothing(t *testing.T) {
	t.Parallel()
	db, brokers := harness.Postgres(t), harness.Kfake(t, kfakeDefault)
	p, w := exactlyOnce(t, db, brokers, "")
	random := rand.New(rand.NewPCG(w.Seed, 1))
	w.Start(t, 2, time.Millisecond)
	for range 5 {
		running := p.Exec(t, "run")
		before := p.Confirmed(t)
		relaytest.Eventually(t, "the relay confirms", func() (bool, string) { return p.Confirmed(t) > before, running.Output() })
		<-time.After(time.Duration(random.IntN(200)) * time.Millisecond) // the random point
		running.Terminate(t)
		if code := running.Wait(t); code != 0 {
			t.Fatalf("exit code = %d\n%s", code, running.Output())
		}
	}
	w.Stop(t)
	finishOnce(t, p)
	verifyOnce(t, p, w)
}

// A transaction larger than the window is divided, and goes on after the last row
// that was committed.
func TestExactlyOnce_ALargeTransactionIsGoneOnWith(t *testing.T) {
	t.Parallel()
	db, brokers := harness.Postgres(t), harness.Kfake(t, kfakeDefault)
	p, w := exactlyOnce(t, db, brokers, ", max_in_flight_bytes: 256KiB")
	const large = 40_000
	w.Insert(t, 10)
	w.Insert(t, large)
	w.Insert(t, 10)
	g := newGate(brokers)
	for range 3 {
		seen := len(readCommitted(t, p, w.Topic()))
		open := g.closeAfter(1000)
		running := p.Exec(t, "run")
		relaytest.Eventually(t, "a part is delivered", func() (bool, string) {
			return len(readCommitted(t, p, w.Topic())) > max(seen, 10), running.Output()
		})
		running.Kill()
		open()
		if got := len(readCommitted(t, p, w.Topic())); got >= large+10 {
			t.Errorf("%d records: the kill came after the whole transaction", got)
		}
	}
	finishOnce(t, p)
	verifyOnce(t, p, w)
}

// gate has brokers take no more than about a number of records, all of them committed:
// a moment to kill a relay at that does not pass while the test looks.
type gate struct {
	mu      sync.Mutex
	left    int           // records to take before it closes
	closed  bool          // behind the end of a transaction
	opened  chan struct{} // nil: it stays open
	cluster *kfake.Cluster
}

func newGate(brokers *harness.Brokers) *gate {
	g := &gate{cluster: brokers.Fake.Cluster()}
	g.cluster.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		g.cluster.KeepControl()
		if opened := g.take(request.(*kmsg.ProduceRequest)); opened != nil {
			g.cluster.SleepControl(func() { <-opened })
		}
		return nil, nil, false
	})
	g.cluster.ControlKey(int16(kmsg.EndTxn), func(request kmsg.Request) (kmsg.Response, error, bool) {
		g.cluster.KeepControl()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.closed = g.closed || g.opened != nil && g.left <= 0 && request.(*kmsg.EndTxnRequest).Commit
		return nil, nil, false
	})
	return g
}

// take counts records; at a closed gate it returns what to wait for.
func (g *gate) take(request *kmsg.ProduceRequest) (opened <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return g.opened
	}
	for _, topic := range request.Topics {
		for _, partition := range topic.Partitions {
			var batch kmsg.RecordBatch
			if batch.UnsafeReadFrom(partition.Records) == nil {
				g.left -= int(batch.NumRecords)
			}
		}
	}
	return nil
}

func (g *gate) closeAfter(records int) (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left, g.closed, g.opened = records, false, make(chan struct{})
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		close(g.opened)
		g.closed, g.opened = false, nil
	}
}

// Positions of keep-alives are confirmed after a checkpoint.
func TestExactlyOnce_AnIdleOutboxHoldsNoWALBack(t *testing.T) {
	t.Parallel()
	db, brokers := harness.Postgres(t), harness.Kfake(t, kfakeDefault)
	p, _ := exactlyOnce(t, db, brokers, "")
	db.Exec(t, "CREATE TABLE other (x text)")
	r := p.Start(t)
	r.AwaitStreaming(t)
	for range 3 {
		db.Exec(t, "INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, 100)")
		p.AwaitCaughtUp(t)
	}
	r.Stop(t)
	p.Start(t).AwaitStreaming(t)
}

func TestExactlyOnce_ASlotAheadOfItsCheckpointIsAGap(t *testing.T) {
	t.Parallel()
	db, brokers := harness.Postgres(t), harness.Kfake(t, kfakeDefault)
	p, w := exactlyOnce(t, db, brokers, "")
	running := p.Exec(t, "run")
	w.Insert(t, 5)
	p.AwaitCaughtUp(t)
	running.Terminate(t)
	running.Wait(t)
	w.Insert(t, 5)
	moveSlot(t, p)
	running = p.Exec(t, "run")
	if code := running.Wait(t); code != 3 {
		t.Errorf("exit code = %d, want 3", code)
	}
	for _, text := range []string{"the slot is at", "checkpoint", "--accept-gap"} {
		if !strings.Contains(running.Output(), text) {
			t.Errorf("output does not mention %q:\n%s", text, running.Output())
		}
	}
	setup := p.Exec(t, "setup", "--accept-gap")
	if code := setup.Wait(t); code != 0 {
		t.Fatalf("setup --accept-gap: exit code = %d\n%s", code, setup.Output())
	}
	w.Insert(t, 5)
	finishOnce(t, p)
	if got := len(readCommitted(t, p, w.Topic())); got != 10 {
		t.Errorf("%d records, want those before and behind the gap", got)
	}
}

// Two relays cannot both hold the id, whoever has the slot.
func TestExactlyOnce_AFencedRelayEnds(t *testing.T) {
	t.Parallel()
	db, brokers := harness.Postgres(t), harness.Kfake(t, kfakeDefault)
	p, w := exactlyOnce(t, db, brokers, "")
	r := p.Start(t)
	w.Insert(t, 5)
	p.AwaitCaughtUp(t)
	system := harness.Query[string](t, db, "SELECT system_identifier::text FROM pg_control_system()")
	twin, err := kgo.NewClient(kgo.SeedBrokers(brokers.Addrs...), kgo.TransactionalID("cdc-relay-"+system+"-"+p.Slot))
	if err != nil {
		t.Fatal(err)
	}
	defer twin.Close()
	if _, _, err := twin.ProducerID(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Insert(t, 5)
	if err := r.Wait(t); err == nil || !strings.Contains(err.Error(), "another relay") {
		t.Errorf("ended with %v", err)
	}
	finishOnce(t, p) // whoever comes next takes over
	verifyOnce(t, p, w)
}

// A row that the topic does not take blocks, and what lies before it is committed.
func TestExactlyOnce_ARefusedRowBlocksAndHeals(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *harness.Database, brokers *harness.Brokers) {
		p, w := exactlyOnce(t, db, brokers, "")
		setMaxMessageBytes(t, brokers, w.Topic(), "20000")
		r := p.Start(t)
		r.AwaitStreaming(t)
		w.Insert(t, 5)
		w.InsertKey(t, uuid.New(), 1, 60_000)
		w.Insert(t, 5)
		r.AwaitBlocked(t, "record_too_large")
		relaytest.Eventually(t, "the rows before it are committed", func() (bool, string) {
			got := len(readCommitted(t, p, w.Topic()))
			return got == 5, fmt.Sprint(got)
		})
		setMaxMessageBytes(t, brokers, w.Topic(), "200000")
		p.AwaitCaughtUp(t)
		r.Await(t, "it streams again", func(s status.Status) bool { return s.State == status.Streaming })
		r.Stop(t)
		verifyOnce(t, p, w)
	})
}

// A dead letter is committed with the rest of its transaction.
func TestExactlyOnce_DeadLettersAreWrittenOnce(t *testing.T) {
	t.Parallel()
	db, brokers := harness.Postgres(t), harness.Kfake(t, kfakeDefault)
	letters := harness.Unique(t, "letters")
	p, w := exactlyOnce(t, db, brokers, ", on_reject: dead_letter, dead_letter_topic: "+letters)
	if _, err := topics.EnsureTopic(t.Context(), p.Settings().Kafka.Connection, p.Settings().Kafka.CreateTopics, letters, false); err != nil {
		t.Fatal(err)
	}
	setMaxMessageBytes(t, brokers, w.Topic(), "20000")
	r := p.Start(t)
	r.AwaitStreaming(t)
	w.Insert(t, 5)
	db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
		SELECT $1, gen_random_uuid(), 'x', jsonb_build_object('fill', repeat('x', CASE WHEN i IN (3, 7) THEN 60000 ELSE 10 END)) FROM generate_series(1, 10) AS i`,
		strings.TrimSuffix(w.Topic(), "-events"))
	db.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('no topic!', gen_random_uuid(), 'x', '{}')")
	w.Insert(t, 5)
	p.AwaitCaughtUp(t)
	r.Stop(t)
	if got := len(readCommitted(t, p, letters)); got != 3 {
		t.Errorf("%d dead letters, want 3", got)
	}
	if got := len(readCommitted(t, p, w.Topic())); got != 18 {
		t.Errorf("%d records, want 18", got)
	}
	if status := r.Status(); status.EventsRejected != 3 || status.DeadLetters != 3 || status.Guarantee != "exactly_once" {
		t.Errorf("status %+v", status)
	}
}

func TestExactlyOnce_WantsItsCheckpointTopic(t *testing.T) {
	t.Parallel()
	db, brokers := harness.Postgres(t), harness.Kfake(t, kfakeDefault)
	for name, c := range map[string]struct {
		partitions int32
		policy     string
		mentions   string
	}{
		"missing": {0, "", "cdc-relay setup"}, "wide": {3, "compact", "3 partitions"}, "deleted": {1, "delete", "cleanup.policy"},
	} {
		topic := harness.Unique(t, name)
		if c.partitions > 0 {
			brokers.CreateTopic(t, topic, c.partitions, "cleanup.policy", c.policy)
		}
		p := relaytest.New(t, db, brokers, []string{"{table: public.outbox}"}, fmt.Sprintf("relay: {guarantee: exactly_once, checkpoint_topic: %s}", topic))
		p.Setup(t)
		running := p.Exec(t, "run")
		if code := running.Wait(t); code != 3 || !strings.Contains(running.Output(), c.mentions) {
			t.Errorf("%s: exit code %d, want 3 and %q:\n%s", name, code, c.mentions, running.Output())
		}
	}
}
