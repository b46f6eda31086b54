package main

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/twmb/franz-go/pkg/kversion"
)

// Kafka 2.1 is the oldest that works. What it does not show is refused, and not taken for granted.
func TestBrokers_TheOldestThatWork(t *testing.T) {
	t.Parallel()
	for name, way := range keeping {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKeeperOf(t, newLifeWith(t, sandbox.KafkaOptions{Speaks: kversion.V2_1_0()}), way)
			k.keepsHouse(t, "delete", "")
			k.setUp(t, "created topic "+k.topic)
			invoke(t, k.env, "check").want(t, exitOK, "the brokers do not list the rights", "")
			_, stop := k.streams(t)
			const rows = `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, created_at)
				SELECT $1, gen_random_uuid(), 'x', '{}', now() - interval '2h' FROM generate_series(1, 3)`
			k.db.Exec(t, rows, "order")
			k.arrived(t, 3)
			invoke(t, k.env, "audit").want(t, exitOK, "proven 3 of 3", "")
			invoke(t, k.env, "retention", "--once").want(t, exitOK, "deleted 3 rows", "")
			stop()
			released(t, k.db)

			k.env = append(k.env, "CDC_RELAY_RELAY_ON_REJECT=dead_letter", "CDC_RELAY_RELAY_PARK_KEY=true")
			invoke(t, k.env, "setup").want(t, exitOK, "created topic cdc-relay.dead-letters", "")
			_, stop = k.streams(t)
			k.db.Exec(t, rows, "no topic!")
			k.db.Exec(t, rows, "order")
			k.arrived(t, 6)
			invoke(t, k.env, "deadletter", "list").want(t, exitOK, "3 of 3 dead letters waiting", "")
			invoke(t, k.env, "retention", "--once").want(t, exitRefused, "deleted 0 rows", "give topics no ids")
			invoke(t, k.env, "deadletter", "redrive", "--all", "--discard", "--yes").want(t, exitOK, "", "")
			invoke(t, k.env, "deadletter", "list").want(t, exitOK, "0 of 0 dead letters", "")
			stop()
		})
	}
}

func TestBrokers_ThatAreTooOldAreRefused(t *testing.T) {
	t.Parallel()
	l := newLifeWith(t, sandbox.KafkaOptions{Speaks: kversion.V0_10_2()})
	l.env = append(l.env, keeping["exactly_once"])
	invoke(t, l.env, "setup", "--create-table").want(t, exitRefused, "", "needs Kafka 2.1 or later")
	invoke(t, l.env, "check").want(t, exitRefused, "needs Kafka 2.1 or later", "")
}
