package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
)

// A backfill at work keeps its slot; one that was killed is given up with what it holds.
func TestTeardown_OfABackfill(t *testing.T) {
	t.Parallel()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	k := newOld(t, "18", keeping["detect_moved_slot"])
	k.write(t, 1, 8000)
	var log output
	program := exec.CommandContext(t.Context(), executable, "backfill", "--all", "--yes", "--max-rate", "500") // far from done when it is killed
	program.Env, program.Stderr = append(slices.Clone(k.env), "HOME=/nonexistent", asProgram+"=1"), &log
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	k.await(t, "records", func() bool { return len(k.brokers.Read(t, "order-events")) >= 500 })
	for _, args := range [][]string{{"teardown"}, {"teardown", "--yes"}} {
		invoke(t, k.env, args...).want(t, exitRefused, "", "a backfill, a cutover or a replay is under way")
	}
	if got := k.slots(t); got != k.slot+"_backfill" {
		t.Errorf("the slots are %q", got)
	}
	_ = program.Process.Kill()
	_ = program.Wait() // it was killed
	released(t, k.db)
	unlocked(t, k.db)

	invoke(t, k.env, "teardown").want(t, exitOK, fmt.Sprintf("would drop slot %[1]s_backfill, which an interrupted backfill has left\n    SELECT pg_catalog.pg_drop_replication_slot('%[1]s_backfill');\n    to complete the backfill instead: cdc-relay backfill --yes\n", k.slot), "")
	invoke(t, k.env, "setup").want(t, exitRefused, "", "run `cdc-relay teardown --yes`, which drops slot")
	invoke(t, k.env, "teardown", "--yes").want(t, exitOK, fmt.Sprintf("dropped slot %s_backfill, which an interrupted backfill has left\n", k.slot), "")
	if got := k.slots(t); got != "" {
		t.Errorf("the slots are %q", got)
	}
	invoke(t, k.env, "setup").want(t, exitOK, "", "")
}
