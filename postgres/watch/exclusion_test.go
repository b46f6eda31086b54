package watch

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// exclusion opens one for a role that may do nothing but connect and stream.
func exclusion(t *testing.T, cfg postgres.Config) *Exclusion {
	t.Helper()
	system, _, err := catalog.Identity(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	x, err := OpenExclusion(t.Context(), cfg, system)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Close)
	return x
}

func take(t *testing.T, x *Exclusion, slots ...string) {
	t.Helper()
	for _, slot := range slots {
		if err := x.Take(t.Context(), slot); err != nil {
			t.Fatal(err)
		}
	}
}

func TestExclusion_HasOneOwnerAndNamesIt(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		cfg := postgrestest.AsReplicator(t, db, postgrestest.Config(t, db))
		other := postgrestest.AsReplicator(t, db, cfg)
		other.ApplicationName = strings.Repeat("n", 60)
		first, second := exclusion(t, cfg), exclusion(t, other)
		take(t, first, cfg.Slot, "another")
		take(t, second, "a_third")
		if !first.Holds(cfg.Slot) || first.Holds("a_third") {
			t.Errorf("it holds %q", first.slots)
		}
		err := second.Take(t.Context(), cfg.Slot)
		postgrestest.WantError(t, err, fault.KindBusy, fault.ReasonSlotInUse, fmt.Sprintf("%q: another redrive is at them: pid %d, application_name cdc-relay redrive, user role_", cfg.Slot, first.pid),
			fmt.Sprintf("pg_terminate_backend(%d)", first.pid))
		// Who may see nothing of the other's session is told its process all the same; the
		// owner of both sees since when.
		third := exclusion(t, cfg)
		postgrestest.WantError(t, third.Take(t.Context(), cfg.Slot), fault.KindBusy, fault.ReasonSlotInUse, ", since 2", " UTC")
		err = third.Take(t.Context(), "a_third")
		postgrestest.WantError(t, err, fault.KindBusy, fault.ReasonSlotInUse, "application_name "+strings.Repeat("n", 55)+" redrive")

		// The end of the session is that of its locks, all at once.
		first.Close()
		awaitTaken(t, second, cfg.Slot)
		awaitTaken(t, second, "another")
	})
}

// awaitTaken takes what its owner lets go of: the server ends a session a moment after
// its client.
func awaitTaken(t *testing.T, x *Exclusion, slot string) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-tick.C {
		err := x.Take(t.Context(), slot)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func TestExclusion_RefusesALockThatKeepsNobodyAway(t *testing.T) {
	db, elsewhere := harness.Postgres(t), harness.Postgres(t)
	cfg := postgrestest.OutboxDatabase(t, elsewhere)
	cfg.URL = db.URL
	x := exclusion(t, cfg)
	postgrestest.WantError(t, x.Take(t.Context(), cfg.Slot), fault.KindRefused, fault.ReasonConfiguration, "belongs to database", "postgres.url")
	// As a pooler would give us the session of another one.
	if err := x.q.Exec(fmt.Sprintf("SELECT pg_advisory_lock(%d, %d)", exclusionClass, int32(x.key("free")))); err != nil {
		t.Fatal(err)
	}
	postgrestest.WantError(t, x.Take(t.Context(), "free"), fault.KindRefused, fault.ReasonConfiguration, "pooler")
}

func TestExclusion_TellsThatItIsLost(t *testing.T) {
	killed := func(t *testing.T, db *harness.Database, x *Exclusion) {
		db.Exec(t, "SELECT pg_terminate_backend($1)", x.pid)
	}
	unlocked := func(t *testing.T, _ *harness.Database, x *Exclusion) {
		if err := x.q.Exec("SELECT pg_advisory_unlock_all()"); err != nil {
			t.Fatal(err)
		}
	}
	nothing := func(*testing.T, *harness.Database, *Exclusion) {}
	for name, tt := range map[string]struct {
		before, meanwhile func(t *testing.T, db *harness.Database, x *Exclusion)
	}{
		"before, the session":    {killed, nothing},
		"before, the locks":      {unlocked, nothing},
		"meanwhile, the session": {nothing, killed},
	} {
		t.Run(name, func(t *testing.T) {
			db := harness.Postgres(t)
			x := exclusion(t, postgrestest.Config(t, db))
			x.askEvery = time.Hour // so it is told at once
			take(t, x, "orders")
			tt.before(t, db, x)
			ctx, release := x.Watch(t.Context())
			defer release()
			tt.meanwhile(t, db, x)
			select {
			case <-ctx.Done():
			case <-time.After(time.Minute):
				t.Fatal("nobody noticed")
			}
			postgrestest.WantError(t, context.Cause(ctx), fault.KindRetry, fault.ReasonNetwork, `keep the lock on the dead letters of slot "orders"`, "another redrive may be working on them")
		})
	}
}

// Whatever the server runs our statements in, the next look shows it.
func TestExclusion_LooksAgainAndAgain(t *testing.T) {
	db := harness.Postgres(t)
	x := exclusion(t, postgrestest.Config(t, db))
	take(t, x, "orders")
	x.askEvery, x.pid = time.Millisecond, x.pid+1
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := x.watch(ctx); err == nil || !strings.Contains(err.Error(), "another server session") {
		t.Errorf("watched until %v", err)
	}
}

func TestExclusion_IsKeptWhileItIsWatched(t *testing.T) {
	db := harness.Postgres(t)
	cfg := postgrestest.Config(t, db)
	x, other := exclusion(t, cfg), exclusion(t, cfg)
	x.askEvery = time.Millisecond
	take(t, x, "orders")
	ctx, release := x.Watch(t.Context())
	looks := func() int64 {
		return harness.Query[int64](t, db, "SELECT coalesce(sum(calls), 0)::bigint FROM (SELECT 1 AS calls FROM pg_stat_activity WHERE pid = $1 AND query LIKE '%count(*)%') looked", x.pid)
	}
	for deadline := time.Now().Add(time.Minute); looks() == 0; {
		if time.Now().After(deadline) {
			t.Fatal("it never looks")
		}
	}
	if ctx.Err() != nil {
		t.Fatal(context.Cause(ctx))
	}
	if err := other.Take(t.Context(), "orders"); postgres.KindOf(err) != fault.KindBusy {
		t.Errorf("taken beside the one who watches: %v", err)
	}
	release()
	awaitTaken(t, other, "orders")
}
