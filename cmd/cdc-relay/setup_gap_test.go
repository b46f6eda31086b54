package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/twmb/franz-go/pkg/kgo"
)

// To accept the gap of one shard took the checkpoints of all, and a slot of another
// that somebody moved before the next run was streamed from without a word.
func TestSetup_AcceptsTheGapOfTheSlotThatHasOne(t *testing.T) {
	t.Parallel()
	for name, how := range keeping {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, base, _ := keeper(t, how)
			if harness.Query[int64](t, l.db, "SELECT current_setting('server_version_num')::bigint") < 150000 {
				t.Skip("row filters in publications came with PostgreSQL 15")
			}
			l.env = append(l.env, "CDC_RELAY_POSTGRES_SHARDS=2")
			first, second := base+"_2_0", base+"_2_1"
			invoke(t, l.env, "setup", "--create-table").want(t, exitOK, "wrote where slot "+second+" begins", "")
			l.move(t, second)

			accepted := invoke(t, l.env, "setup", "--accept-gap")
			accepted.want(t, exitOK, "slot "+first+" is at "+l.confirmed(t, first)+", and not ahead of its checkpoint", "")
			for _, line := range strings.Split(accepted.stdout, "\n") {
				if strings.Contains(line, "forgot the checkpoint") != strings.Contains(line, second+": the next run") || strings.Contains(line, "forgot") && strings.Contains(line, first) {
					t.Errorf("setup says %q", line)
				}
			}
			got := checkUp(t, l.env)
			got.want(t, "slot.checkpoint", levelOK, fmt.Sprintf("slot %q", first))
			got.want(t, "slot.checkpoint", levelWarn, second, "has no checkpoint of it")

			l.move(t, first)
			checkUp(t, l.env).want(t, "slot.checkpoint", levelFail, first, "--accept-gap")
			l.refuses(t, fmt.Sprintf("slot %q", first))
		})
	}
}

// What cannot be read is in the way of every run, and no gap can be told from it.
func TestSetup_AcceptsASlotWhoseCheckpointCannotBeRead(t *testing.T) {
	t.Parallel()
	l, slot, topic := keeper(t, keeping["detect_moved_slot"])
	invoke(t, l.env, "setup", "--create-table").want(t, exitOK, "wrote where slot "+slot+" begins", "")
	system := harness.Query[string](t, l.db, "SELECT system_identifier::text FROM pg_control_system()")
	l.writes(t, topic, "intent of somebody for "+system+"/"+slot, "{")
	l.refuses(t, "read checkpoint")
	invoke(t, l.env, "setup", "--accept-gap").want(t, exitOK, "forgot the checkpoint of intent of somebody", "")
	l.runs(t, 1)
}

// writes puts a record into a topic.
func (l *life) writes(t *testing.T, topic, key, value string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(l.brokers.Addrs...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(value)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// A relay waits for the new primary, and the checkpoint is of that one's slot.
func TestSetup_AcceptsNoGapOnAnOldPrimary(t *testing.T) {
	origin := replication.Origin{SystemID: "7", Timeline: 1}
	rec := checkpoint.Record{System: "7", Timeline: 2, Slot: "s", Publication: "p", End: 300}
	cfg := relay.Config{DetectMovedSlot: true, Replication: replication.Config{Slot: "s", Publication: "p"}}
	known := map[string][]byte{checkpoint.IntentKey("somebody", "7", "s"): rec.Encode()}
	if end, err := compared(t.Context(), cfg, origin, 310, known); replication.Reason(err) != relay.ReasonStalePrimary {
		t.Errorf("connected up to %s, %v", end, err)
	}
}
