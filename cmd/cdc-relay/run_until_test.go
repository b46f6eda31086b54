package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// run --until delivers what commits before the position and nothing else, and ends by itself,
// also when called again, and on a server that is quiet. The next run has the rest.
func TestRun_UntilSendsWhatCommitsBeforeAndNoMore(t *testing.T) {
	t.Parallel()
	for name, more := range map[string][]string{
		"at_least_once": {keeping["detect_moved_slot"]}, "exactly_once": {keeping["exactly_once"]},
		"shards": {keeping["detect_moved_slot"], "CDC_RELAY_POSTGRES_SHARDS=2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newOld(t, "18", more...)
			invoke(t, k.env, "setup").want(t, exitOK, "ready", "")
			k.write(t, 1, 50)
			at := harness.Query[string](t, k.db, "SELECT pg_current_wal_insert_lsn()::text")
			k.write(t, 51, 80)
			until := func(lsn string) {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				got := invokeWithin(ctx, t, k.env, "run", "--until", lsn)
				if ctx.Err() != nil {
					t.Fatalf("it did not end by itself: %s", got.stderr)
				}
				got.want(t, exitOK, "", "stopped; all acknowledged rows are confirmed")
			}
			for range 2 {
				until(at)
				eachOnce(t, k.committed(t, "order-events"), 50)
			}
			until(harness.Query[string](t, k.db, "SELECT pg_current_wal_flush_lsn()::text")) // nobody writes any more
			eachOnce(t, k.committed(t, "order-events"), 80)
		})
	}
	for _, lsn := range []string{"", "0/0", "16B3748", "0/", "tomorrow"} {
		got := invoke(t, closedPorts, "run", "--until", lsn)
		if got.code != exitUsage || !strings.Contains(got.stderr, "--until") {
			t.Errorf("--until %q: code %d, %s", lsn, got.code, got.stderr)
		}
	}
}
