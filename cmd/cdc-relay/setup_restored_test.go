package main

import (
	"fmt"
	"testing"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A server that is restored from an older copy stays on its timeline. Rows from the new slot's position on
// lie before the checkpoint, and exactly-once takes what lies there for delivered.
func TestSetup_TakesNoCheckpointOfAServerThatWasFurther(t *testing.T) {
	t.Parallel()
	eachKeeper(t, func(t *testing.T, k *keeper) {
		k.setUp(t, "wrote where slot "+k.slot+" begins")
		system := harness.Query[string](t, k.db, "SELECT system_identifier::text FROM pg_control_system()")
		key := stored.PromiseKey("somebody", system, k.slot)
		if k.how == keeping["exactly_once"] {
			key = stored.Key(system, k.slot)
		}
		further := stored.Position{System: system, Timeline: 1, Slot: k.slot, Publication: "cdc_relay", End: wal.LSN(0xFF << 32)}
		k.writes(t, key, string(further.Encode()))

		k.db.Exec(t, "SELECT pg_drop_replication_slot($1)", k.slot)
		invoke(t, k.env, "setup").want(t, exitRefused, "", "--accept-gap")
		k.acceptsGap(t, fmt.Sprintf("forgot the checkpoint of slot %s (key %q", k.slot, key))
		k.runs(t, 1)

		k.writes(t, key, string(further.Encode()))
		k.compares(t, advice.Warn, "the server's WAL ends before that", "setup --accept-gap")
		k.acceptsGap(t, fmt.Sprintf("forgot the checkpoint of slot %s (key %q", k.slot, key)) // of a slot that was there
		k.runs(t, 2)
		k.delivered(t, 3)
	})
}
