package integration

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// A slot that somebody moves while no relay has it is refused by a relay that wrote
// down how far it had confirmed; what is accepted is gone on from. Kills, stops and an
// idle outbox are no such thing.
func TestPromise_AMovedSlotIsRefused(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t)
	topic := harness.Unique(t, "intents")
	p, w := outbox(t, another(t, db), harness.Kfake(t, kfakeDefault), fmt.Sprintf("relay: {detect_moved_slot: true, checkpoint_topic: %s}", topic))
	refusal := p.Exec(t, "run")
	if code := refusal.Wait(t); code != 3 || !strings.Contains(refusal.Output(), "cdc-relay setup") {
		t.Fatalf("without the topic: exit code %d\n%s", code, refusal.Output())
	}
	setup := p.Exec(t, "setup")
	if code := setup.Wait(t); code != 0 {
		t.Fatalf("setup: exit code %d\n%s", code, setup.Output())
	}
	random := rand.New(rand.NewPCG(w.Seed, 1))
	w.Start(t, 2, 10*time.Millisecond)
	for range 5 {
		killAtWork(t, p, w, random)
	}
	w.Stop(t)
	running := p.Exec(t, "run")
	p.AwaitCaughtUp(t)
	relaytest.Eventually(t, "it has the slot", func() (bool, string) { // all may have been confirmed before it
		return harness.Query[bool](t, p.DB, "SELECT active FROM pg_replication_slots WHERE slot_name = $1", p.Slot), running.Output()
	})
	early := p.Exec(t, "setup", "--accept-gap") // would leave an idle relay without what it wrote
	if code := early.Wait(t); code != 3 || !strings.Contains(early.Output(), "stop that one first") {
		t.Fatalf("setup --accept-gap beside a relay: exit code %d\n%s", code, early.Output())
	}
	p.DB.Exec(t, "SELECT pg_logical_emit_message(false, 'somebody else', repeat('x', 100000))")
	p.AwaitCaughtUp(t) // the slot follows what is not ours
	running.Terminate(t)
	if code := running.Wait(t); code != 0 {
		t.Fatalf("stop: exit code %d\n%s", code, running.Output())
	}
	w.Verify(t)

	w.Insert(t, 20) // which nobody will see
	moveSlot(t, p)
	refusal = p.Exec(t, "run")
	if code := refusal.Wait(t); code != 3 || !strings.Contains(refusal.Output(), "Find out who moved the slot") {
		t.Fatalf("after somebody moved the slot: exit code %d\n%s", code, refusal.Output())
	}
	accept := p.Exec(t, "setup", "--accept-gap")
	if code := accept.Wait(t); code != 0 {
		t.Fatalf("setup --accept-gap: exit code %d\n%s", code, accept.Output())
	}
	running = p.Exec(t, "run")
	at := p.WALEnd(t)
	relaytest.Eventually(t, "it goes on from there", func() (bool, string) { return p.Confirmed(t) >= at, running.Output() })
	running.Terminate(t)
	if code := running.Wait(t); code != 0 {
		t.Fatalf("stop: exit code %d\n%s", code, running.Output())
	}
}
