package replication

import (
	"errors"
	"strings"
	"testing"
)

func TestShardName_IsReadBack(t *testing.T) {
	for _, base := range []string{"cdc_relay", "a", "x_4_1"} {
		for _, count := range []int{1, 2, 3, 10, MaxShards} {
			for i := range count {
				name := shardName(base, count, i)
				gotCount, gotIndex, ok := parseShardName(base, name)
				if !ok || gotCount != count || gotIndex != i {
					t.Fatalf("%s: %d of %d (%v), want %d of %d", name, gotIndex, gotCount, ok, i, count)
				}
			}
		}
	}
	if one := shardName("cdc_relay", 1, 0); one != "cdc_relay" {
		t.Errorf("one shard alone has the slot %q", one)
	}
	if longest := LongestShardName("s", 64); longest != "s_64_63" {
		t.Errorf("longest name is %q", longest)
	}
	for _, name := range []string{"other", "s_", "s_4", "s_4_", "s_4_4", "s_1_0", "s_65_0", "s_04_1", "s_4_01", "s_4_-1", "s_4_1_2", "s2_4_1", "s_+4_1", "s_4_x"} {
		if count, index, ok := parseShardName("s", name); ok {
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
		if want := shardName("s", 3, i); shard.Slot != want || shard.Publication != shardName("p", 3, i) || shard.Shard.Index != i {
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

// The texts are what servers of 15 and 18 print.
func TestFilter_KnowsItselfInTheServersWords(t *testing.T) {
	f := filter{hash: "hashtext", column: "key", count: 4, index: 1}
	varying := f
	varying.cast = "::text"
	quoted := f
	quoted.column = `Quo"ted (x)`
	for _, tt := range []struct {
		filter filter
		shown  string
		is     bool
	}{
		{f, `(((COALESCE(hashtext(key), 0) & 2147483647) % 4) = 1)`, true},
		{f, `(((COALESCE(pg_catalog.hashtext("key"), 0) & 2147483647) % 4) = 1)`, true},
		{varying, `(((COALESCE(hashtext((key)::text), 0) & 2147483647) % 4) = 1)`, true},
		{quoted, `(((COALESCE(hashtext("Quo""ted (x)"), 0) & 2147483647) % 4) = 1)`, true},
		{f, `(((COALESCE(hashtext((key)::text), 0) & 2147483647) % 4) = 1)`, false},
		{f, `(((COALESCE(hashtext(key), 0) & 2147483647) % 4) = 2)`, false},
		{f, `(((COALESCE(hashtext(key), 0) & 2147483647) % 8) = 1)`, false},
		{f, `(((COALESCE(hashtext(id), 0) & 2147483647) % 4) = 1)`, false},
		{f, `(((COALESCE(public.hashtext(key), 0) & 2147483647) % 4) = 1)`, false},
		{f, `((((COALESCE(hashtext(key), 0) & 2147483647) % 4) = 1) AND (id > 0))`, false},
		{f, `(COALESCE(hashtext(key), 0) & ((2147483647 % 4) = 1))`, false},
		{f, `(((COALESCE(hashtext("key), 0) & 2147483647) % 4) = 1)`, false},
		{f, ``, false},
	} {
		if tt.filter.is(tt.shown) != tt.is {
			t.Errorf("%s: want %v for %+v", tt.shown, tt.is, tt.filter)
		}
	}
}

func FuzzFilterTokens(f *testing.F) {
	f.Add(`(((COALESCE(hashtext((key)::text), 0) & 2147483647) % 4) = 1)`)
	f.Add(`"a""b".c`)
	f.Fuzz(func(t *testing.T, text string) {
		tokens, ok := filterTokens(text)
		if ok && len(tokens) > len(text) {
			t.Errorf("%d tokens of %d bytes", len(tokens), len(text))
		}
	})
}

func FuzzShardName(f *testing.F) {
	f.Add("s", "s_4_3")
	f.Add("s_2", "s_2_2_1")
	f.Add("", "_02_1")
	f.Fuzz(func(t *testing.T, base, name string) {
		count, index, ok := parseShardName(base, name)
		if ok && (index < 0 || index >= count || count > 1 && shardName(base, count, index) != name || count == 1 && name != base) {
			t.Errorf("%q of %q is shard %d of %d", name, base, index, count)
		}
	})
}

func TestFilterOf_RefusesWhatNoFilterCanSee(t *testing.T) {
	rel := &Relation{Namespace: "public", Name: "outbox", Columns: []Column{
		{Name: "id", Type: 20, TypeName: "int8"}, {Name: "body", Type: 3802, TypeName: "jsonb"}, {Name: "mail", Type: 20001, TypeName: "citext"}, {Name: "raw", Type: 17, TypeName: "bytea"},
	}}
	broken := errors.New("the mapping does not fit")
	for key, want := range map[string]string{
		"id":            "",
		"body":          "jsonb) has no hash function that",
		"mail":          "not the server's own",
		"raw":           "before PostgreSQL 18",
		"body#/orderId": "which is no column of its own",
		"":              "which is no column of its own",
		"!":             broken.Error(),
	} {
		cfg := Config{Tables: []Table{{"public", "other"}, {"public", "outbox"}}, Shard: Shard{Count: 2, Key: func(rel *Relation) (string, error) {
			if rel.Table != 1 {
				t.Errorf("asked for table %d", rel.Table)
			}
			if key == "!" {
				return "", broken
			}
			return key, nil
		}}}
		f, err := filterOf(cfg, 150000, rel)
		switch {
		case want == "" && (err != nil || f.sql() != `(COALESCE(pg_catalog.hashint8("id"), 0) & 2147483647) % 2 = 0`):
			t.Errorf("%q: %+v, %v", key, f, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v, want %q", key, err, want)
		}
	}
}
