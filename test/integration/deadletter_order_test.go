package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// A row waits for its topic, and the next one of its key cannot become a record. The relay
// is killed, the mapping and the topic are mended, and the dead letters are re-driven before
// the relay starts again: the second row must not come first.
func TestRejected_LetterIsNotThereBeforeEarlierRowsOfItsKey(t *testing.T) {
	t.Parallel()
	db, brokers := harness.Postgres(t), harness.Kfake(t, kfakeDefault)
	letters, aggregate := harness.Unique(t, "letters"), harness.Unique(t, "order")
	more := fmt.Sprintf("relay: {on_reject: dead_letter, park_key: true, dead_letter_topic: %s}", letters)
	p := relaytest.New(t, db, brokers, []string{"{table: public.outbox, value: merged}"}, more)
	p.Setup(t)
	if _, err := topics.EnsureTopic(t.Context(), p.Settings().Kafka.Connection, p.Settings().Kafka.CreateTopics, letters, false); err != nil {
		t.Fatal(err)
	}
	key := uuid.New()
	for _, payload := range []string{`{"n": 0}`, `[{"n": 1}]`} {
		db.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ($1, $2, 'x', $3)", aggregate, key, payload)
	}
	r := p.Start(t)
	r.Await(t, "it waits for the topic", func(s status.Status) bool {
		return s.State == status.Blocked && s.Reason == "unknown_topic" || s.DeadLetters > 0
	})
	r.Abort()
	_ = r.Wait(t)
	brokers.CreateTopic(t, aggregate+"-events", 1)
	p.YAML = strings.Replace(p.YAML, ", value: merged", "", 1)
	redrive := p.Exec(t, "deadletter", "redrive", "--all", "--yes")
	if code := redrive.Wait(t); code != 0 {
		t.Fatalf("redrive ended with %d: %s", code, redrive.Output())
	}
	running := p.Exec(t, "run")
	p.AwaitCaughtUp(t)
	running.Terminate(t)
	running.Wait(t)
	if got := numbers(t, brokers, aggregate+"-events"); got[key] != "0 1" {
		t.Errorf("the rows came as %q", got[key])
	}
}
