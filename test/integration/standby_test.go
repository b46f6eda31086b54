package integration

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// A second relay on the same slot stands by, is ready, and takes over. Its first record
// comes soon after the leader was told to stop, or was killed: it asks for the slot every
// half second, and sends nothing for a second once it has it (TestStandby_* of package relay).
// A slot that the server has to find abandoned would be held for 15 s. The quickest of three
// times counts, as the others may hit a busy machine.
func TestStandby_TakesOver(t *testing.T) {
	const limit = 10 * time.Second
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		for _, name := range []string{"stopped", "killed"} {
			t.Run(name, func(t *testing.T) {
				p, w := outbox(t, another(t, db), harness.Kfake(t, kfakeDefault))
				seen := watch(t, p.Brokers, w.Topic())
				leader := p.Exec(t, "run")
				w.Start(t, 2, 10*time.Millisecond)
				var took []time.Duration
				for range 3 {
					seen.news(t, seen.rows()+100)
					standby := standsBy(t, p)
					known, began := seen.producers(), time.Now()
					if name == "stopped" {
						leader.Terminate(t)
					} else {
						leader.Kill()
					}
					took = append(took, seen.successor(t, known).Sub(began).Round(time.Millisecond))
					if code := leader.Wait(t); name == "stopped" && code != 0 {
						t.Errorf("exit code = %d", code)
					}
					leader = standby
				}
				slices.Sort(took)
				t.Logf("the other one's first record came after %s", took)
				if took[0] >= limit {
					t.Errorf("the other one's first record came after %s, want less than %s", took, limit)
				}
				w.Stop(t)
				p.AwaitCaughtUp(t)
				end(t, leader)
				if duplicates := w.Verify(t); name == "stopped" && duplicates != 0 {
					t.Errorf("duplicates after clean stops = %d", duplicates)
				}
			})
		}
	})
}

// standsBy starts one more relay, which is ready although another has the slot.
func standsBy(t *testing.T, p *relaytest.Pipeline) *relaytest.Process {
	t.Helper()
	standby := p.Exec(t, "run", "--set", anyAddress)
	awaitState(t, standby, "standby", "slot_in_use")
	if ready := get(t, served(t, standby), "/readyz", ""); strings.TrimSpace(ready) != "ok" {
		t.Errorf("one that stands by is not ready: %s", ready)
	}
	return standby
}
