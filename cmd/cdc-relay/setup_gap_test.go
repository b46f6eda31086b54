package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/twmb/franz-go/pkg/kgo"
)

// To accept the gap of one shard took the checkpoints of all, and a slot of another
// that somebody moved before the next run was streamed from without a word.
func TestSetup_AcceptsTheGapOfTheSlotThatHasOne(t *testing.T) {
	t.Parallel()
	eachKeeper(t, func(t *testing.T, k *keeper) {
		first, second := k.divide(t)
		k.setUp(t, "wrote where slot "+second+" begins")
		k.move(t, second)

		accepted := k.acceptsGap(t, "slot "+first+" is at "+k.confirmed(t, first)+", and not ahead of its checkpoint")
		for _, line := range strings.Split(accepted.stdout, "\n") {
			if strings.Contains(line, "forgot the checkpoint") != strings.Contains(line, "the checkpoint of slot "+second+" (") || strings.Contains(line, "forgot") && strings.Contains(line, first) {
				t.Errorf("setup says %q", line)
			}
		}
		got := checkUp(t, k.env)
		got.want(t, "slot.checkpoint", advice.OK, fmt.Sprintf("slot %q", first))
		got.want(t, "slot.checkpoint", advice.Warn, second, "has no checkpoint of it")

		k.move(t, first)
		k.compares(t, advice.Fail, first, "--accept-gap")
		k.refuses(t, fmt.Sprintf("slot %q", first))
	})
}

// What cannot be read is in the way of every run, and no gap can be told from it.
func TestSetup_AcceptsASlotWhoseCheckpointCannotBeRead(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, keeping["detect_moved_slot"])
	k.setUp(t, "wrote where slot "+k.slot+" begins")
	system := harness.Query[string](t, k.db, "SELECT system_identifier::text FROM pg_control_system()")
	k.writes(t, "intent of somebody for "+system+"/"+k.slot, "{")
	k.refuses(t, "read checkpoint")
	k.acceptsGap(t, fmt.Sprintf(`forgot the checkpoint of slot %s (key "intent of somebody for %s/%[1]s" of the checkpoint topic): the next run begins at the slot's position`, k.slot, system))
	k.runs(t, 1)
}

// What --dry-run says is what comes of it without, and it touches nothing.
func TestSetup_SaysWhichCheckpointsItWouldForget(t *testing.T) {
	t.Parallel()
	eachKeeper(t, func(t *testing.T, k *keeper) {
		would := func(says string) {
			t.Helper()
			invoke(t, k.env, "setup", "--create-table", "--accept-gap", "--dry-run").want(t, exitOK, says, "")
		}
		would("there is no checkpoint of slot " + k.slot) // nor its topic
		k.setUp(t, "wrote where slot "+k.slot+" begins")
		would("not ahead of its checkpoint")
		k.move(t, k.slot)
		_, before := k.held(t)
		would("would forget the checkpoint of slot " + k.slot + " (key ")
		k.untouched(t, before, "a dry run wrote something")
		k.db.Exec(t, "SELECT pg_drop_replication_slot($1)", k.slot)
		would("would forget the checkpoint of ") // and make the slot
		k.untouched(t, before, "a dry run wrote something")
		k.acceptsGap(t, "forgot the checkpoint of ")
	})
}

// Brokers that do not answer any more are not waited for without end.
func TestSetup_ToForgetACheckpointTakesNoLongerThanItMay(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, keeping["detect_moved_slot"])
	k.setUp(t, "wrote where slot "+k.slot+" begins")
	k.move(t, k.slot)
	var out output
	a := &app{process: process{env: k.env, stdout: &out, stderr: &out}}
	cfg, err := a.load()
	if err != nil {
		t.Fatal(err)
	}
	arrived, release := k.holdProduce(1)
	ctx, expire := context.WithCancelCause(t.Context())
	go func() { <-arrived; expire(context.DeadlineExceeded) }()
	err = a.newSetup(cfg.Relay()).AcceptGap(ctx, false)
	release()
	if exitCode(err) != exitRefused || !strings.Contains(err.Error(), "write to checkpoint topic") || !strings.Contains(err.Error(), "repeat it") {
		t.Errorf("%v, exit code %d; said %q", err, exitCode(err), out.String())
	}
	k.acceptsGap(t, "") // what was on its way may have come through
	k.runs(t, 1)
}

// writes puts a record into the checkpoint topic.
func (k *keeper) writes(t *testing.T, key, value string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(k.brokers.Addrs...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: k.topic, Key: []byte(key), Value: []byte(value)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}
