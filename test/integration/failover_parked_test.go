package integration

import (
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// A key is parked when the primary is lost, and stays parked on the promoted standby, for the
// relay that saw the failover and for one that starts after it. Re-driven, its rows of both
// timelines are in order, and the rows that follow come after them.
func TestFailover_ParkedKeysStayParked(t *testing.T) {
	t.Parallel()
	for _, version := range harness.Versions() {
		if version < "17" {
			continue // slots stay behind
		}
		for name, restarted := range map[string]bool{"same relay": false, "another relay": true} {
			t.Run("postgres"+version+"/"+name, func(t *testing.T) {
				t.Parallel()
				old, next, both := syncedPair(t, version)
				brokers := harness.Kfake(t, kfakeDefault)
				letters, aggregate := harness.Unique(t, "letters"), harness.Unique(t, "order")
				p := relaytest.New(t, both, brokers, []string{"{table: public.outbox}"},
					fmt.Sprintf("relay: {on_reject: dead_letter, park_key: true, dead_letter_topic: %s}", letters))
				p.Setup(t)
				if _, err := topics.EnsureTopic(t.Context(), p.Settings().Kafka.Connection, p.Settings().Kafka.CreateTopics, letters, false); err != nil {
					t.Fatal(err)
				}
				topic := aggregate + "-events"
				brokers.CreateTopic(t, topic, 1, "max.message.bytes", "20000")
				parked, other := uuid.New(), uuid.New()
				n := 0
				insert := func(db *harness.Database, key uuid.UUID, size int) {
					t.Helper()
					db.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ($1, $2, 'x', jsonb_build_object('n', $3::int, 'fill', repeat('x', $4::int)))", aggregate, key, n, size)
					n++
				}
				r := p.Start(t)
				r.AwaitStreaming(t)
				insert(old, parked, 0)
				insert(old, parked, 60_000) // too large for its topic
				insert(old, parked, 0)
				insert(old, other, 0)
				p.AwaitCaughtUp(t)
				awaitSynced(t, p, old, next)

				if restarted {
					r.Stop(t)
				}
				if err := old.Server.Kill(); err != nil {
					t.Fatal(err)
				}
				next.Exec(t, "SELECT pg_promote()")
				p.DB = next
				insert(next, parked, 0)
				insert(next, other, 0)
				if restarted {
					r = p.Start(t)
				}
				p.AwaitCaughtUp(t)
				r.Await(t, "the key is parked", func(s status.Status) bool { return s.State == status.Streaming && s.ParkedKeys == 1 })
				if got := numbers(t, brokers, topic); got[parked] != "0" || got[other] != "3 5" {
					t.Fatalf("before the redrive the topic has %q and %q", got[parked], got[other])
				}

				setMaxMessageBytes(t, brokers, topic, "200000")
				redrive := p.Exec(t, "deadletter", "redrive", "--all", "--yes")
				if code := redrive.Wait(t); code != 0 {
					t.Fatalf("redrive ended with %d: %s", code, redrive.Output())
				}
				r.Await(t, "the key is free", func(s status.Status) bool { return s.ParkedKeys == 0 })
				insert(next, parked, 0)
				p.AwaitCaughtUp(t)
				r.Stop(t)
				if got := numbers(t, brokers, topic); got[parked] != "0 1 2 4 6" || got[other] != "3 5" {
					t.Errorf("in the end the topic has %q and %q", got[parked], got[other])
				}
			})
		}
	}
}
