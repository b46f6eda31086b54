package ends

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox/kafkainbox"
	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/outbox/pgxoutbox"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

var program struct {
	once sync.Once
	path string
	err  error
}

// relayProgram builds the relay, once.
func relayProgram(t testing.TB) string {
	t.Helper()
	program.once.Do(func() {
		dir, err := sandbox.TempDir("relay")
		if err != nil {
			program.err = err
			return
		}
		harness.AtExit(func() error { return os.RemoveAll(dir) })
		program.path = filepath.Join(dir, "cdc-relay")
		cmd := exec.Command("go", "build", "-ldflags", "-s -w", "-o", program.path, "./cmd/cdc-relay")
		cmd.Dir = filepath.Join("..", "..")
		if out, err := cmd.CombinedOutput(); err != nil {
			program.err = fmt.Errorf("%w\n%s", err, out)
		}
	})
	if program.err != nil {
		t.Fatal(program.err)
	}
	return program.path
}

// relayCommand is the program with the pipeline's configuration.
func relayCommand(t testing.TB, p *relaytest.Pipeline, args ...string) *exec.Cmd {
	t.Helper()
	file := filepath.Join(t.TempDir(), "cdc-relay.yaml")
	if err := os.WriteFile(file, []byte(p.YAML), 0o600); err != nil {
		t.Fatal(err)
	}
	return exec.CommandContext(t.Context(), relayProgram(t), append(args, "--config", file)...)
}

// trial is what an event goes through from end to end.
type trial struct {
	postgres, brokers string

	// exact is a relay with exactly_once and a consumer that keeps offsets and no keys.
	exact bool
}

// Writers write with package outbox, the relay is killed all the time, members of the group come
// and go, and a service journals what it gets, in other databases on the same server. What the
// relay leaves is repeats or, with exactly_once, transactions that are aborted.
func TestEndToEnd_EachWriteHasOneEffectInOrder(t *testing.T) {
	for name, on := range map[string]trial{
		"15 kfake":               {postgres: "15", brokers: "kfake"},
		"18 apache":              {postgres: "18", brokers: "apache"},
		"18 kfake exactly once":  {postgres: "18", brokers: "kfake", exact: true},
		"15 apache exactly once": {postgres: "15", brokers: "apache", exact: true},
	} {
		t.Run(name, func(t *testing.T) {
			brokers := harness.Kfake
			if on.brokers == "apache" {
				brokers = func(t testing.TB, _ sandbox.KafkaOptions) *harness.Brokers { return harness.Kafka(t) }
			}
			endToEnd(t, harness.Postgres(t, on.postgres), harness.Postgres(t, on.postgres), brokers(t, sandbox.KafkaOptions{}), on.exact)
		})
	}
}

func endToEnd(t *testing.T, from, to *harness.Database, brokers *harness.Brokers, exact bool) {
	s := newShop(t, to, brokers, 4)
	kind := strings.TrimSuffix(s.topic, "-events")
	s.topic = kind + "-events"
	brokers.CreateTopic(t, s.topic, 4)
	var relay []string
	checkpoints := harness.Unique(t, "checkpoints")
	if exact {
		relay = []string{"relay: {guarantee: exactly_once, checkpoint_topic: " + checkpoints + "}"}
	}
	p := relaytest.New(t, from, brokers, []string{"{table: public.outbox}"}, relay...)
	p.Setup(t)
	if exact {
		kafka := p.Settings().Kafka
		if _, err := topics.EnsureCheckpointTopic(t.Context(), kafka.Connection, kafka.CreateTopics, checkpoints, false); err != nil {
			t.Fatal(err)
		}
	}
	pool := newPool(t, from.URL, 6)

	cfg := s.config()
	cfg.Topics, cfg.RoundEvents, cfg.Offsets = []string{s.topic}, 200, exact
	cfg.Handle = journalPayload
	var mu sync.Mutex
	duplicates := 0
	cfg.Events.Round = func(r kafkainbox.Round) {
		mu.Lock()
		defer mu.Unlock()
		duplicates += r.Duplicates
	}
	// What kills left in the topic: the consumer has met it.
	left := func() int {
		if exact {
			return s.repeats(t)
		}
		mu.Lock()
		defer mu.Unlock()
		return duplicates
	}

	length := 10 * time.Second
	if testing.Short() {
		length = 3 * time.Second
	}
	relayProgram(t) // else writers would write for as long as it is built, a hundred times as much
	ctx, cancel := context.WithTimeout(t.Context(), relaytest.Patience)
	defer cancel()
	began := time.Now()
	var writers sync.WaitGroup
	kills := 0 // written by one of the writers, read after all have ended
	w := writer(t, outbox.Config{})
	for n := range 4 {
		writers.Go(func() { s.write(t, ctx, pool.Config().ConnString(), w, kind, n) })
	}
	writers.Go(func() { kills = s.kill(t, ctx, p) })
	members := []*member{s.start(t, cfg)}
	for ctx.Err() == nil {
		members = append(members, s.start(t, cfg))
		<-time.After(time.Second)
		members[0].leave(t)
		members = members[1:]
		// Where a kill hits is chance: the trial goes on until one has left something.
		if time.Since(began) > length && left() > 0 {
			cancel()
		}
	}
	writers.Wait()
	last := p.Start(t)
	s.awaitAll(t)
	last.Stop(t)
	for _, m := range members {
		m.leave(t)
	}
	s.verify(t)
	t.Logf("%d events, %d repeats, %d kills", len(s.ids), left(), kills)
	if len(s.ids) < 100 || left() == 0 {
		t.Errorf("%d events, %d repeats: nothing was tried", len(s.ids), left())
	}
}

// kill runs the relay and kills it again and again until ctx ends, and returns how often.
func (s *shop) kill(t *testing.T, ctx context.Context, p *relaytest.Pipeline) (kills int) {
	for ctx.Err() == nil {
		relay := &process{cmd: relayCommand(t, p, "run"), done: make(chan struct{})}
		relay.start(t)
		// A kill before anything was sent tries nothing.
		for before := s.end(t); s.end(t) == before && ctx.Err() == nil; {
			select {
			case <-relay.done:
				t.Errorf("the relay ended: %v\n%s", relay.err, relay.out.String())
				return kills
			case <-time.After(20 * time.Millisecond):
			}
		}
		<-time.After(time.Duration(100+rand.IntN(400)) * time.Millisecond)
		relay.kill()
		kills++
	}
	return kills
}

// repeats is how many records the topic has beyond one for each event. With exactly_once all but one
// of an event's are of Kafka transactions that were aborted.
func (s *shop) repeats(t *testing.T) int {
	t.Helper()
	ids := map[string]bool{}
	records := s.brokers.ReadUncommitted(t, s.topic)
	for _, r := range records {
		ids[header(r, "id")] = true
	}
	return len(records) - len(ids)
}

// journalPayload is the effect of a record that a relay sent.
func journalPayload(ctx context.Context, tx pgx.Tx, r *kgo.Record) error {
	var payload struct{ Seq int64 }
	if err := json.Unmarshal(r.Value, &payload); err != nil {
		return kafkainbox.Permanent(err)
	}
	_, err := tx.Exec(ctx, "INSERT INTO journal (event, key, seq) VALUES ($1, $2, $3)", header(r, "id"), string(r.Key), payload.Seq)
	return err
}

// end is how many records the topic has had.
func (s *shop) end(t *testing.T) (n int64) {
	ends, err := kadm.NewClient(s.sent).ListEndOffsets(t.Context(), s.topic)
	if err != nil {
		t.Error(err)
	}
	ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n
}

// write commits events of the writer's own keys, and rolls some back.
func (s *shop) write(t *testing.T, ctx context.Context, url string, w *outbox.Writer, kind string, n int) {
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close(context.WithoutCancel(ctx))
	seq := 0
	for ctx.Err() == nil {
		var events []outbox.Event
		for range 1 + rand.IntN(8) {
			seq++
			events = append(events, outbox.Event{AggregateType: kind, AggregateID: fmt.Sprint("o-", n, "-", rand.IntN(5)), Type: "T", Payload: map[string]int{"Seq": seq}})
		}
		var written outbox.Written
		tx, err := conn.Begin(t.Context())
		if err == nil {
			written, err = w.Write(t.Context(), pgxoutbox.Tx(tx), events...)
		}
		if err == nil && rand.IntN(10) == 0 {
			err = tx.Rollback(t.Context())
			written.IDs = nil
		} else if err == nil {
			err = tx.Commit(t.Context())
		}
		if err != nil {
			t.Error(err)
			return
		}
		s.mu.Lock()
		for _, id := range written.IDs {
			s.ids[id.String()] = true
		}
		s.mu.Unlock()
	}
}

// `cdc-relay deadletter` lists what a consumer set aside, and sends it again.
func TestDeadLetters_OfAConsumerAreSentAgainByTheRelaysCommand(t *testing.T) {
	t.Parallel()
	s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 2)
	letters := s.topic + "-dead-letters"
	s.brokers.CreateTopic(t, letters, 1)
	p := relaytest.New(t, s.db, s.brokers, []string{"{table: public.outbox}"}, "relay: {on_reject: dead_letter, dead_letter_topic: "+letters+"}")
	for s.seqs["k1"] == 0 {
		s.produce(t, 40, 4)
	}
	var mu sync.Mutex
	cured := false
	cfg := s.config()
	cfg.DeadLetterTopic = letters
	cfg.Handle = func(ctx context.Context, tx pgx.Tx, r *kgo.Record) error {
		mu.Lock()
		defer mu.Unlock()
		if string(r.Key) == "k1" && !cured {
			return kafkainbox.Permanent(errPoison)
		}
		return journal(ctx, tx, r)
	}
	m := s.start(t, cfg)
	s.awaitCommitted(t)
	dead := len(s.ids) - s.effects(t)
	p.Setup(t)
	run := func(args ...string) string {
		t.Helper()
		out, err := relayCommand(t, p, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	list := run("deadletter", "list")
	if strings.Count(list, "handler") != dead || !strings.Contains(list, "inbox/billing") || !strings.Contains(list, s.topic) {
		t.Errorf("%d dead letters; the list:\n%s", dead, list)
	}
	show := run("deadletter", "show", "--json", "--source", "inbox/billing", "--topic", s.topic, "--key", "k1")
	for _, want := range []string{"k1-1", `"handler"`, s.topic} {
		if !strings.Contains(show, want) {
			t.Errorf("show says nothing of %s:\n%s", want, show)
		}
	}
	if strings.Contains(show, "customer") {
		t.Errorf("show has the text of the handler's error:\n%s", show)
	}
	mu.Lock()
	cured = true
	mu.Unlock()
	t.Log(run("deadletter", "redrive", "--reason", "handler", "--source", "inbox/billing", "--yes"))
	s.finish(t, m)
	if again := run("deadletter", "list"); strings.Contains(again, "inbox/billing") {
		t.Errorf("they wait still:\n%s", again)
	}
}
