package integration

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// The relay is killed again and again while writers write. A kill counts only if
// it hit the relay at work: something was committed that was not confirmed.
func TestKill_LosesNothingAndKeepsOrder(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *harness.Database, brokers *harness.Brokers) {
		kills, late := scale(t, "CDC_RELAY_TEST_KILLS", killsFor(brokers)), 0
		p, w := outbox(t, db, brokers)
		random := rand.New(rand.NewPCG(w.Seed, 1))
		w.Start(t, 2, 10*time.Millisecond)
		for done := 0; done < kills; {
			if killAtWork(t, p, w, random) {
				done++
			} else if late++; late > tooLate(kills) {
				t.Fatalf("%d of %d kills came after the last acknowledgement", late, late+done)
			}
		}
		w.Stop(t)
		running := p.Exec(t, "run")
		p.AwaitCaughtUp(t)
		running.Terminate(t)
		if code := running.Wait(t); code != 0 {
			t.Errorf("exit code of the last run = %d", code)
		}
		t.Logf("%d kills at work, %d came too late and were repeated, %d duplicates", kills, late, w.Verify(t))
	})
}

// killAtWork starts the relay, gives it a burst and kills it at a random moment.
// It reports whether the relay had not confirmed everything then.
func killAtWork(t *testing.T, p *relaytest.Pipeline, w *relaytest.Workload, random *rand.Rand) bool {
	t.Helper()
	running := p.Exec(t, "run")
	before := p.Confirmed(t)
	relaytest.Eventually(t, "the relay confirms", func() (bool, string) { return p.Confirmed(t) > before, running.Output() })
	w.Insert(t, 1+random.IntN(2000))
	end := p.WALEnd(t)
	<-time.After(time.Duration(random.IntN(20_000)) * time.Microsecond) // the random moment
	running.Kill()
	return p.Confirmed(t) < end
}

// tooLate is how many kills may come after everything was confirmed, as those of a
// machine do that has no time for the test; they are repeated.
func tooLate(kills int) int { return 20 + kills }

// killsFor makes most of the trials on the brokers that are quick to start.
func killsFor(brokers *harness.Brokers) int {
	if brokers.Fake != nil {
		return 10
	}
	return 3
}
