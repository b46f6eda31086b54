package records

import (
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink/topics"
)

func newReader(shards int) *Reader {
	cfg := postgres.Config{
		Slot: "slot", Publication: "slot", Tables: []wal.Table{{Schema: "public", Name: "outbox"}, {Schema: "public", Name: "other"}}, Messages: []string{"events"},
		Shard: postgres.Shard{Count: shards, Slot: "slot", Publication: "slot"},
	}.OfShard(0)
	return &Reader{settings: relay.Config{Replication: cfg}, others: []string{"elsewhere"}, keys: newKeys()}
}

// Letters of the slots that rows have to pass hold rows back, and no others: they may be many.
func TestReader_KnowsTheLettersOfItsSlots(t *testing.T) {
	for _, tt := range []struct {
		shards int
		source string
		own    bool
	}{
		{1, "7/5/slot", true}, {1, "8/5/slot", false}, {1, "7/6/slot", false}, {1, "7/5/slot2", false}, {1, "7/5/elsewhere", true}, {1, "7/6/elsewhere", false},
		{2, "7/5/slot_2_1", true}, {2, "7/5/slot_3_1", true}, {2, "7/5/slot_2_2", false}, {1, "7/slot", false},
	} {
		if got := newReader(tt.shards).own(wal.Origin{SystemID: "7", Database: "5"}, tt.source); got != tt.own {
			t.Errorf("%d shards, %s: %t", tt.shards, tt.source, got)
		}
	}
	if got := newReader(2).Slots(); !slices.Equal(got, []string{"slot_2_0", "slot_2_1"}) {
		t.Errorf("slots %v", got)
	}
}

// A letter of a table that nobody configured may be of this one, under an earlier name.
func TestTable_CountsLettersOfItsEarlierNames(t *testing.T) {
	table := Table{Reader: newReader(1), Table: wal.Table{Schema: "public", Name: "outbox"}}
	for name, mine := range map[string]bool{"public.outbox": true, "public.old_outbox": true, "public.other": false, "message.events": false, "message.others": true} {
		if got := table.mine(name); got != mine {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestKeys_AreTheNewestOfATopic(t *testing.T) {
	k := newKeys()
	read := func(key, value string) {
		m := &topics.Message{Key: []byte(key)}
		if value != "" {
			m.Value = []byte(value)
		}
		k.read(m)
	}
	read("intent of a for 7/slot", "1")
	read("intent of a for 7/slot", "2")
	read("intent of b for 7/slot", "3")
	read("intent of b for 7/slot", "")
	read("intent of a for 7/slots", "4")
	if got := k.ending(" for 7/slot"); len(got) != 1 || string(got["intent of a for 7/slot"]) != "2" {
		t.Errorf("%q", got)
	}
	k.read(nil) // the topic was made again
	if k.get("intent of a for 7/slot") != nil || len(k.values) != 0 {
		t.Errorf("%q", k.values)
	}
}
