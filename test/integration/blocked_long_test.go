package integration

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// A blocked relay keeps its connection while the application writes on,
// for more than twice wal_sender_timeout, and sends nothing twice when it goes on.
func TestBlocked_SendsNothingTwiceHoweverLong(t *testing.T) {
	t.Parallel()
	brokers := harness.Kfake(t, sandbox.KafkaOptions{})
	p := relaytest.New(t, harness.Postgres(t), brokers, []string{"{table: public.outbox}"})
	p.Setup(t)
	w := p.NewWorkload(t, "outbox", harness.Unique(t, "blocked"))
	brokers.CreateTopic(t, w.Topic(), 1, "max.message.bytes", "100000")
	settings := p.Settings()
	settings.RetryMax = 50 * time.Millisecond
	settings.Replication.WalSenderTimeout = 7 * time.Second // longer than a busy machine stands still
	var lost atomic.Int64
	r := p.StartWith(t, settings, relay.Events{Reconnecting: func(reason string, err error) {
		lost.Add(1)
		t.Logf("lost the session: %s: %v", reason, err)
	}})
	r.AwaitStreaming(t)
	w.Insert(t, 1500)
	w.InsertKey(t, uuid.New(), 1, 300_000)
	w.Insert(t, 10)
	r.AwaitBlocked(t, "record_too_large")
	w.Start(t, 4, time.Millisecond)
	<-time.After(2*settings.Replication.WalSenderTimeout + time.Second)
	w.Stop(t)
	setMaxMessageBytes(t, brokers, w.Topic(), "1000000")
	p.AwaitCaughtUp(t)
	r.Stop(t)
	if duplicates := w.Verify(t); duplicates != 0 || lost.Load() != 0 {
		t.Errorf("%d duplicates, %d sessions lost", duplicates, lost.Load())
	}
}
