package wal

import (
	"strings"
	"testing"
)

func TestParseTable_ReadsNamesLikeSQL(t *testing.T) {
	for text, want := range map[string]Table{
		"outbox":                   {"public", "outbox"},
		"public.outbox":            {"public", "outbox"},
		"Public.OutBox":            {"public", "outbox"},
		`public."OutboxEvent"`:     {"public", "OutboxEvent"},
		`"OutboxEvent"`:            {"public", "OutboxEvent"},
		`"my app"."out.box"`:       {"my app", "out.box"},
		`"a""b".c`:                 {`a"b`, "c"},
		`"we""ird'; DROP TABLE x"`: {"public", `we"ird'; DROP TABLE x`},
		"größe":                    {"public", "größe"},
		"_a$1":                     {"public", "_a$1"},
		strings.Repeat("x", 63):    {"public", strings.Repeat("x", 63)},
	} {
		got, err := ParseTable(text)
		if err != nil || got != want {
			t.Errorf("%s: got %+v, %v", text, got, err)
		}
		back, err := ParseTable(got.String())
		if err != nil || back != got {
			t.Errorf("%s: its String %s reads back as %+v, %v", text, got, back, err)
		}
	}
}

func TestParseTable_RefusesWhatIsNoName(t *testing.T) {
	for _, text := range []string{
		"", ".", "a.", ".a", "a.b.c", `""`, `"a`, `"a"b`, `a"b"`, "a b", "out-box", "1a", "$a", "a;b", "a.b.", "\x00", "\"\x00\"", "\xff", "\"\xff\"", " a", strings.Repeat("x", 64),
	} {
		if got, err := ParseTable(text); err == nil {
			t.Errorf("%q is taken for %+v", text, got)
		}
	}
}

func FuzzParseTable(f *testing.F) {
	for _, seed := range []string{"outbox", "public.outbox", `public."OutboxEvent"`, `"a""b"."c.d"`, `"`, "a.b.c", "größe", "1a", "\xff\xfe"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		table, err := ParseTable(text)
		if err != nil {
			return
		}
		if table.Schema == "" || table.Name == "" || len(table.Schema) > 63 || len(table.Name) > 63 {
			t.Fatalf("%q: parts of impossible length: %+v", text, table)
		}
		for _, written := range []string{table.String(), table.SQL()} {
			if back, err := ParseTable(written); err != nil || back != table {
				t.Fatalf("%q: %s reads back as %+v, %v, not %+v", text, written, back, err, table)
			}
		}
	})
}
