package records

import (
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/deadletter/waiting"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
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

// So do those of a slot that is gone, of the tables of the configuration.
func TestFormer_AreTheLettersOfASlotThatIsGone(t *testing.T) {
	there := &catalog.Sources{System: "7", Database: "5", Slots: []string{"5/slot", "5/other", "6/moved"}, Tables: []uint32{16384}}
	for _, tt := range []struct {
		source string
		oid    uint32
		known  bool
		want   bool
	}{
		{"7/5/gone", 16384, true, true}, {"7/5/moved", 16384, true, true}, {"7/5/other", 16384, true, false}, {"7/6/gone", 16384, true, false},
		{"8/5/gone", 16384, true, false}, {"7/5/gone", 16385, true, false}, {"7/5/gone", 0, false, false}, {"7/gone", 16384, true, false},
	} {
		if got := former(there, &deadletter.Letter{Source: tt.source, Of: deadletter.Table{Known: tt.known, OID: tt.oid}}); got != tt.want {
			t.Errorf("%+v: %t", tt, got)
		}
	}
}

// Letters are selected for the table as it is now, among the others of the configuration.
func TestTable_SelectsItsLettersByWhatItIsNow(t *testing.T) {
	id := record.IDColumn{Name: "id", Type: 2950}
	table := Table{Reader: newReader(1), Table: wal.Table{Schema: "public", Name: "outbox"}, OID: 7, ID: id}
	got := table.letters()
	if got.Name != table.Table || got.OID != 7 || got.ID != id || len(got.Others) != 2 || !slices.Equal(got.Messages, []string{"events"}) {
		t.Errorf("%+v", got)
	}
}

// Whoever reads a plan learns why all rows are held, and what ends it.
func TestTable_SaysWhyAllRowsAreHeld(t *testing.T) {
	table := &Table{ID: record.IDColumn{Name: "id", Type: 2950}}
	for _, tt := range []struct {
		table *Table
		held  waiting.Held
		want  []string
	}{
		{table, waiting.Held{Letters: 3}, nil},
		{&Table{}, waiting.Held{}, nil},
		{&Table{}, waiting.Held{Letters: 1, Earlier: 1}, []string{"a dead letter waits that may be of any row, as the event id of the table is not the text of one column: all rows are held back until its pipeline has sent or discarded it (`cdc-relay deadletter redrive`)"}},
		{table, waiting.Held{Letters: 3, Former: 2, FormerSource: "7/5/gone"}, []string{"2 dead letters of 7/5/gone, whose slot does not exist, wait: send or discard them with `cdc-relay deadletter redrive --source 7/5/gone`"}},
		{table, waiting.Held{Letters: 3, Stripped: 2, Earlier: 1}, []string{
			"2 dead letters wait that may be of any row, as they were too large for their event ids: all rows are held back until their pipeline has sent or discarded them (`cdc-relay deadletter redrive`)",
			"a dead letter waits that may be of any row, as an earlier version wrote it, without its table's OID and the column of its event id: all rows are held back until its pipeline has sent or discarded it (`cdc-relay deadletter redrive`)",
		}},
		{table, waiting.Held{Letters: 1, Other: 1, Example: record.IDColumn{Name: "key", Type: 25}}, []string{"a dead letter waits that may be of any row, as its event id is of column \"key\", and not of \"id\" as the mapping has it now: all rows are held back until its pipeline has sent or discarded it (`cdc-relay deadletter redrive`)"}},
		{table, waiting.Held{Letters: 1, Other: 1, Example: record.IDColumn{Name: "id", Type: 20}}, []string{"a dead letter waits that may be of any row, as column \"id\" had another type then: all rows are held back until its pipeline has sent or discarded it (`cdc-relay deadletter redrive`)"}},
		{table, waiting.Held{Letters: 2, Other: 2}, []string{"2 dead letters wait that may be of any row, as their event ids are not the text of one column: all rows are held back until their pipeline has sent or discarded them (`cdc-relay deadletter redrive`)"}},
	} {
		if got := tt.table.Unnamed(&tt.held); !slices.Equal(got, tt.want) {
			t.Errorf("%+v:\n%q, want\n%q", tt.held, got, tt.want)
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
	if !k.inOrder() {
		t.Error("one partition has an order")
	}
	k.read(&topics.Message{Key: []byte("intent of a for 7/slot"), Value: []byte("5"), Partition: 1})
	if k.inOrder() {
		t.Error("two partitions have none")
	}
	k.read(nil) // the topic was made again
	if k.get("intent of a for 7/slot") != nil || len(k.values) != 0 || !k.inOrder() {
		t.Errorf("%q", k.values)
	}
}
