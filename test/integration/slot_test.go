package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// fillWAL writes about n MiB of WAL that is of no interest to the relay.
func fillWAL(t *testing.T, db *harness.Database, n int) {
	t.Helper()
	db.Exec(t, "CREATE TABLE IF NOT EXISTS noise (fill text)")
	for range n {
		db.Exec(t, "INSERT INTO noise SELECT repeat('x', 1000) FROM generate_series(1, 1000)")
	}
}

// moveSlot moves the slot past everything, as somebody does who skips rows. The server
// lets go of it only a while after the relay has ended.
func moveSlot(t *testing.T, p *relaytest.Pipeline) {
	t.Helper()
	awaitFree(t, p)
	p.DB.Exec(t, "SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())", p.Slot)
}

func awaitFree(t *testing.T, p *relaytest.Pipeline) {
	t.Helper()
	relaytest.Eventually(t, "the server lets go of the slot", func() (bool, string) {
		active := harness.Query[bool](t, p.DB, "SELECT active FROM pg_replication_slots WHERE slot_name = $1", p.Slot)
		return !active, "it is active"
	})
}

// A slot that held back more WAL than the server allows is lost while the relay waits
// for the brokers.
func TestSlot_InvalidatedInAnOutageBlocksAsLost(t *testing.T) {
	t.Parallel()
	for _, version := range harness.VersionsFor(t) {
		t.Run("postgres"+version, func(t *testing.T) {
			db := harness.OwnPostgres(t, sandbox.PostgresOptions{Version: version, Settings: map[string]string{
				"max_slot_wal_keep_size": "8MB", "min_wal_size": "32MB", "max_wal_size": "32MB", "wal_keep_size": "0",
			}})
			brokers := harness.Kfake(t, kfakeDefault)
			p, w := outbox(t, db, brokers, "relay: {max_in_flight_bytes: 16KiB}")
			r := p.Start(t)
			w.Insert(t, 20)
			p.AwaitCaughtUp(t)
			brokers.Fake.TakeAway(0)
			w.Insert(t, 3000)
			end := p.WALEnd(t) // an idle relay may confirm up to where the commit begins
			relaytest.Eventually(t, "the server gives the slot up", func() (bool, string) {
				fillWAL(t, db, 10)
				db.Exec(t, "SELECT pg_switch_wal()")
				db.Exec(t, "CHECKPOINT")
				status := harness.Query[string](t, db, "SELECT wal_status FROM pg_replication_slots WHERE slot_name = $1", p.Slot)
				return status == "lost", status
			})
			status := r.AwaitBlocked(t, "slot_lost")
			for _, part := range []string{p.Slot, "invalidated", "setup"} {
				if !contains(status.Message, part) {
					t.Errorf("message %q does not say %q", status.Message, part)
				}
			}
			brokers.Fake.Return()
			r.AwaitBlocked(t, "slot_lost")
			if confirmed := relaytest.LSN(t, db, "SELECT coalesce(confirmed_flush_lsn, '0/0')::text FROM pg_replication_slots WHERE slot_name = $1", p.Slot); confirmed >= end {
				t.Errorf("confirmed %s, past the rows written before %s", confirmed, end)
			}
		})
	}
}

// From version 18 on a slot that nobody uses for long enough is lost. The least that
// the server takes is a minute.
func TestSlot_IdleForTooLongIsRefusedAsLost(t *testing.T) {
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Version: "18"})
	p, w := outbox(t, db, harness.Kfake(t, kfakeDefault))
	r := p.Start(t)
	w.Insert(t, 20)
	p.AwaitCaughtUp(t)
	r.Stop(t)
	db.Exec(t, "ALTER SYSTEM SET idle_replication_slot_timeout = '1min'")
	db.Exec(t, "SELECT pg_reload_conf()")
	minute := time.After(61 * time.Second)
	t.Parallel() // it passes while other tests run
	<-minute
	relaytest.Eventually(t, "the server gives the slot up", func() (bool, string) {
		db.Exec(t, "CHECKPOINT")
		reason := harness.Query[string](t, db, "SELECT coalesce(invalidation_reason, '') FROM pg_replication_slots WHERE slot_name = $1", p.Slot)
		return reason == "idle_timeout", reason
	})
	running := p.Exec(t, "run")
	if code := running.Wait(t); code != 3 {
		t.Errorf("exit code = %d", code)
	}
	for _, part := range []string{"idle_timeout", p.Slot, "setup"} {
		if !strings.Contains(running.Output(), part) {
			t.Errorf("the output does not say %q", part)
		}
	}
}

// A slot that was moved or made anew while the relay had lost its connection is told
// from one that stood still. That another relay had it is the usual cause, so it is
// said and gone on.
func TestSlot_MovedWhileItWasFreeIsSaid(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t)
	for name, change := range map[string]string{
		"moved":      "SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())",
		"made_again": "SELECT pg_drop_replication_slot($1)",
	} {
		t.Run(name, func(t *testing.T) {
			p, w := outbox(t, another(t, db), harness.Kfake(t, kfakeDefault))
			running := p.Exec(t, "run")
			w.Insert(t, 20)
			p.AwaitCaughtUp(t)
			conn := p.DB.Connect(t)
			relaytest.Eventually(t, "the slot is changed", func() (bool, string) {
				p.DB.Exec(t, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1", p.Slot)
				p.DB.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('nobody', gen_random_uuid(), 'x', '{}')")
				_, err := conn.Exec(t.Context(), change, p.Slot)
				if err == nil && name == "made_again" {
					_, err = conn.Exec(t.Context(), "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", p.Slot)
				}
				return err == nil, fmt.Sprint(err)
			})
			relaytest.Eventually(t, "it is said", func() (bool, string) {
				return strings.Contains(running.Output(), "the slot is ahead of the position that this process confirmed"), running.Output()
			})
		})
	}
}
