package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// The dead-letter topic gets partitions while keys are parked: the hash of a key leads to
// another partition from then on, and its letters lie in two.
func TestDeadLetter_KeysStayParkedWhenTheTopicGetsPartitions(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	const topic = "cdc-relay.dead-letters"
	l.env = append(l.env, "CDC_RELAY_RELAY_ON_REJECT=dead_letter", "CDC_RELAY_RELAY_PARK_KEY=true", "CDC_RELAY_KAFKA_COMPRESSION=none", "CDC_RELAY_KAFKA_MAX_MESSAGE_BYTES=20KiB")
	l.brokers.CreateTopic(t, topic, 1)
	l.brokers.CreateTopic(t, "order-events", 1)
	invoke(t, l.env, "setup", "--create-table").want(t, exitOK, "created slot", "")
	url, stop := l.start(t, nil)
	const keys = 8
	key := func(k int) string { return fmt.Sprintf("00000000-0000-0000-0000-%012d", k) }
	insert := func(n, size int) {
		for k := range keys {
			l.db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
				VALUES ('order', $1, 'x', jsonb_build_object('n', $2::text, 'fill', repeat('x', $3)))`, key(k), fmt.Sprint(n), size)
		}
	}
	insert(1, 50_000)
	insert(2, 0)
	l.published(t, url, 2*keys)
	if _, err := l.brokers.Admin(t).UpdatePartitions(t.Context(), 5, topic); err != nil {
		t.Fatal(err)
	}
	insert(3, 0)
	l.published(t, url, 3*keys)
	if code := stop(); code != exitOK {
		t.Fatalf("run ended with %d", code)
	}
	// A relay that starts now has to find the keys in all partitions.
	url, stop = l.start(t, nil)
	insert(4, 0)
	l.published(t, url, keys)
	if n := len(l.brokers.Read(t, "order-events")); n != 0 {
		t.Fatalf("%d records overtook the parked ones of their keys", n)
	}
	used := map[int32]bool{}
	for _, r := range l.brokers.Read(t, topic) {
		used[r.Partition] = true
	}
	if len(used) < 2 {
		t.Fatal("no letter is in a new partition: the test shows nothing")
	}
	env := append(l.env, "CDC_RELAY_KAFKA_MAX_MESSAGE_BYTES=1MiB")
	invoke(t, env, "deadletter", "redrive", "--reason", "record_too_large", "--yes").want(t, exitOK, fmt.Sprintf("%d of %[1]d dead letters of the selected keys re-driven, 0 left", 4*keys), "")
	l.await(t, "the keys are free", func() bool {
		return strings.Contains(invoke(t, nil, "status", "--url", url, "--json").stdout, `"parked_keys": 0`)
	})
	insert(5, 0)
	l.published(t, url, 2*keys)
	for k := range keys {
		if order := l.order(t, key(k)); order != "1 2 3 4 5" {
			t.Errorf("key %d: %s", k, order)
		}
	}
	stop()
}

// order is the member n of the values of a key, in the order of its records.
func (l *life) order(t *testing.T, key string) string {
	t.Helper()
	var order []string
	for _, r := range l.brokers.Read(t, "order-events") {
		if string(r.Key) != key {
			continue
		}
		var value struct{ N string }
		if err := json.Unmarshal(r.Value, &value); err != nil {
			t.Fatal(err)
		}
		order = append(order, value.N)
	}
	return strings.Join(order, " ")
}
