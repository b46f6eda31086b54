package main

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// What the checkpoint topic says of the rows before the slot was written when the server was further. Then it
// was put back to a copy without the slot, and somebody made one by hand, behind rows that nobody sent.
func TestRetention_TakesNoRecordOfASlotThatADiskThatWasPutBackDoesNotHave(t *testing.T) {
	t.Parallel()
	eachKeeper(t, func(t *testing.T, k *keeper) {
		k.db = harness.OwnPostgres(t, sandbox.PostgresOptions{Version: "18"})
		k.env = append(k.env, "CDC_RELAY_POSTGRES_URL="+k.db.URL)
		writeWAL := func(megabytes int) {
			k.db.Exec(t, "SELECT pg_logical_emit_message(false, 'filler', repeat('x', $1::int * 1000000))", megabytes)
		}
		k.keepsHouse(t, "delete", "")
		k.setUp(t, "wrote where slot "+k.slot+" begins")
		k.db.Exec(t, "SELECT pg_drop_replication_slot($1)", k.slot)
		putBack := k.db.CopyDisk(t)
		writeWAL(4)
		k.acceptsGap(t, "forgot the checkpoint")
		k.runs(t, 1)
		invoke(t, k.env, "setup", "--before-slot", "delivered").want(t, exitOK, "are delivered", "")
		writeWAL(4)
		k.runs(t, 1)

		putBack()
		k.insert(t, 3)
		k.db.Exec(t, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", k.slot)
		k.runs(t, 1)
		writeWAL(16)
		_, stop := k.streams(t)
		defer stop()
		k.insert(t, 1)
		k.arrived(t, 4)
		k.age(t, "2h")
		k.await(t, "the slot is past what was written", func() bool {
			return harness.Query[bool](t, k.db, "SELECT pg_current_wal_lsn() - confirmed_flush_lsn < 1000000 FROM pg_replication_slots WHERE slot_name = $1", k.slot)
		})
		invoke(t, k.env, "retention", "--once").want(t, exitRefused, "", "whether rows from before it are delivered is not known")
		if rows := k.rows(t); rows != 5 {
			t.Errorf("%d rows are left of 5, of which 3 were never sent", rows)
		}
	})
}

// The same, while no relay has come to the server yet: the position of the WAL that is gone would hide that
// somebody moved the slot.
func TestRetention_TakesNoPositionOfAServerThatWasFurther(t *testing.T) {
	t.Parallel()
	eachKeeper(t, func(t *testing.T, k *keeper) {
		k.db = harness.OwnPostgres(t, sandbox.PostgresOptions{Version: "18"})
		k.env = append(k.env, "CDC_RELAY_POSTGRES_URL="+k.db.URL)
		k.keepsHouse(t, "delete", "")
		k.setUp(t, "wrote where slot "+k.slot+" begins")
		k.runs(t, 1)
		putBack := k.db.CopyDisk(t)
		k.db.Exec(t, "SELECT pg_logical_emit_message(false, 'filler', repeat('x', 4000000))")
		k.runs(t, 1)

		putBack()
		k.insert(t, 3)
		k.age(t, "2h")
		k.db.Exec(t, "SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())", k.slot)
		invoke(t, k.env, "retention", "--once").want(t, exitRefused, "", "the server's WAL ends at")
		if rows := k.rows(t); rows != 4 {
			t.Errorf("%d rows are left of 4, of which 3 were never sent", rows)
		}
	})
}
