package router

import (
	"encoding/hex"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/replication/wal/waltest"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/format"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/record/recordtest"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares got with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test -update writes it)", err)
	}
	if string(want) != got {
		t.Errorf("%s differs:\n--- want\n%s\n--- got\n%s", path, want, got)
	}
}

var oids = waltest.OIDs

func table(_ testing.TB, columns ...string) *wal.Relation { return waltest.Table(columns...) }

const null = waltest.Null

func textRow(rel *wal.Relation, values ...string) *wal.Row { return waltest.TextRow(rel, values...) }

// binaryRow turns a row of text values into what the server sends in binary, for
// the types that need no more than the bytes or hex.
func binaryRow(t testing.TB, row *wal.Row) *wal.Row {
	out := *row
	out.Values = slices.Clone(row.Values)
	for i, v := range row.Values {
		if v.Kind == wal.Null {
			continue
		}
		data := v.Data
		switch row.Relation.Columns[i].Type {
		case oids["uuid"]:
			data = unhexString(t, strings.ReplaceAll(string(data), "-", ""))
		case oids["bytea"]:
			data = unhexString(t, string(data[2:]))
		case oids["jsonb"]:
			data = append([]byte{1}, data...)
		case oids["text"], oids["varchar"], oids["json"]:
		default:
			continue // stays text: not every column needs to be binary
		}
		out.Values[i] = wal.Value{Kind: wal.Binary, Data: data}
	}
	return &out
}

func unhexString(t testing.TB, s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustNew(t testing.TB, m Mapping) *Router {
	t.Helper()
	if m.Table == "" {
		m.Table = "public.outbox"
	}
	r, err := New(Config{Mappings: []Mapping{m}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// routeOne routes one row and returns a copy of the record.
func routeOne(t testing.TB, m Mapping, row *wal.Row) (record.Record, error) {
	t.Helper()
	var b record.Buffer
	if err := mustNew(t, m).Route(&b, row); err != nil {
		if len(b.Records) != 0 {
			t.Errorf("a rejected row left %d records", len(b.Records))
		}
		return record.Record{}, err
	}
	return b.Records[0], nil
}

func showExplanation(e *Explanation) string {
	var s strings.Builder
	fmt.Fprintf(&s, "preset    %s\ntopic     %s\nkey       %s\nvalue     %s\nheaders   %s\n", e.Preset, e.Topic, e.Key, e.Value, strings.Join(e.Headers, ", "))
	for _, r := range slices.Sorted(maps.Keys(e.Roles)) {
		fmt.Fprintf(&s, "role      %s = %s\n", r, e.Roles[r])
	}
	fmt.Fprintf(&s, "ignored   %s\n", strings.Join(e.Ignored, ", "))
	for _, w := range e.Warnings {
		fmt.Fprintf(&s, "warning   %s\n", w)
	}
	return s.String()
}

// shapes are the tables that auto must recognise without any further key.
var shapes = []struct {
	name    string
	columns []string
	values  []string
	topic   string
	key     string
	headers []string
	warned  bool
}{
	{
		name: "outbox",
		columns: []string{
			"id uuid", "aggregate_type varchar", "aggregate_id uuid", "event_type varchar", "payload jsonb", "idempotency_key varchar",
			"created_at timestamptz", "published_at timestamptz", "retry_count int4", "last_error text",
		},
		values: []string{
			"406c07f3-26f0-4eea-a50c-109940064b8f", "order", "7f3b0d5e-0000-4000-8000-000000000001", "OrderCreated", `{"id": 1, "note": "é 😀"}`, "idem-1",
			"2024-01-02 03:04:05.678912+00", null, "0", null,
		},
		topic: "order-events", key: "7f3b0d5e-0000-4000-8000-000000000001",
		headers: []string{"id", "eventType", "idempotency_key"},
	},
	{
		name: "lean",
		columns: []string{
			"id uuid", "aggregate_type text", "aggregate_id text", "event_type text", "payload jsonb", "headers jsonb", "traceparent text", "idempotency_key text", "created_at timestamptz",
		},
		values: []string{
			"406c07f3-26f0-4eea-a50c-109940064b8f", "order", "o-1", "OrderCreated", `{"id": 1}`, `{"tenant": "acme"}`,
			"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "idem-1", "2024-01-02 03:04:05.678912+00",
		},
		topic: "order-events", key: "o-1",
		headers: []string{"id", "eventType", "idempotency_key", "tenant", "traceparent"},
	},
	{
		name: "event",
		columns: []string{
			"id uuid", "event_type text", "payload jsonb", "aggregate_id text", "created_at timestamptz", "published_at timestamptz", "publish_attempts int4", "error text",
		},
		values: []string{"406c07f3-26f0-4eea-a50c-109940064b8f", "order.created", `{"id": 1}`, "o-1", "2024-01-02 03:04:05.678912+00", null, "0", null},
		topic:  "order.created", key: "o-1",
		headers: []string{"id", "eventType"},
	},
	{
		name:    "aggregate",
		columns: []string{"id uuid", "aggregate text", "event_type text", "payload jsonb", "created_at timestamptz", "sent_at timestamptz"},
		values:  []string{"406c07f3-26f0-4eea-a50c-109940064b8f", "order", "created", `{"id": 1}`, "2024-01-02 03:04:05.678912+00", null},
		topic:   "order-events", key: "406c07f3-26f0-4eea-a50c-109940064b8f",
		headers: []string{"id", "eventType"}, warned: true,
	},
	{
		name:    "simple",
		columns: []string{"id int8", "event_type text", "payload jsonb", "created_at timestamptz", "published_at timestamptz", "retry_count int4"},
		values:  []string{"42", "order.created", `{"id": 1}`, "2024-01-02 03:04:05.678912+00", null, "0"},
		topic:   "order.created", key: "42",
		headers: []string{"id", "eventType"}, warned: true,
	},
	{
		name:    "debezium",
		columns: []string{"id uuid", "aggregatetype varchar", "aggregateid varchar", "type varchar", "payload jsonb"},
		values:  []string{"406c07f3-26f0-4eea-a50c-109940064b8f", "order", "1", "OrderCreated", `{"id": 1}`},
		topic:   "outbox.event.order", key: "1",
		headers: []string{"id"},
	},
}

func TestAuto_RecognisesTheDocumentedShapes(t *testing.T) {
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			rel := table(t, s.columns...)
			row := textRow(rel, s.values...)
			rec, err := routeOne(t, Mapping{}, row)
			if err != nil {
				t.Fatal(err)
			}
			if rec.Topic != s.topic || string(rec.Key) != s.key || string(rec.Value) != s.values[column.Index(rel, "payload")] {
				t.Errorf("topic %q key %q value %q", rec.Topic, rec.Key, rec.Value)
			}
			var names []string
			for _, h := range rec.Headers {
				names = append(names, h.Key)
			}
			if !slices.Equal(names, s.headers) {
				t.Errorf("headers %q, want %q", names, s.headers)
			}
			if rec.Row != row || rec.Partition != record.AutoPartition || !rec.Timestamp.IsZero() {
				t.Errorf("row %p partition %d timestamp %s", rec.Row, rec.Partition, rec.Timestamp)
			}
			r := mustNew(t, Mapping{})
			e, err := r.Pin(rel)
			if err != nil {
				t.Fatal(err)
			}
			if warned := strings.Contains(strings.Join(e.Warnings, "\n"), "no ordering key"); warned != s.warned {
				t.Errorf("warnings %q", e.Warnings)
			}
			if !r.BinarySafe(rel) {
				t.Error("not safe in binary")
			}
			fromBinary, err := routeOne(t, Mapping{}, binaryRow(t, row))
			if err != nil || recordtest.Show(fromBinary) != recordtest.Show(rec) {
				t.Errorf("binary gives %v\n%s, text\n%s", err, recordtest.Show(fromBinary), recordtest.Show(rec))
			}
		})
	}
}

// TestGolden_PresetsAndFormats renders every shape in every format; it is the
// review copy of what users get.
func TestGolden_PresetsAndFormats(t *testing.T) {
	for _, s := range shapes {
		var out strings.Builder
		rel := table(t, s.columns...)
		e, err := mustNew(t, Mapping{}).Pin(rel)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("columns   " + strings.Join(s.columns, ", ") + "\n" + showExplanation(e))
		for _, value := range format.Values() {
			if value == format.Eventuate || format.HasSchema(value) {
				continue // they need a headers column, or a registry, which none of these has
			}
			for _, key := range format.Keys {
				m := Mapping{Key: key, Value: value}
				if value == format.Envelope || value == format.Merged {
					m.ValueFields = []Field{{Name: "event", Column: "id"}, {Name: "id", Column: rel.Columns[1].Name}}
				}
				rec, err := routeOne(t, m, textRow(rel, s.values...))
				if err != nil {
					t.Fatalf("%s %s: %v", s.name, value, err)
				}
				fmt.Fprintf(&out, "\n--- key: %s, value: %s\n%s", key, value, recordtest.Show(rec))
			}
		}
		golden(t, "preset_"+s.name, out.String())
	}
}
