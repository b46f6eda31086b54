package integration

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// A stop by SIGTERM confirms all that was sent, so the next start repeats nothing.
func TestStop_UnderLoadRepeatsNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *harness.Database, brokers *harness.Brokers) {
		p, w := outbox(t, db, brokers)
		random := rand.New(rand.NewPCG(w.Seed, 1))
		w.Start(t, 3, time.Millisecond)
		for range scale(t, "CDC_RELAY_TEST_STOPS", 10) {
			running := p.Exec(t, "run")
			before := p.Confirmed(t)
			relaytest.Eventually(t, "the relay confirms", func() (bool, string) { return p.Confirmed(t) > before, running.Output() })
			<-time.After(time.Duration(random.IntN(100)) * time.Millisecond) // the random point
			running.Terminate(t)
			if code := running.Wait(t); code != 0 {
				t.Fatalf("exit code = %d", code)
			}
		}
		w.Stop(t)
		running := p.Exec(t, "run")
		p.AwaitCaughtUp(t)
		running.Terminate(t)
		if code := running.Wait(t); code != 0 {
			t.Errorf("exit code of the last run = %d", code)
		}
		if duplicates := w.Verify(t); duplicates != 0 {
			t.Errorf("duplicates = %d", duplicates)
		}
	})
}

// A stop in the middle of a large transaction reads on to its commit.
func TestStop_FinishesTheTransactionInHand(t *testing.T) {
	t.Parallel()
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		brokers := harness.Kfake(t, kfakeDefault)
		p, w := outbox(t, db, brokers)
		w.Insert(t, 60_000)
		running := p.Exec(t, "run", "--set", "relay.drain_timeout="+(relaytest.Patience/2).String())
		relaytest.Eventually(t, "the first rows are delivered", func() (bool, string) {
			return len(brokers.Read(t, w.Topic())) > 0, running.Output()
		})
		running.Terminate(t)
		if code := running.Wait(t); code != 0 {
			t.Fatalf("exit code = %d", code)
		}
		if got := len(brokers.Read(t, w.Topic())); got != 60_000 {
			t.Errorf("records after the stop = %d, want the whole transaction of 60000", got)
		}
		if duplicates := w.Verify(t); duplicates != 0 {
			t.Errorf("duplicates = %d", duplicates)
		}
	})
}
