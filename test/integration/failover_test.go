package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// pair is a primary and its hot standby, and one address that leads to whichever
// takes writes.
func pair(t *testing.T, version string, primary, standby map[string]string) (old, next, both *harness.Database) {
	t.Helper()
	old = harness.OwnPostgres(t, sandbox.PostgresOptions{Version: version, Settings: primary})
	old.Exec(t, "SELECT pg_create_physical_replication_slot('standby', true)")
	server, err := old.Server.Standby(t.Context(), "standby", standby)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	next = &harness.Database{Server: server, Name: old.Name, URL: server.URL(old.Name), Version: old.Version}
	shared := *old
	shared.URL = fmt.Sprintf("postgres://postgres@%s,%s/%s?target_session_attrs=read-write&sslmode=disable", old.Server.Addr(), server.Addr(), old.Name)
	return old, next, &shared
}

// syncedPair is a pair whose standby can keep the slots that are to fail over. A slot that confirms nothing
// is refused where transactions came after it, so the server makes none of its own accord.
func syncedPair(t *testing.T, version string) (old, next, both *harness.Database) {
	t.Helper()
	return pair(t, version, map[string]string{"synchronized_standby_slots": "standby", "autovacuum": "off"}, map[string]string{"synchronized_standby_slots": ""})
}

// syncSlots begins or ends it. A worker that finds no slot looks again after ever
// longer pauses, up to half a minute; one that begins late is quick.
func syncSlots(t *testing.T, next *harness.Database, value string) {
	t.Helper()
	next.Exec(t, "ALTER SYSTEM SET sync_replication_slots = "+value)
	next.Exec(t, "SELECT pg_reload_conf()")
	relaytest.Eventually(t, "synchronising slots is "+value, func() (bool, string) {
		workers := harness.Query[int](t, next, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'slotsync worker'")
		return (workers > 0) == (value == "on"), next.Server.Log()
	})
}

// awaitSynced begins it and waits until the standby could be promoted with the slot.
func awaitSynced(t *testing.T, p *relaytest.Pipeline, old, next *harness.Database) {
	t.Helper()
	awaitSlotSynced(t, old, next, p.Slot)
}

// awaitSlotSynced takes a snapshot of what runs on the primary, which it writes four times a
// minute of its own accord.
func awaitSlotSynced(t *testing.T, old, next *harness.Database, slot string) {
	t.Helper()
	syncSlots(t, next, "on")
	relaytest.Eventually(t, "the slot is on the standby", func() (bool, string) {
		old.Exec(t, "SELECT pg_log_standby_snapshot()")
		return isSynced(t, next, slot), next.Server.Log()
	})
}

// isSynced reports whether a standby could be promoted with the slot.
func isSynced(t *testing.T, next *harness.Database, slot string) bool {
	t.Helper()
	return harness.Query[bool](t, next, "SELECT count(*) = 1 FROM pg_replication_slots WHERE slot_name = $1 AND synced AND NOT temporary AND invalidation_reason IS NULL", slot)
}

// A slot that is synchronised to the standby is gone on with after a failover: nothing
// is lost, and nothing was delivered that the new primary does not have. The old
// primary is not streamed from when it comes back.
func TestFailover_SyncedSlotIsGoneOnWith(t *testing.T) {
	t.Parallel()
	for _, version := range harness.Versions() {
		if version < "17" {
			continue // slots stay behind: see the next test
		}
		t.Run("postgres"+version, func(t *testing.T) {
			old, next, both := syncedPair(t, version)
			brokers := harness.Kfake(t, kfakeDefault)
			p := relaytest.New(t, both, brokers, []string{"{table: public.outbox}"})
			p.Setup(t)
			w := p.NewWorkload(t, "outbox", harness.Unique(t, "order"))
			brokers.CreateTopic(t, w.Topic(), 3)
			if !harness.Query[bool](t, old, "SELECT failover FROM pg_replication_slots WHERE slot_name = $1", p.Slot) {
				t.Fatal("setup made a slot that does not fail over")
			}
			r := p.Start(t)
			r.AwaitStreaming(t)
			w.Start(t, 2, 20*time.Millisecond)
			awaitSynced(t, p, old, next)
			w.Stop(t)
			w.Insert(t, 50)
			p.AwaitCaughtUp(t)

			if err := old.Server.Kill(); err != nil {
				t.Fatal(err)
			}
			next.Exec(t, "SELECT pg_promote()")
			p.DB = next
			began := time.Now()
			w.Insert(t, 50)
			p.AwaitCaughtUp(t)
			t.Logf("delivering again %s after the promotion", time.Since(began).Round(time.Millisecond))
			r.AwaitStreaming(t)
			if n := r.Status().DataLoss; n != 0 {
				t.Errorf("%d signals of data loss", n)
			}

			start(t, old) // and it takes writes
			old.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ($1, gen_random_uuid(), 'Stale', '{}')",
				strings.TrimSuffix(w.Topic(), "-events"))
			r.Await(t, "the old primary is refused", func(s status.Status) bool {
				next.Exec(t, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1", p.Slot) // again, where the old one was too slow to be asked first
				return s.State == status.Reconnecting && s.Reason == "stale_primary"
			})
			stop(t, old, sandbox.Immediate)
			w.Insert(t, 10)
			p.AwaitCaughtUp(t)
			r.AwaitStreaming(t)
			r.Stop(t)
			t.Logf("duplicates: %d", w.Verify(t))
		})
	}
}

// A standby that does not have the slot: the relay says so, and makes none.
func TestFailover_UnsyncedSlotBlocks(t *testing.T) {
	t.Parallel()
	for _, version := range harness.VersionsFor(t) {
		t.Run("postgres"+version, func(t *testing.T) {
			old, next, both := pair(t, version, nil, nil)
			p, w := outbox(t, both, harness.Kfake(t, kfakeDefault))
			r := p.Start(t)
			w.Insert(t, 20)
			p.AwaitCaughtUp(t)
			end := relaytest.LSN(t, old, "SELECT pg_current_wal_lsn()::text")
			relaytest.Eventually(t, "the standby has everything", func() (bool, string) {
				at := relaytest.LSN(t, next, "SELECT pg_last_wal_replay_lsn()::text")
				return at >= end, at.String()
			})
			if err := old.Server.Kill(); err != nil {
				t.Fatal(err)
			}
			next.Exec(t, "SELECT pg_promote()")
			status := r.AwaitBlocked(t, "slot_missing")
			for _, part := range []string{p.Slot, "setup", "again (`cdc-relay replay`): see https://", "docs/operations.md#slot_missing"} {
				if !contains(status.Message, part) {
					t.Errorf("message %q does not say %q", status.Message, part)
				}
			}
			if status.LSN.Confirmed == 0 {
				t.Error("the status does not say what was confirmed last")
			}
			if n := harness.Query[int](t, next, "SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1", p.Slot); n != 0 {
				t.Error("the relay made a slot")
			}
			w.Verify(t)
		})
	}
}
