package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/delivery"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// Ten thousand rows and then one that is too large, all of one transaction: each
// of twenty tries sends the large one alone, and nothing of the transaction is
// confirmed before it is through.
func TestLarge_RowBehindManyIsTriedAlone(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *harness.Database, brokers *harness.Brokers) {
		p := relaytest.New(t, db, brokers, []string{"{table: public.outbox}"})
		p.Setup(t)
		topic := harness.Unique(t, "order")
		brokers.CreateTopic(t, topic+"-events", 3, "max.message.bytes", "100000")
		settings := p.Settings()
		settings.RetryMax = 50 * time.Millisecond
		settings.Kafka.Compression = "none" // a broker's limit counts compressed bytes
		tries := make(chan struct{}, 100)
		r := p.StartWith(t, settings, relay.Events{Events: delivery.Events{ProduceRetried: func(string) {
			select {
			case tries <- struct{}{}:
			default: // enough: the relay must not wait for the test
			}
		}}})
		r.AwaitStreaming(t)

		const insert = `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
			SELECT '%[1]s', '00000000-0000-4000-8000-000000000001', 'x', jsonb_build_object('n', i) FROM generate_series(1, 10000) i;
			INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
			SELECT '%[1]s', '00000000-0000-4000-8000-000000000001', 'x', jsonb_build_object('n', 10001, 'fill', repeat('y', 300000));`
		db.Exec(t, fmt.Sprintf("BEGIN;"+insert+"COMMIT", topic))
		after := p.WALEnd(t)
		status := r.AwaitBlocked(t, "record_too_large")
		for range 20 {
			<-tries
		}
		if got := len(brokers.Read(t, topic+"-events")); got != 10_000 {
			t.Errorf("%d records while blocked, want 10000: %s", got, status.Message)
		}
		notPast(t, p, after)
		setMaxMessageBytes(t, brokers, topic+"-events", "1000000")
		p.AwaitCaughtUp(t)
		r.Stop(t)
		if got := len(brokers.Read(t, topic+"-events")); got != 10_001 {
			t.Errorf("%d records after it healed, want 10001", got)
		}
	})
}
