package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// The shards of an outbox have their dead letters in one topic. What is re-driven of one
// frees none of the other's keys, also for a relay that is killed and starts again, and with
// exactly-once every row is there once in the end.
func TestExactlyOnce_ARedriveOfOneShardLeavesTheOthersKeysParked(t *testing.T) {
	t.Parallel()
	db, brokers := harness.Postgres(t), harness.Kfake(t, kfakeDefault)
	letters, aggregate := harness.Unique(t, "letters"), harness.Unique(t, "order")
	topic := aggregate + "-events"
	p := relaytest.New(t, db, brokers, []string{"{table: public.outbox}"},
		fmt.Sprintf("relay: {guarantee: exactly_once, checkpoint_topic: %s, on_reject: dead_letter, park_key: true, dead_letter_topic: %s}", harness.Unique(t, "checkpoints"), letters))
	s := &sharded{Pipeline: p, plain: p.YAML}
	s.divide(2, "")
	if setup := s.Exec(t, "setup", "--create-table"); setup.Wait(t) != 0 {
		t.Fatal(setup.Output())
	}
	brokers.CreateTopic(t, topic, 2, "max.message.bytes", "20000")
	keys := make([]uuid.UUID, 6) // always the same, so that both shards have some
	for i := range keys {
		keys[i] = uuid.UUID{15: byte(i)}
	}
	next := 0
	insert := func(size int) {
		for _, key := range keys {
			db.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ($1, $2, 'x', jsonb_build_object('n', $3::int, 'fill', repeat('x', $4::int)))",
				aggregate, key, next, size)
		}
		next++
		s.awaitCaughtUp(t)
	}
	redrive := func(flags ...string) {
		if r := s.Exec(t, append([]string{"deadletter", "redrive", "--all", "--yes"}, flags...)...); r.Wait(t) != 0 {
			t.Fatal(r.Output())
		}
	}
	shows := func(want func(key uuid.UUID) string) {
		t.Helper()
		got := map[uuid.UUID]string{}
		for _, r := range readCommitted(t, p, topic) {
			_, text, _ := strings.Cut(string(r.Value), `"n": `)
			got[uuid.MustParse(string(r.Key))] += text[:strings.IndexAny(text, ",}")]
		}
		for _, key := range keys {
			if got[key] != want(key) {
				t.Errorf("key %s has %q, want %q", key, got[key], want(key))
			}
		}
	}

	running := s.Exec(t, "run")
	insert(0)
	insert(60_000)
	insert(0)
	shows(func(uuid.UUID) string { return "0" })
	backlog, err := deadletter.ReadBacklog(t.Context(), p.Settings().Kafka.Connection, letters, deadletter.Filter{}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	first, source := map[uuid.UUID]bool{}, ""
	for _, e := range backlog.Entries {
		if strings.HasSuffix(e.Source, "/"+s.slot(0)) {
			first[uuid.MustParse(string(e.Record.Key))], source = true, e.Source
		}
	}
	t.Logf("%d of %d keys are the first shard's", len(first), len(keys))
	if len(backlog.Entries) != 2*len(keys) || len(first) == 0 || len(first) == len(keys) {
		t.Fatalf("%d letters, %d of %d keys in the first shard", len(backlog.Entries), len(first), len(keys))
	}

	setMaxMessageBytes(t, brokers, topic, "200000")
	redrive("--source", source)
	running.Kill()
	running = s.Exec(t, "run")
	insert(0)
	shows(func(key uuid.UUID) string { return map[bool]string{true: "0123", false: "0"}[first[key]] })
	running.Kill()
	redrive()
	running = s.Exec(t, "run")
	insert(0)
	s.stop(t, running)
	shows(func(uuid.UUID) string { return "01234" })
	err = topics.ReadTopic(t.Context(), p.Settings().Kafka.Connection, letters, func(m *topics.Message) error {
		_, _, err := deadletter.Parse(m)
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
