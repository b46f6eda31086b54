package golden_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/parity/golden"
	"github.com/twmb/franz-go/pkg/kgo"
)

func cases(t *testing.T) []*golden.Case {
	t.Helper()
	all, err := golden.LoadAll(filepath.Join("..", "testdata"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// What is read and written again is the same file, so that a capture changes no
// more than what Debezium changed.
func TestRecord_LineIsWhatWasRead(t *testing.T) {
	for _, c := range cases(t) {
		files, err := golden.ReadFiles(c.Path)
		if err != nil {
			t.Fatal(err)
		}
		var written strings.Builder
		for _, r := range c.Records {
			written.WriteString(r.Line())
		}
		if written.String() != string(files[golden.Expected]) {
			t.Errorf("%s: expected.jsonl is written differently", c.Name)
		}
	}
}

// A cause that no rule knows would let any refusal pass.
func TestUnnamed_KnowsEveryCause(t *testing.T) {
	for _, c := range cases(t) {
		if c.Error == "" {
			continue
		}
		if missing, known := golden.Unnamed(c.Error, ""); !known || missing == "" {
			t.Errorf("%s: no rule for: %s", c.Name, c.Error)
		}
	}
}

func TestUnnamed(t *testing.T) {
	for _, tt := range []struct{ debezium, ours, missing string }{
		{"DataException: nope is not a valid field name", `table public.outbox has no column "nope"`, ""},
		{"DataException: nope is not a valid field name", `table public.outbox has no column "other"`, `"nope"`},
		{"DataException: nope is not a valid field name", "nope", `"column|field"`},
		{"Caused by: X: Invalid topics: [a\nb]", `topic "a\nb" has a character that Kafka does not allow`, ""},
		{"something new", "anything", ""},
	} {
		if missing, _ := golden.Unnamed(tt.debezium, tt.ours); missing != tt.missing {
			t.Errorf("%s / %s: missing %s, want %s", tt.debezium, tt.ours, missing, tt.missing)
		}
	}
}

func text(s string) golden.Bytes { return golden.Bytes{Raw: []byte(s)} }

func record(key, value string, volatile ...string) golden.Record {
	return golden.Record{
		Topic: "t", Partitions: 2, Key: text(key), Value: text(value), Headers: []golden.Header{{Name: "id", Value: text("1")}, {Name: "id", Value: text("2")}},
		Timestamp: 7, TimestampType: "CreateTime", Volatile: volatile,
	}
}

func TestCompare_FindsEveryDifference(t *testing.T) {
	null := golden.Bytes{Null: true}
	for name, change := range map[string]func(*golden.Record){
		"topic":          func(r *golden.Record) { r.Topic = "u" },
		"partitions":     func(r *golden.Record) { r.Partitions = 3 },
		"partition":      func(r *golden.Record) { r.Partition = 1 },
		"key":            func(r *golden.Record) { r.Key = text("other") },
		"key is null":    func(r *golden.Record) { r.Key = null },
		"value":          func(r *golden.Record) { r.Value = text("") },
		"value is null":  func(r *golden.Record) { r.Value = null },
		"value is word":  func(r *golden.Record) { r.Value = text("null") },
		"header order":   func(r *golden.Record) { slices.Reverse(r.Headers) },
		"header missing": func(r *golden.Record) { r.Headers = r.Headers[:1] },
		"header name":    func(r *golden.Record) { r.Headers[1].Name = "Id" },
		"header null":    func(r *golden.Record) { r.Headers[1].Value = null },
		"timestamp":      func(r *golden.Record) { r.Timestamp = 8 },
		"timestamp type": func(r *golden.Record) { r.TimestampType = "LogAppendTime" },
	} {
		got := record("k", "v")
		change(&got)
		if golden.Compare([]golden.Record{record("k", "v")}, []golden.Record{got}) == "" {
			t.Errorf("%s: no difference found", name)
		}
	}
	same := []golden.Record{record("k", "v"), record("k", "w")}
	if d := golden.Compare(same, same); d != "" {
		t.Error(d)
	}
	if golden.Compare(same, same[:1]) == "" || golden.Compare(same[:1], same) == "" {
		t.Error("another number of records is no difference")
	}
	if golden.Compare(same, []golden.Record{same[1], same[0]}) == "" {
		t.Error("another order is no difference")
	}
}

func TestCompare_LeavesOutWhatIsVolatile(t *testing.T) {
	want := []golden.Record{record("k", "v", "timestamp", "value", "headers.id", "partition"), record("k", "w", "partition")}
	got := []golden.Record{record("k", "w"), record("k", "other")}
	got[1].Timestamp, got[1].Partition, got[1].Headers[0].Value = 9, 1, text("x")
	if d := golden.Compare(want, got); d != "" {
		t.Error(d)
	}
	got[1].Value = golden.Bytes{Null: true}
	if golden.Compare(want, got) == "" {
		t.Error("null instead of a volatile value is no difference")
	}
}

func TestParseScript(t *testing.T) {
	steps, err := golden.ParseScript("select 1;\n\n--@ session b\nselect ';\n' || 2;  \n--@ settle\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []golden.Step{
		{Line: 1, SQL: "select 1;"},
		{Line: 3, Directive: "session", Argument: "b"},
		{Line: 4, SQL: "select ';"},
		{Line: 5, SQL: "' || 2;  "},
		{Line: 6, Directive: "settle"},
	}
	if !slices.Equal(steps, want) {
		t.Errorf("steps %+v", steps)
	}
	for _, bad := range []string{"select 1\n", "--@ unknown\n"} {
		if _, err := golden.ParseScript(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func FuzzParseScript(f *testing.F) {
	f.Add("select 1;\n--@ settle\n")
	f.Fuzz(func(t *testing.T, text string) {
		steps, err := golden.ParseScript(text)
		for _, s := range steps {
			if err == nil && (s.SQL == "") == (s.Directive == "") {
				t.Errorf("step %+v is neither or both", s)
			}
		}
	})
}

// Infinity is behind what the client's nanoseconds hold.
func TestFromKafka_SurvivesTheClientsOverflow(t *testing.T) {
	for _, ms := range []int64{-1, 0, 1704164645000, 9223372036854, 9223372036855, 253402300799999, 9223372036825200} {
		if got := golden.FromKafka(&kgo.Record{Timestamp: time.Unix(0, ms*1e6)}, 1).Timestamp; got != ms {
			t.Errorf("%d becomes %d", ms, got)
		}
	}
}
