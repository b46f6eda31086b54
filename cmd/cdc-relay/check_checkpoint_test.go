package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/explain"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/relay/checkpoints"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/twmb/franz-go/pkg/kgo"
)

func (c checked) has(check string) bool {
	return slices.ContainsFunc(c.Findings, func(f advice.Finding) bool { return f.Check == check })
}

// check says of slot and checkpoint what run would, and writes nothing to say it.
func TestCheck_ComparesTheSlotWithItsCheckpoint(t *testing.T) {
	t.Parallel()
	eachKeeper(t, func(t *testing.T, k *keeper) {
		k.setUp(t, "")
		k.runs(t, 3)
		ends, before := k.held(t)
		last := ends[len(ends)-1]
		k.compares(t, advice.OK, fmt.Sprintf("slot %q is at %s", k.slot, k.confirmed(t, k.slot)), k.topic, "at "+last)

		k.move(t, k.slot)
		moved := k.confirmed(t, k.slot)
		said := fmt.Sprintf("the slot is at %s, and the checkpoint in topic %q at %s", moved, k.topic, last)
		k.compares(t, advice.Fail, said, "setup --accept-gap")
		if checkUp(t, explain.Without(k.env, []string{k.how, "CDC_RELAY_RELAY_CHECKPOINT_TOPIC=" + k.topic})).has("slot.checkpoint") {
			t.Error("a configuration that keeps no positions is told of them")
		}
		k.untouched(t, before, "check wrote something")
		k.refuses(t, said)

		k.acceptsGap(t, "forgot the checkpoint")
		k.compares(t, advice.Warn, moved, "has no checkpoint of it", "start the relay")
		k.runs(t, 2)
		k.compares(t, advice.OK, k.slot)
	})
}

// A relay at work moves its checkpoint before its slot, and check does not take the one
// for behind the other, nor the relay's open transactions for all there is.
func TestCheck_OfARelayAtWorkSeesNoGap(t *testing.T) {
	t.Parallel()
	eachKeeper(t, func(t *testing.T, k *keeper) {
		k.setUp(t, "")
		_, stop := k.streams(t)
		for range 5 {
			k.insert(t, 200)
			k.compares(t, advice.OK, k.slot)
		}
		stop()
	})
}

func TestCheck_ACheckpointTopicThatCannotBeRead(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, keeping["detect_moved_slot"])
	k.setUp(t, "")
	if _, err := k.brokers.Admin(t).DeleteTopics(t.Context(), k.topic); err != nil {
		t.Fatal(err)
	}
	got := checkUp(t, k.env)
	got.want(t, "slot.checkpoint", advice.Warn, "could not be compared", k.topic, "does not exist", "cdc-relay setup")
	got.want(t, "checkpoint.topic", advice.Fail, k.topic)
	k.brokers.Fake.TakeAway(0)
	defer k.brokers.Fake.Return()
	k.compares(t, advice.Warn, "kafka.connection")
}

func TestCheck_ComparesTheSlotOfEachShard(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, keeping["detect_moved_slot"])
	first, second := k.divide(t)
	k.setUp(t, "")
	got := checkUp(t, k.env)
	for _, slot := range []string{first, second} {
		got.want(t, "slot.checkpoint", advice.OK, slot, k.topic)
	}
	k.move(t, second)
	got = checkUp(t, k.env)
	got.want(t, "slot.checkpoint", advice.OK, first)
	got.want(t, "slot.checkpoint", advice.Fail, second, "--accept-gap")
}

// Between setup and the first run somebody moves the slot.
func TestSetup_WritesWhereTheSlotBegins(t *testing.T) {
	t.Parallel()
	eachKeeper(t, func(t *testing.T, k *keeper) {
		invoke(t, k.env, "setup", "--create-table", "--dry-run").want(t, exitOK, "would be written to topic "+k.topic, "")
		k.setUp(t, "wrote where slot "+k.slot+" begins")
		begins := k.confirmed(t, k.slot)
		ends, before := k.held(t)
		if len(ends) != 1 || ends[0] != begins {
			t.Fatalf("the topic has %q, want %s", ends, begins)
		}
		k.compares(t, advice.OK, begins)
		invoke(t, k.env, "setup").want(t, exitOK, "ready", "")
		k.untouched(t, before, "a setup that made nothing wrote a checkpoint")

		k.move(t, k.slot)
		k.compares(t, advice.Fail, begins, k.confirmed(t, k.slot))
		k.refuses(t, "the checkpoint in topic \""+k.topic+"\" at "+begins)
		k.acceptsGap(t, "forgot the checkpoint")
		k.runs(t, 4)
		k.delivered(t, 4) // those from behind the gap
	})
}

// What is written does not keep a relay from the rows after it.
func TestSetup_WhereTheSlotBeginsNothingIsLeftOut(t *testing.T) {
	t.Parallel()
	eachKeeper(t, func(t *testing.T, k *keeper) {
		k.setUp(t, "wrote where slot")
		k.runs(t, 7)
		k.delivered(t, 7)
		if ends, _ := k.held(t); len(ends) < 2 {
			t.Errorf("the relay wrote nothing: %q", ends)
		}
	})
}

// Between the checkpoint of a slot that was dropped and a new slot of its name there may be rows that
// nobody sends. Setup makes no such slot: a relay would refuse it, and it would hold back WAL.
func TestSetup_MakesNoSlotBehindAnOldCheckpoint(t *testing.T) {
	t.Parallel()
	eachKeeper(t, func(t *testing.T, k *keeper) {
		k.setUp(t, "")
		k.runs(t, 3)
		k.insert(t, 1) // which is lost with the slot
		k.db.Exec(t, "SELECT pg_drop_replication_slot($1)", k.slot)
		ends, _ := k.held(t)
		old := ends[len(ends)-1]
		for _, args := range [][]string{{"setup"}, {"setup", "--dry-run"}} {
			got := invoke(t, k.env, args...)
			for _, says := range []string{"slot " + k.slot + " is not created", "would refuse", "at " + old, "still has the checkpoint of an earlier slot of this name (the slot is at ", "Then run `cdc-relay setup --accept-gap`"} {
				got.want(t, exitRefused, "", says)
			}
			if strings.Contains(got.stderr, "who moved the slot") || strings.Contains(got.stderr, "checkpoint slot") {
				t.Errorf("the slot was dropped, and nobody moved it:\n%s", got.stderr)
			}
			if strings.Contains(got.stdout, "ready") || strings.Contains(got.stdout, "created") {
				t.Errorf("setup says it made something, or is ready:\n%s", got.stdout)
			}
			if n := harness.Query[int64](t, k.db, "SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1", k.slot); n != 0 {
				t.Errorf("%v made a slot that run would refuse", args)
			}
			if now, _ := k.held(t); !slices.Equal(now, ends) {
				t.Errorf("setup wrote over the checkpoint of the old slot: %q, and before %q", now, ends)
			}
		}
		k.acceptsGap(t, "forgot the checkpoint").want(t, exitOK, "wrote where slot "+k.slot+" begins", "")
		k.compares(t, advice.OK, k.confirmed(t, k.slot))
		k.runs(t, 1)
	})
}

// Of several slots, those that are there stay as they are.
func TestSetup_NamesEachSlotThatItDoesNotMake(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, keeping["detect_moved_slot"])
	first, second := k.divide(t)
	k.setUp(t, "")
	k.insert(t, 1)
	k.db.Exec(t, "SELECT pg_drop_replication_slot($1)", second)
	got := invoke(t, k.env, "setup")
	got.want(t, exitRefused, "", "slot "+second+" is not created")
	if strings.Contains(got.stderr, "slot "+first+" is") {
		t.Errorf("slot %s has no gap:\n%s", first, got.stderr)
	}
}

// lineHook acts when a line is written.
type lineHook struct {
	output
	line string
	act  func()
	seen bool
}

func (h *lineHook) Write(p []byte) (int, error) {
	if !h.seen && strings.Contains(string(p), h.line) {
		h.seen = true
		h.act()
	}
	return h.output.Write(p)
}

func TestSetup_SaysWhenItCannotWriteWhereTheSlotBegins(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, keeping["detect_moved_slot"])
	stdout, stderr := &lineHook{line: "created slot " + k.slot, act: func() { k.brokers.Fake.TakeAway(0) }}, new(output)
	run(t.Context(), []string{"setup", "--create-table"}, process{env: k.env, stdout: stdout, stderr: stderr})
	if !stdout.seen || !strings.Contains(stderr.String(), "could not be written to topic") || !strings.Contains(stderr.String(), k.confirmed(t, k.slot)) {
		t.Errorf("standard output:\n%sstandard error:\n%s", stdout.String(), stderr.String())
	}
	k.brokers.Fake.Return()
	invoke(t, k.env, "setup").want(t, exitOK, "ready", "")
	k.compares(t, advice.Warn, "has no checkpoint of it")
}

// A relay that has the slot already is not shut out, and its checkpoint stands.
func TestSetup_ARelayThatWasQuickerIsLeftAlone(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, keeping["exactly_once"])
	k.setUp(t, "")
	k.runs(t, 3)
	ends, _ := k.held(t)
	cfg, err := (&app{process: process{env: k.env}}).load()
	if err != nil {
		t.Fatal(err)
	}
	standing, err := watch.ReadPositions(t.Context(), cfg.Relay().Replication)
	if err != nil {
		t.Fatal(err)
	}
	rec := stored.Position{System: standing.Origin.SystemID, Timeline: 1, Slot: k.slot, End: 1}
	commit := func() error { return checkpoints.WriteFirst(t.Context(), cfg.Relay().Replication, cfg.Relay(), &rec) }
	if err := commit(); !errors.Is(err, checkpoints.ErrTaken) {
		t.Errorf("over the checkpoint of a relay: %v", err)
	}

	url, stop := k.streams(t)
	if err := commit(); !errors.Is(err, checkpoints.ErrTaken) {
		t.Errorf("beside a relay: %v", err)
	}
	k.insert(t, 2)
	k.published(t, url, 2)
	stop()
	now, _ := k.held(t)
	if slices.Contains(now[len(ends):], "0/1") {
		t.Error("setup wrote over a relay's checkpoint")
	}
}

// An open transaction hides what follows it, also what was committed: that is waited
// for, and never taken for the newest.
func TestCheck_AnOpenTransactionIsWaitedFor(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, keeping["exactly_once"])
	k.setUp(t, "")
	other, err := kgo.NewClient(kgo.SeedBrokers(k.brokers.Addrs...), kgo.TransactionalID("somebody"), kgo.TransactionTimeout(10*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := other.ProduceSync(t.Context(), &kgo.Record{Topic: k.topic, Key: []byte("another")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	k.compares(t, advice.Warn, "could not be compared", "an open transaction hides what follows; wait until the brokers end it")
	if err := other.EndTransaction(context.WithoutCancel(t.Context()), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	k.compares(t, advice.OK, k.slot)
}
