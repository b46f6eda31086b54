package integration

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// The synchronised slot of a promoted standby is as old as the standby's last look at
// the primary, and behind what was delivered. The checkpoint knows better: nothing is
// there twice, whether the relay lived through the failover or another one begins there.
func TestExactlyOnce_ASyncedSlotIsGoneOnWithWithoutDuplicates(t *testing.T) {
	t.Parallel()
	for _, version := range harness.Versions() {
		if version < "17" {
			continue // slots stay behind
		}
		t.Run("postgres"+version, func(t *testing.T) {
			for name, dies := range map[string]bool{"the relay sees it": false, "the relay dies too": true} {
				t.Run(name, func(t *testing.T) { failOverOnce(t, version, dies) })
			}
		})
	}
}

func failOverOnce(t *testing.T, version string, relayDies bool) {
	old, next, both := syncedPair(t, version)
	p, w := exactlyOnce(t, both, harness.Kfake(t, kfakeDefault), "")
	running := p.Exec(t, "run")
	w.Start(t, 2, 10*time.Millisecond)
	awaitSynced(t, p, old, next)
	from := p.Confirmed(t)
	relaytest.Eventually(t, "the relay is at work", func() (bool, string) { return p.Confirmed(t) > from, running.Output() })
	w.Stop(t)
	p.AwaitCaughtUp(t)
	syncSlots(t, next, "off")
	w.Insert(t, 200)
	end := p.WALEnd(t)
	relaytest.Eventually(t, "the standby has everything", func() (bool, string) {
		at := relaytest.LSN(t, next, "SELECT pg_last_wal_replay_lsn()::text")
		return at >= end, at.String()
	})
	p.AwaitCaughtUp(t)
	if synced := relaytest.LSN(t, next, "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", p.Slot); synced >= p.Confirmed(t) {
		t.Fatalf("the standby's slot is at %s already: nothing could be there twice", synced)
	}

	if err := old.Server.Kill(); err != nil {
		t.Fatal(err)
	}
	if relayDies {
		running.Kill()
	}
	next.Exec(t, "SELECT pg_promote()")
	p.DB = next
	w.Insert(t, 50)
	if relayDies {
		running = p.Exec(t, "run")
	}
	p.AwaitCaughtUp(t)
	running.Terminate(t)
	if code := running.Wait(t); code != 0 {
		t.Errorf("exit code = %d", code)
	}
	verifyOnce(t, p, w)
}
