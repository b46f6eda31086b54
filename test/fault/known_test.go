package main

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// Code 0 says that nothing will be sent again.
func TestBar_StopThatIsCutInMidTransactionIsNotClean(t *testing.T) {
	brokers := harness.Kfake(t, sandbox.KafkaOptions{})
	p, w := outbox(t, harness.Postgres(t), brokers, "relay: {max_in_flight_bytes: 64KiB}")
	const n = 20_000
	for range scaled(4, 10) {
		copyRows(t, p, w, n)
		before := delivered(brokers, w.Topic())
		running := p.Exec(t, "run")
		relaytest.Eventually(t, "some rows are delivered", func() (bool, string) { return delivered(brokers, w.Topic()) > before, running.Output() })
		running.Terminate(t)
		hurry(running)
		code := running.Wait(t)
		if sent := delivered(brokers, w.Topic()) - before; code == 0 && sent%n != 0 {
			t.Fatalf("exit code 0 after %d of the %d rows of a transaction: the next start sends them again", sent, n)
		}
		running = p.Exec(t, "run")
		p.AwaitCaughtUp(t)
		running.Terminate(t)
		running.Wait(t)
	}
}
