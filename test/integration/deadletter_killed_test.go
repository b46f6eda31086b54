package integration

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// sharer is one of two pipelines that share the dead-letter topic and the topic of their
// rows.
type sharer struct {
	*relaytest.Pipeline
	db     *harness.Database
	keys   []uuid.UUID
	next   map[uuid.UUID]int
	inputs int
}

func (s *sharer) insert(t *testing.T, random *rand.Rand, aggregate string) {
	t.Helper()
	for range 1 + random.IntN(8) {
		key, size := s.keys[random.IntN(len(s.keys))], 0
		if random.IntN(6) == 0 {
			size = 50_000
		}
		s.db.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ($1, $2, 'x', jsonb_build_object('n', $3::int, 'fill', repeat('x', $4::int)))",
			aggregate, key, s.next[key], size)
		s.next[key]++
		s.inputs++
	}
}

// Relays and redrives of two pipelines are killed with -9 at any moment, while the limit
// that refuses their rows goes down and up. In the end every row is in its topic, and
// each key in its order.
func TestDeadLetters_KilledRelaysAndRedrivesLoseAndMixNothing(t *testing.T) {
	t.Parallel()
	seed := relaytest.Seed(t)
	random := rand.New(rand.NewPCG(seed, 3))
	brokers := harness.Kfake(t, kfakeDefault)
	letters, aggregate := harness.Unique(t, "letters"), harness.Unique(t, "order")
	topic := aggregate + "-events"
	brokers.CreateTopic(t, topic, 2, "max.message.bytes", "20000")
	var sharers []*sharer
	for range 2 {
		db := harness.Postgres(t)
		p := relaytest.New(t, db, brokers, []string{"{table: public.outbox}"},
			fmt.Sprintf("relay: {on_reject: dead_letter, park_key: true, dead_letter_topic: %s}", letters))
		p.Setup(t)
		if _, err := topics.EnsureTopic(t.Context(), p.Settings().Kafka.Connection, p.Settings().Kafka.CreateTopics, letters, false); err != nil {
			t.Fatal(err)
		}
		s := &sharer{Pipeline: p, db: db, next: map[uuid.UUID]int{}}
		for range 3 {
			s.keys = append(s.keys, uuid.New())
		}
		sharers = append(sharers, s)
	}
	killed := 0
	for round := range 8 {
		setMaxMessageBytes(t, brokers, topic, map[bool]string{true: "20000", false: "200000"}[round%3 < 2])
		var running []*relaytest.Process
		for _, s := range sharers {
			running = append(running, s.Exec(t, "run"))
			s.insert(t, random, aggregate)
		}
		rest(t, time.Duration(500+random.IntN(1000))*time.Millisecond)
		one := sharers[random.IntN(2)]
		one.insert(t, random, aggregate)
		redrive := one.Exec(t, "deadletter", "redrive", "--all", "--yes")
		rest(t, time.Duration(10+random.IntN(200))*time.Millisecond)
		if !redrive.Ended() {
			killed++
		}
		redrive.Kill()
		for _, p := range running {
			p.Kill()
		}
	}
	t.Logf("%d of 8 redrives were killed", killed)
	setMaxMessageBytes(t, brokers, topic, "200000")
	for _, s := range sharers {
		s.finish(t)
	}
	got := numbers(t, brokers, topic)
	for _, s := range sharers {
		for _, key := range s.keys {
			inOrder(t, key, got[key], s.next[key])
		}
	}
}

// finish has the relay catch up and re-drives what is left.
func (s *sharer) finish(t *testing.T) {
	t.Helper()
	r := s.Start(t)
	r.AwaitStreaming(t)
	s.AwaitCaughtUp(t)
	redrive := s.Exec(t, "deadletter", "redrive", "--all", "--yes")
	if code := redrive.Wait(t); code != 0 {
		t.Fatalf("redrive ended with %d: %s", code, redrive.Output())
	}
	if again := s.Exec(t, "deadletter", "redrive", "--all"); again.Wait(t) != 0 || !strings.Contains(again.Output(), "no dead letter that waits") {
		t.Errorf("after the redrive: %s", again.Output())
	}
	r.Await(t, "its keys are free", func(st status.Status) bool { return st.ParkedKeys == 0 })
	r.Stop(t)
}

// inOrder holds the numbers of a key against what was inserted: each is there, counted by
// their first arrivals they ascend, and the newest comes last.
func inOrder(t *testing.T, key uuid.UUID, text string, inserted int) {
	t.Helper()
	next, last := 0, -1
	for word := range strings.FieldsSeq(text) {
		n, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		if last = n; n == next {
			next++
		} else if n > next {
			t.Errorf("key %s: %d came before %d: %s", key, n, next, text)
			return
		}
	}
	if next != inserted || last != inserted-1 {
		t.Errorf("key %s: %d of %d rows arrived, the last one is %d: %s", key, next, inserted, last, text)
	}
}

// rest waits, which is all that a kill at any moment needs.
func rest(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}
