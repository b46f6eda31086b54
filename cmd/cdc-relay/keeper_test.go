package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// keeping are the two ways to have positions kept in Kafka.
var keeping = map[string]string{
	"detect_moved_slot": "CDC_RELAY_RELAY_DETECT_MOVED_SLOT=true",
	"exactly_once":      "CDC_RELAY_RELAY_GUARANTEE=exactly_once",
}

// keeper is a life whose relay keeps positions in a topic of its own.
type keeper struct {
	*life
	how         string // the variable that has it do so
	slot, topic string
}

func newKeeper(t *testing.T, how string) *keeper {
	t.Helper()
	return newKeeperOf(t, newLife(t), how)
}

func newKeeperOf(t *testing.T, l *life, how string) *keeper {
	t.Helper()
	k := &keeper{life: l, how: how, topic: harness.Unique(t, "positions")}
	k.env = append(k.env, how, "CDC_RELAY_RELAY_CHECKPOINT_TOPIC="+k.topic)
	k.slot = strings.TrimPrefix(k.env[1], "CDC_RELAY_POSTGRES_SLOT=")
	return k
}

// dropSlot drops the slot, and has the configuration name another one.
func (k *keeper) dropSlot(t *testing.T, suffix string) (former string) {
	t.Helper()
	former = k.slot
	k.db.Exec(t, "SELECT pg_drop_replication_slot($1)", former)
	k.slot += suffix
	k.env = append(k.env, "CDC_RELAY_POSTGRES_SLOT="+k.slot)
	return former
}

// eachKeeper tests both ways. In the short form each test has one of them: the length of its name
// decides, so that each way is left to half of the tests.
func eachKeeper(t *testing.T, test func(t *testing.T, k *keeper)) {
	t.Helper()
	for i, name := range slices.Sorted(maps.Keys(keeping)) {
		if harness.Left(i, len(t.Name())) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newKeeper(t, keeping[name]))
		})
	}
}

// divide gives it two slots, before it is set up. That takes a server with row filters,
// which came with PostgreSQL 15.
func (k *keeper) divide(t *testing.T) (first, second string) {
	t.Helper()
	if harness.Query[int64](t, k.db, "SELECT current_setting('server_version_num')::bigint") < 150000 {
		k.db = harness.Postgres(t, "18")
		k.env = append(k.env, "CDC_RELAY_POSTGRES_URL="+k.db.URL)
	}
	k.env = append(k.env, "CDC_RELAY_POSTGRES_SHARDS=2")
	return k.slot + "_2_0", k.slot + "_2_1"
}

// setUp has `setup` make everything.
func (k *keeper) setUp(t *testing.T, says string) {
	t.Helper()
	invoke(t, k.env, "setup", "--create-table").want(t, exitOK, says, "")
}

func (k *keeper) acceptsGap(t *testing.T, says string) result {
	t.Helper()
	got := invoke(t, k.env, "setup", "--accept-gap")
	got.want(t, exitOK, says, "")
	return got
}

// compares has `check` say of slot and checkpoint what is wanted.
func (k *keeper) compares(t *testing.T, level advice.Level, texts ...string) {
	t.Helper()
	checkUp(t, k.env).want(t, "slot.checkpoint", level, texts...)
}

// streams starts a relay and returns once it streams. stop wants it to end well.
func (k *keeper) streams(t *testing.T) (url string, stop func()) {
	t.Helper()
	url, end := k.start(t, nil)
	k.await(t, "the relay streams", func() bool { return invoke(t, nil, "status", "--url", url).code == exitOK })
	return url, func() {
		t.Helper()
		if code := end(); code != exitOK {
			t.Fatalf("run ended with %d", code)
		}
	}
}

func (k *keeper) published(t *testing.T, url string, n int) {
	t.Helper()
	k.await(t, "everything is published", func() bool {
		return strings.Contains(invoke(t, nil, "status", "--url", url).stdout, fmt.Sprintf("published %d,", n))
	})
}

// runs writes n rows, and has a relay deliver them and stop.
func (k *keeper) runs(t *testing.T, n int) {
	t.Helper()
	k.insert(t, n)
	url, stop := k.streams(t)
	k.published(t, url, n)
	stop()
	released(t, k.db)
}

// refuses has a run end at its start, and leave the slot free.
func (k *keeper) refuses(t *testing.T, says string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	got := invokeWithin(ctx, t, k.env, "run")
	if ctx.Err() != nil {
		t.Fatalf("it streams, and was to say %q; standard error:\n%s", says, got.stderr)
	}
	got.want(t, exitRefused, "", says)
	released(t, k.db)
}

// saysWhichBackfill has a command name the backfill that makes the slot which is not there.
func (k *keeper) saysWhichBackfill(t *testing.T, command string) {
	t.Helper()
	const next = "makes the slot when it is complete; let `cdc-relay backfill --yes` complete it"
	k.db.Exec(t, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", k.slot+"_backfill")
	invoke(t, k.env, command).want(t, exitRefused, "a backfill is under way or was interrupted", "")
	invoke(t, k.env, command, "--once").want(t, exitRefused, "", next)
	k.db.Exec(t, "SELECT pg_drop_replication_slot($1)", k.slot+"_backfill")
}

func (k *keeper) confirmed(t *testing.T, slot string) string {
	t.Helper()
	return harness.Query[string](t, k.db, "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", slot)
}

// move puts a slot behind a row that nobody has seen.
func (k *keeper) move(t *testing.T, slot string) {
	t.Helper()
	k.insert(t, 1)
	k.db.Exec(t, "SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())", slot)
}

// delivered requires so many records in all.
func (k *keeper) delivered(t *testing.T, want int) {
	t.Helper()
	if n := len(k.brokers.Read(t, "order-events")); n != want {
		t.Errorf("%d records, want %d", n, want)
	}
}

// held are the positions in the checkpoint topic, newest last, and where the topic ends.
func (k *keeper) held(t *testing.T) (ends []string, next int64) {
	t.Helper()
	offsets, err := k.brokers.Admin(t).ListEndOffsets(t.Context(), k.topic)
	if err != nil {
		t.Fatal(err)
	}
	at, _ := offsets.Lookup(k.topic, 0)
	for _, r := range k.brokers.Read(t, k.topic) {
		if r.Value == nil || strings.HasPrefix(string(r.Key), "before the slot ") || strings.HasPrefix(string(r.Key), "dead letters of ") || strings.HasPrefix(string(r.Key), "tables streamed: ") {
			continue
		}
		rec, err := stored.ParsePosition(r.Value)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, rec.End.String())
	}
	return ends, at.Offset
}

// untouched requires the checkpoint topic to end where it did.
func (k *keeper) untouched(t *testing.T, before int64, otherwise string) {
	t.Helper()
	if _, after := k.held(t); after != before {
		t.Errorf("%s: the checkpoint topic ends at %d, and did at %d", otherwise, after, before)
	}
}
