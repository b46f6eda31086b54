package main

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// told is the topic in its order: "unknown" and "none" of what lies before the slot,
// "position", "forgotten".
func (k *keeper) told(t *testing.T) string {
	t.Helper()
	oid := harness.Query[int64](t, k.db, `SELECT 'outbox'::regclass::oid::bigint`)
	system := harness.Query[string](t, k.db, "SELECT system_identifier::text FROM pg_control_system()")
	key := stored.BeforeSlotKey(system, k.slot, uint32(oid))
	var list []string
	held := make(map[string]bool) // keys with a value
	for _, r := range k.brokers.Read(t, k.topic) {
		word := "position"
		switch {
		case string(r.Key) == key:
			rec, err := stored.ParseBeforeSlot(r.Value)
			if err != nil {
				t.Fatal(err)
			}
			kind := stored.Promises
			if k.how == keeping["exactly_once"] {
				kind = stored.Checkpoints
			}
			if rec.Slot != k.slot || rec.OID != uint32(oid) || rec.Table != "public.outbox" || rec.Positions != kind || rec.Point == 0 || rec.Timeline != 1 {
				t.Errorf("the topic has %+v", rec)
			}
			word = string(rec.Before)
		case r.Value == nil && !held[string(r.Key)]:
			continue // of a transaction that only fences others
		case r.Value == nil:
			word = "forgotten"
		}
		held[string(r.Key)] = r.Value != nil
		if n := len(list); n == 0 || list[n-1] != word {
			list = append(list, word)
		}
	}
	return strings.Join(list, " ")
}

// A slot's position is ahead of every row from before it, so what is known of them is written
// around the first position: nobody takes what was known of an earlier slot for this one's.
func TestSetup_WritesWhatLiesBeforeTheSlot(t *testing.T) {
	t.Parallel()
	eachKeeper(t, func(t *testing.T, k *keeper) {
		k.setUp(t, "")
		want := "unknown position none"
		if got := k.told(t); got != want {
			t.Fatalf("the topic has %q, want %q", got, want)
		}
		invoke(t, k.env, "setup").want(t, exitOK, "ready", "")
		if got := k.told(t); got != want {
			t.Errorf("a setup that made nothing: the topic has %q, want %q", got, want)
		}
		// A gap that is accepted holds rows of which nobody knows.
		k.move(t, k.slot)
		k.acceptsGap(t, "forgot the checkpoint")
		want += " unknown forgotten"
		if got := k.told(t); got != want {
			t.Errorf("after a gap: the topic has %q, want %q", got, want)
		}
	})
}

// The table has rows before the slot is created, and the slot is created a second time later.
func TestSetup_KnowsNothingOfRowsFromBeforeTheSlot(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, keeping["detect_moved_slot"])
	k.setUp(t, "")
	k.insert(t, 1)
	k.db.Exec(t, "SELECT pg_drop_replication_slot($1)", k.slot)
	k.acceptsGap(t, "created slot")
	if got, want := k.told(t), "unknown position none unknown forgotten unknown position"; got != want {
		t.Errorf("the topic has %q, want %q", got, want)
	}
}

// An operator records that the rows from before the slot are delivered.
func TestSetup_TakesAWordForRowsFromBeforeTheSlot(t *testing.T) {
	t.Parallel()
	eachKeeper(t, func(t *testing.T, k *keeper) {
		k.setUp(t, "")
		k.insert(t, 1)
		k.db.Exec(t, "SELECT pg_drop_replication_slot($1)", k.slot)
		k.acceptsGap(t, "created slot")
		unknown := "unknown position none unknown forgotten unknown position"
		if got := k.told(t); got != unknown {
			t.Fatalf("the topic has %q, want %q", got, unknown)
		}
		declare := []string{"setup", "--before-slot", "delivered"}
		invoke(t, k.env, append(declare, "--dry-run")...).want(t, exitOK, "-- would write to topic "+k.topic+" that the rows of public.outbox from before slot "+k.slot+" are delivered", "")
		if got := k.told(t); got != unknown {
			t.Errorf("the dry run wrote: the topic has %q, want %q", got, unknown)
		}
		invoke(t, k.env, declare...).want(t, exitOK, "wrote to topic "+k.topic, "")
		if got, want := k.told(t), unknown+" declared"; got != want {
			t.Errorf("the topic has %q, want %q", got, want)
		}
		// Of a slot that is ahead of its checkpoint nobody can say so.
		k.move(t, k.slot)
		invoke(t, k.env, declare...).want(t, exitRefused, "", "slot")
		k.db.Exec(t, "SELECT pg_drop_replication_slot($1)", k.slot)
		invoke(t, k.env, declare...).want(t, exitRefused, "", "does not exist")
		if got, want := k.told(t), unknown+" declared"; got != want {
			t.Errorf("refused: the topic has %q, want %q", got, want)
		}
	})
}

func TestSetup_RefusesOtherWordsForRowsFromBeforeTheSlot(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, keeping["detect_moved_slot"])
	for _, args := range [][]string{
		{"--before-slot", "sent"}, {"--before-slot="}, {"--before-slot", "delivered", "--accept-gap"}, {"--before-slot", "delivered", "--create-table"},
		{"--before-slot", "delivered", "--column-list"},
	} {
		invoke(t, k.env, append([]string{"setup"}, args...)...).want(t, exitUsage, "", "--before-slot")
	}
	// A slot without a position is not the relay's.
	k.setUp(t, "")
	other := k.slot + "_by_hand"
	k.db.Exec(t, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", other)
	invoke(t, k.env, "setup", "--before-slot", "delivered", "--set", "postgres.slot="+other).want(t, exitRefused, "", "start the relay, which writes one")
}

// A relay that does not have a table passes over its rows, also over those that come after somebody said that
// its rows are delivered.
func TestSetup_DeclaresNothingOfATableThatTheRelayLacks(t *testing.T) {
	t.Parallel()
	eachKeeper(t, func(t *testing.T, k *keeper) {
		k.setUp(t, "")
		k.db.Exec(t, "CREATE TABLE other (LIKE outbox INCLUDING ALL)")
		k.db.Exec(t, "ALTER PUBLICATION "+harness.Query[string](t, k.db, "SELECT pubname::text FROM pg_publication")+" ADD TABLE other")
		k.runs(t, 1)
		k.configure(t, "outbox: [{table: public.outbox}, {table: public.other}]\n")
		declare := []string{"setup", "--before-slot", "delivered"}
		before := k.told(t)
		invoke(t, k.env, declare...).want(t, exitRefused, "", "did not have table public.other, and passes over its rows")
		if got := k.told(t); got != before {
			t.Errorf("refused: the topic has %q, want %q", got, before)
		}
		_, stop := k.streams(t)
		stop()
		released(t, k.db)
		invoke(t, k.env, declare...).want(t, exitOK, "that the rows of public.other from before slot "+k.slot+" are delivered", "")
	})
}
