package main

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// Code 0 says that nothing will be sent again. The way from the server is slow: all
// that was read is acknowledged, and the drain waits for the rest of the transaction.
func TestTarget_StopThatIsCutInMidTransactionIsNotClean(t *testing.T) {
	brokers := harness.Kfake(t, sandbox.KafkaOptions{})
	db := harness.Postgres(t)
	through, proxy := throughProxy(t, db)
	p, w := outbox(t, through, brokers, "relay: {max_in_flight_bytes: 16KiB}")
	p.DB = db
	const n, rate = 20_000, 64 << 10 // at this rate n rows take half a minute
	cut := 0
	for range scaled(2, 10) {
		proxy.Heal()
		running := runForEver(t, p)
		p.AwaitCaughtUp(t)
		before := delivered(brokers, w.Topic())
		proxy.Slow(sandbox.ToClient, rate)
		copyRows(t, p, w, n)
		relaytest.Eventually(t, "some rows are delivered", func() (bool, string) { return delivered(brokers, w.Topic()) > before, running.Output() })
		code := hurry(t, running)
		sent := delivered(brokers, w.Topic()) - before
		if code == 0 && sent%n != 0 {
			t.Fatalf("exit code 0 after %d of the %d rows of a transaction: the next start sends them again", sent, n)
		}
		if code != 0 && sent > 0 && sent < n {
			cut++
		}
	}
	if cut == 0 {
		t.Error("no stop was cut in mid-transaction")
	}
	proxy.Heal()
	if duplicates := finish(t, p, w); duplicates == 0 {
		t.Error("no duplicate although transactions were cut: nothing was proven")
	}
}
