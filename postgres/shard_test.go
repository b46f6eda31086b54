package postgres

import (
	"testing"
)

func TestShardName_IsReadBack(t *testing.T) {
	for _, base := range []string{"cdc_relay", "a", "x_4_1"} {
		for _, count := range []int{1, 2, 3, 10, MaxShards} {
			for i := range count {
				name := ShardName(base, count, i)
				gotCount, gotIndex, ok := ParseShardName(base, name)
				if !ok || gotCount != count || gotIndex != i {
					t.Fatalf("%s: %d of %d (%v), want %d of %d", name, gotIndex, gotCount, ok, i, count)
				}
			}
		}
	}
	if one := ShardName("cdc_relay", 1, 0); one != "cdc_relay" {
		t.Errorf("one shard alone has the slot %q", one)
	}
	if longest := LongestShardName("s", 64); longest != "s_64_63" {
		t.Errorf("longest name is %q", longest)
	}
	for _, name := range []string{"other", "s_", "s_4", "s_4_", "s_4_4", "s_1_0", "s_65_0", "s_04_1", "s_4_01", "s_4_-1", "s_4_1_2", "s2_4_1", "s_+4_1", "s_4_x"} {
		if count, index, ok := ParseShardName("s", name); ok {
			t.Errorf("%q is taken for shard %d of %d", name, index, count)
		}
	}
}

func TestOfShard_LeavesOneShardAsItIs(t *testing.T) {
	cfg := Config{Slot: "s", Publication: "p", Messages: []string{"m"}, Shard: Shard{Count: 1, Slot: "s", Publication: "p"}}
	if got := cfg.OfShard(0); got.Slot != "s" || got.Publication != "p" || len(got.Messages) != 1 || len(cfg.Shards()) != 1 {
		t.Errorf("%+v", got)
	}
	cfg.Shard.Count = 3
	for i, shard := range cfg.Shards() {
		if want := ShardName("s", 3, i); shard.Slot != want || shard.Publication != ShardName("p", 3, i) || shard.Shard.Index != i {
			t.Errorf("shard %d: %+v", i, shard)
		}
		if messages := len(shard.Messages); messages == 1 != (i == 0) {
			t.Errorf("shard %d takes %d kinds of messages", i, messages)
		}
		if again := shard.OfShard(i); again.Slot != shard.Slot {
			t.Errorf("the suffix is added twice: %q", again.Slot)
		}
	}
}

func FuzzShardName(f *testing.F) {
	f.Add("s", "s_4_3")
	f.Add("s_2", "s_2_2_1")
	f.Add("", "_02_1")
	f.Fuzz(func(t *testing.T, base, name string) {
		count, index, ok := ParseShardName(base, name)
		if ok && (index < 0 || index >= count || count > 1 && ShardName(base, count, index) != name || count == 1 && name != base) {
			t.Errorf("%q of %q is shard %d of %d", name, base, index, count)
		}
	})
}
