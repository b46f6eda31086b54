package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// The checkpoint topic has a position of an earlier slot of a new one's name, from before the server was put
// back to an older copy. The WAL has grown past it when the command looks.
func TestReshard_KeepsNoPositionOfAServerThatWasFurther(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, keeping["detect_moved_slot"])
	_, second := k.divide(t)
	invoke(t, append(k.env[:len(k.env):len(k.env)], "CDC_RELAY_POSTGRES_SHARDS=1"), "setup", "--create-table").want(t, exitOK, "ready", "")
	system := harness.Query[string](t, k.db, "SELECT system_identifier::text FROM pg_control_system()")
	end, err := wal.ParseLSN(harness.Query[string](t, k.db, "SELECT (pg_current_wal_insert_lsn() + 4000000)::text"))
	if err != nil {
		t.Fatal(err)
	}
	key := stored.PromiseKey("somebody", system, second)
	further := stored.Position{System: system, Timeline: 1, Slot: second, Publication: "cdc_relay", End: end}
	k.writes(t, key, string(further.Encode()))
	stdout, stderr := &lineHook{line: "has to stream until", act: func() { // in the place of a relay
		k.db.Exec(t, "SELECT pg_logical_emit_message(true, 'nobody', '')")
		k.db.Exec(t, "SELECT pg_replication_slot_advance(slot_name, pg_current_wal_lsn()) FROM pg_replication_slots WHERE database = current_database()")
		k.db.Exec(t, "SELECT pg_logical_emit_message(false, 'filler', repeat('x', 8000000))")
	}}, new(harness.Output)
	if code := run(t.Context(), []string{"setup", "--reshard-from", "1"}, process{env: k.env, stdout: stdout, stderr: stderr}); code != exitOK || !strings.Contains(stdout.String(), fmt.Sprintf("forgot the checkpoint of slot %s (key %q", second, key)) {
		t.Errorf("it ended with %d:\n%s%s", code, stdout.String(), stderr.String())
	}
}

// The position of a server that was further hides that somebody moved the former slot: then nothing is known
// of the rows before its copies.
func TestReshard_CarriesNothingOverFromAServerThatWasFurther(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, keeping["detect_moved_slot"])
	k.divide(t)
	divided := k.env
	k.env = append(slices.Clip(divided), "CDC_RELAY_POSTGRES_SHARDS=1")
	k.setUp(t, "")
	k.runs(t, 1)
	system := harness.Query[string](t, k.db, "SELECT system_identifier::text FROM pg_control_system()")
	further := stored.Position{System: system, Timeline: 1, Slot: k.slot, Publication: "cdc_relay", End: wal.LSN(0xFF << 32)}
	k.writes(t, stored.PromiseKey("somebody", system, k.slot), string(further.Encode()))
	k.insert(t, 1) // nobody sends it
	stdout, stderr := &lineHook{line: "has to stream until", act: func() {
		k.db.Exec(t, "SELECT pg_logical_emit_message(true, 'nobody', '')")
		k.db.Exec(t, "SELECT pg_replication_slot_advance(slot_name, pg_current_wal_lsn()) FROM pg_replication_slots WHERE database = current_database()")
	}}, new(harness.Output)
	if code := run(t.Context(), []string{"setup", "--reshard-from", "1"}, process{env: divided, stdout: stdout, stderr: stderr}); code != exitOK || strings.Contains(stdout.String(), "holds of slot") {
		t.Errorf("it ended with %d:\n%s%s", code, stdout.String(), stderr.String())
	}
}

func TestReshard_RefusesWhatWouldRepeatOrForget(t *testing.T) {
	for _, tt := range []struct {
		args []string
		says string
	}{
		{[]string{"--set", "relay.guarantee=exactly_once"}, "exactly_once"},
		{[]string{"--set", "relay.on_reject=dead_letter", "--set", "relay.park_key=true"}, "re-drive all of them"},
		{[]string{"--dry-run"}, "combined with --column-list"},
		{[]string{"--create-table"}, "combined with --column-list"},
	} {
		args := append([]string{"setup", "--reshard-from", "1", "--set", "postgres.shards=3"}, tt.args...)
		invoke(t, closedPorts, args...).want(t, exitUsage, "", tt.says)
	}
	invoke(t, closedPorts, "sql", "--set", "postgres.shards=3").want(t, exitUsage, "", "setup --dry-run")
}

// The slots that come back with a former number of shards have the names of earlier ones, of which the
// checkpoint topic still has a position. Nothing lies between: a relay streams from them.
func TestReshard_BackToAFormerNumberMakesSlotsThatRunTakes(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, keeping["detect_moved_slot"])
	k.divide(t)
	whole := append(k.env[:len(k.env):len(k.env)], "CDC_RELAY_POSTGRES_SHARDS=1")
	invoke(t, whole, "setup", "--create-table").want(t, exitOK, "ready", "")
	reshard := func(env []string, from string) {
		t.Helper()
		stdout, stderr := &lineHook{line: "has to stream until", act: func() { // in the place of a relay
			k.db.Exec(t, "SELECT pg_logical_emit_message(true, 'nobody', '')") // its commit flushes what others have written; a slot goes no further
			k.db.Exec(t, "SELECT pg_replication_slot_advance(slot_name, pg_current_wal_lsn()) FROM pg_replication_slots WHERE database = current_database()")
		}}, new(harness.Output)
		if code := run(t.Context(), []string{"setup", "--reshard-from", from}, process{env: env, stdout: stdout, stderr: stderr}); code != exitOK {
			t.Fatalf("--reshard-from %s ended with %d:\n%s%s", from, code, stdout.String(), stderr.String())
		}
		if !strings.Contains(stdout.String(), "start that relay, again if it is stopped already") {
			t.Errorf("nobody streams, and --reshard-from %s waits without a word of it:\n%s", from, stdout.String())
		}
		if strings.Contains(stdout.String(), "holds of slot") {
			t.Errorf("no relay brought the slot to its position, and what is known of the rows before is said to hold of its copies:\n%s", stdout.String())
		}
	}
	reshard(k.env, "1")
	k.insert(t, 1)
	reshard(whole, "2")
	k.env = whole
	k.compares(t, advice.Warn, "has no checkpoint of it")
	k.runs(t, 1)
}

// What is known of the rows from before the slots holds of their copies: retention goes on. It does not hold
// of a table that a relay of the new slots lacks: that relay passes over its rows.
func TestReshard_KeepsWhatIsKnownOfTheRowsBefore(t *testing.T) {
	t.Parallel()
	for _, lacks := range []bool{false, true} {
		t.Run(fmt.Sprintf("a relay lacks the table %t", lacks), func(t *testing.T) {
			t.Parallel()
			reshardWithRowsBefore(t, lacks)
		})
	}
}

func reshardWithRowsBefore(t *testing.T, lacks bool) {
	t.Helper()
	k := newKeeper(t, keeping["detect_moved_slot"])
	first, _ := k.divide(t)
	k.keepsHouse(t, "delete", "")
	divided := k.env
	k.env = append(slices.Clip(divided), "CDC_RELAY_POSTGRES_SHARDS=1")
	k.setUp(t, "")
	k.insert(t, 3)
	url, stop := k.streams(t)
	k.published(t, url, 3)
	if lacks {
		k.passesOver(t, first)
	}
	stdout, stderr := &lineHook{line: "stop every relay", act: stop}, new(harness.Output)
	if code := run(t.Context(), []string{"setup", "--reshard-from", "1"}, process{env: divided, stdout: stdout, stderr: stderr}); code != exitOK {
		t.Fatalf("--reshard-from 1 ended with %d:\n%s%s", code, stdout.String(), stderr.String())
	}
	k.env = divided
	_, stop = k.streams(t)
	defer stop()
	k.insert(t, 2)
	k.arrived(t, 5)
	k.age(t, "2h")
	if lacks {
		invoke(t, k.env, "retention", "--once").want(t, exitRefused, "", first)
		return
	}
	invoke(t, k.env, "retention", "--once").want(t, exitOK, "deleted 5 rows", "")
}

// passesOver writes what a relay writes that streams from a slot without the table.
func (k *keeper) passesOver(t *testing.T, slot string) {
	t.Helper()
	at := broker.Connection{Brokers: k.brokers.Addrs}
	ledger, err := topics.NewLedger(at, k.topic)
	if err != nil {
		t.Fatal(err)
	}
	defer ledger.Close()
	system := harness.Query[string](t, k.db, "SELECT system_identifier::text FROM pg_control_system()")
	if err := ledger.Write(t.Context(), stored.StreamedKey(system, slot), (&stored.Streamed{Tables: []uint32{1}}).Encode()); err != nil {
		t.Fatal(err)
	}
}
