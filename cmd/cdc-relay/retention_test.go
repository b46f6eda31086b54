package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// keepsHouse configures retention for the table of a keeper.
func (k *keeper) keepsHouse(t *testing.T, then, more string) {
	t.Helper()
	k.configure(t, fmt.Sprintf("outbox: [{table: public.outbox, retention: {keep: 1h, then: %s}}]\nmaintenance: {in_run: false, wait: 20s, max_rows_per_second: 0}\n%s", then, more))
}

// age makes all rows of the table older.
func (l *life) age(t *testing.T, interval string) {
	t.Helper()
	l.db.Exec(t, "UPDATE outbox SET created_at = created_at - $1::text::interval", interval)
}

func (l *life) rows(t *testing.T) int64 {
	t.Helper()
	return harness.Query[int64](t, l.db, "SELECT count(*) FROM outbox")
}

func (l *life) left(t *testing.T, want int64) {
	t.Helper()
	if n := l.rows(t); n != want {
		t.Errorf("%d rows are left, want %d", n, want)
	}
}

func TestRetention_PlansAndDeletesWhatIsDelivered(t *testing.T) {
	t.Parallel()
	eachKeeper(t, func(t *testing.T, k *keeper) {
		k.keepsHouse(t, "delete", "")
		k.setUp(t, "")
		url, stop := k.start(t, nil)
		k.insert(t, 30)
		k.published(t, url, 30)
		k.age(t, "2h")
		k.insert(t, 5)
		plan := invoke(t, k.env, "retention")
		plan.want(t, exitOK, "public.outbox: delete rows older than 1h", "")
		plan.want(t, exitOK, "due        30 rows, the oldest of ", "")
		plan.want(t, exitOK, "slot       "+k.slot+", ", "")
		if n := k.rows(t); n != 35 {
			t.Fatalf("the plan left %d rows", n)
		}
		invoke(t, k.env, "retention", "--once").want(t, exitOK, "public.outbox: deleted 30 rows\n", "")
		k.left(t, 5)
		invoke(t, k.env, "retention", "--once").want(t, exitOK, "public.outbox: deleted 0 rows\n", "")
		var report struct {
			Tables []struct {
				Table string
				Rows  int
			}
		}
		k.age(t, "2h")
		got := invoke(t, k.env, "retention", "--once", "--json", "--table", "outbox")
		if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || len(report.Tables) != 1 || report.Tables[0].Rows != 5 || got.code != exitOK {
			t.Errorf("%v: %d, %s%s", err, got.code, got.stdout, got.stderr)
		}
		if code := stop(); code != exitOK {
			t.Errorf("run ended with %d", code)
		}
	})
}

// A relay that does not run confirms nothing, and no row goes.
func TestRetention_KeepsWhatNoRelayHasPassed(t *testing.T) {
	t.Parallel()
	eachKeeper(t, func(t *testing.T, k *keeper) {
		k.keepsHouse(t, "delete", "")
		k.env = append(k.env, "CDC_RELAY_MAINTENANCE_WAIT=1s")
		k.setUp(t, "")
		k.insert(t, 3)
		k.age(t, "2h")
		invoke(t, k.env, "retention").want(t, exitOK, "nobody streams from slot "+k.slot+": no relay runs, or it is blocked (`cdc-relay status`)", "")
		got := invoke(t, k.env, "retention", "--once")
		got.want(t, exitFailed, "deleted 0 rows", "(reason slot_behind)")
		got.want(t, exitFailed, "", "start the relay; if it runs, it may be blocked: see `cdc-relay status`")
		k.left(t, 3)
	})
}

// The slot of a gap is gone; a new one is ahead of rows that nobody has sent.
func TestRetention_LostSlotKeepsTheGap(t *testing.T) {
	t.Parallel()
	eachKeeper(t, func(t *testing.T, k *keeper) {
		k.keepsHouse(t, "delete", "")
		k.setUp(t, "")
		url, stop := k.start(t, nil)
		k.insert(t, 2)
		k.published(t, url, 2)
		stop()
		released(t, k.db)
		k.insert(t, 7) // the gap
		k.age(t, "2h")
		k.db.Exec(t, "SELECT pg_drop_replication_slot($1)", k.slot)
		for _, args := range [][]string{{"retention"}, {"retention", "--once"}} {
			invoke(t, k.env, args...).want(t, exitRefused, "", "")
		}
		invoke(t, k.env, "retention", "--once").want(t, exitRefused, "deleted 0 rows", "(reason slot_missing)")
		k.saysWhichBackfill(t, "retention")
		k.acceptsGap(t, "created slot")
		_, stop = k.start(t, nil)
		invoke(t, k.env, "retention").want(t, exitRefused, "(before_slot_unknown)", "")
		invoke(t, k.env, "retention", "--once").want(t, exitRefused, "deleted 0 rows", "(reason before_slot_unknown)")
		stop()
		k.left(t, 9)
	})
}

// A slot that was created again under the same name begins after rows that nobody has sent.
func TestRetention_RecreatedSlotKeepsTheGap(t *testing.T) {
	t.Parallel()
	eachKeeper(t, func(t *testing.T, k *keeper) {
		k.keepsHouse(t, "delete", "")
		k.setUp(t, "")
		k.runs(t, 2)
		k.db.Exec(t, "SELECT pg_drop_replication_slot($1)", k.slot)
		k.insert(t, 7) // the gap
		k.age(t, "2h")
		k.db.Exec(t, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", k.slot)
		invoke(t, k.env, "retention", "--once").want(t, exitRefused, "deleted 0 rows", "(reason slot_moved)")
		invoke(t, k.env, "retention").want(t, exitRefused, "(slot_moved)", "")
		k.left(t, 9)
	})
}

// The server took the WAL away that the slot still needed.
func TestRetention_KeepsTheRowsOfAnInvalidatedSlot(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"15", "18"} {
		t.Run("postgres"+version, func(t *testing.T) {
			t.Parallel()
			k := newKeeper(t, keeping["detect_moved_slot"])
			k.db = harness.OwnPostgres(t, sandbox.PostgresOptions{Version: version, Settings: map[string]string{"max_slot_wal_keep_size": "1MB"}})
			k.env = append(k.env, "CDC_RELAY_POSTGRES_URL="+k.db.URL)
			k.keepsHouse(t, "delete", "")
			k.setUp(t, "")
			k.runs(t, 2)
			k.insert(t, 3)
			k.age(t, "2h")
			k.await(t, "the slot is lost", func() bool {
				k.db.Exec(t, "SELECT pg_switch_wal()")
				k.db.Exec(t, "CREATE TABLE IF NOT EXISTS filler AS SELECT 1; INSERT INTO filler SELECT 1")
				k.db.Exec(t, "CHECKPOINT")
				return queryText(t, k.db, "SELECT wal_status FROM pg_replication_slots WHERE slot_name = '"+k.slot+"'") == "lost"
			})
			invoke(t, k.env, "retention", "--once").want(t, exitRefused, "deleted 0 rows", "(reason slot_lost)")
			k.left(t, 5)
		})
	}
}

// Rows that were written while the publication did not have the table are in no stream, and the
// slot passes them once it has the table again.
func TestRetention_KeepsWhatAChangedPublicationLeftOut(t *testing.T) {
	t.Parallel()
	eachKeeper(t, func(t *testing.T, k *keeper) {
		k.keepsHouse(t, "delete", "")
		k.setUp(t, "")
		url, stop := k.start(t, nil)
		k.insert(t, 2)
		k.published(t, url, 2)
		publication := harness.Query[string](t, k.db, "SELECT pubname::text FROM pg_publication")
		k.db.Exec(t, "ALTER PUBLICATION "+publication+" DROP TABLE outbox")
		k.insert(t, 3) // in no stream
		k.await(t, "the relay is blocked", func() bool {
			return strings.Contains(invoke(t, nil, "status", "--url", url).stdout, "table_unpublished")
		})
		k.db.Exec(t, "ALTER PUBLICATION "+publication+" ADD TABLE outbox")
		stop()
		released(t, k.db)
		k.age(t, "2h")
		url, stop = k.start(t, nil)
		k.insert(t, 1)
		k.published(t, url, 1)
		invoke(t, k.env, "retention", "--once").want(t, exitRefused, "deleted 0 rows", "(reason before_slot_unknown)")
		k.left(t, 6)
		stop()
	})
}

// No relay ran while the publication did not have the table, so that none could notice.
func TestRetention_KeepsWhatWasLeftOutWhileNoRelayRan(t *testing.T) {
	t.Parallel()
	eachKeeper(t, func(t *testing.T, k *keeper) {
		k.keepsHouse(t, "delete", "")
		k.setUp(t, "")
		url, stop := k.start(t, nil)
		k.insert(t, 2)
		k.published(t, url, 2)
		stop()
		released(t, k.db)
		publication := harness.Query[string](t, k.db, "SELECT pubname::text FROM pg_publication")
		k.db.Exec(t, "ALTER PUBLICATION "+publication+" DROP TABLE outbox")
		k.insert(t, 3) // in no stream
		k.db.Exec(t, "ALTER PUBLICATION "+publication+" ADD TABLE outbox")
		k.age(t, "2h")
		url, stop = k.start(t, nil)
		k.insert(t, 1)
		k.published(t, url, 1)
		invoke(t, k.env, "retention").want(t, exitRefused, "(before_slot_unknown)", "")
		invoke(t, k.env, "retention", "--once").want(t, exitRefused, "deleted 0 rows", "(reason before_slot_unknown)")
		k.left(t, 6)
		invoke(t, k.env, "setup", "--before-slot", "delivered").want(t, exitOK, "", "")
		invoke(t, k.env, "retention", "--once").want(t, exitOK, "deleted 5 rows", "")
		stop()
	})
}

func TestRetention_RefusesAMovedSlot(t *testing.T) {
	t.Parallel()
	eachKeeper(t, func(t *testing.T, k *keeper) {
		k.keepsHouse(t, "delete", "")
		k.setUp(t, "")
		k.insert(t, 3)
		k.age(t, "2h")
		k.move(t, k.slot)
		invoke(t, k.env, "retention", "--once").want(t, exitRefused, "deleted 0 rows", "(reason slot_moved)")
		k.left(t, 4)
	})
}

func TestRetention_TwoSlotsTakeTheLeast(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, keeping["detect_moved_slot"])
	other := k.slot + "_other"
	k.keepsHouse(t, "delete", "")
	k.env = append(k.env, "CDC_RELAY_MAINTENANCE_ALSO_WAIT_FOR="+other, "CDC_RELAY_MAINTENANCE_WAIT=3s")
	k.setUp(t, "")
	k.db.Exec(t, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", other)
	url, stop := k.start(t, nil)
	k.insert(t, 3)
	k.published(t, url, 3)
	k.age(t, "2h")
	invoke(t, k.env, "retention", "--once").want(t, exitFailed, "deleted 0 rows", `slot "`+other+`"`)
	if n := k.rows(t); n != 3 {
		t.Fatalf("%d rows are left, want 3", n)
	}
	k.env = append(k.env, "CDC_RELAY_MAINTENANCE_WAIT=60s")
	ctx, end := context.WithCancel(t.Context())
	advanced := make(chan struct{})
	go func() { // the other pipeline
		defer close(advanced)
		for ctx.Err() == nil {
			k.db.Exec(t, "SELECT pg_replication_slot_advance($1, pg_current_wal_flush_lsn())", other)
			<-time.After(20 * time.Millisecond)
		}
	}()
	invoke(t, k.env, "retention", "--once").want(t, exitOK, "deleted 3 rows", "")
	end()
	<-advanced
	stop()
	released(t, k.db)
	k.db.Exec(t, "SELECT pg_drop_replication_slot($1)", other)
}

// Another pipeline got its slot after these rows, as one that lost its slot does: this relay has delivered them, and
// that one has not.
func TestRetention_KeepsWhatAnotherPipelineHasNotSent(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, keeping["detect_moved_slot"])
	k.keepsHouse(t, "delete", "")
	k.setUp(t, "")
	k.runs(t, 3)
	k.age(t, "2h")
	other := *k
	other.life = &life{db: k.db, brokers: k.brokers, env: append(k.env[:len(k.env):len(k.env)], "CDC_RELAY_POSTGRES_SLOT="+k.slot+"_other")}
	invoke(t, other.env, "setup").want(t, exitOK, "", "")
	_, stop := k.streams(t)
	defer stop()
	_, end := other.streams(t)
	defer end()
	k.env = append(k.env, "CDC_RELAY_MAINTENANCE_ALSO_WAIT_FOR="+k.slot+"_other")
	invoke(t, k.env, "retention").want(t, exitRefused, `slot "`+k.slot+`_other"`, "")
	invoke(t, k.env, "retention", "--once").want(t, exitRefused, "deleted 0 rows", "(reason before_slot_unknown)")
	k.left(t, 3)
	invoke(t, other.env, "setup", "--before-slot", "delivered").want(t, exitOK, "", "")
	invoke(t, k.env, "retention", "--once").want(t, exitOK, "deleted 3 rows", "")
}

func queryText(t *testing.T, db *harness.Database, sql string) string {
	t.Helper()
	return harness.Query[string](t, db, sql)
}
