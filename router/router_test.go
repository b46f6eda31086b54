package router

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/format"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/record/recordtest"
)

// outboxColumns is a table that every role of the tests below finds a column in.
var outboxColumns = []string{
	"id uuid", "aggregate_type text", "aggregate_id text", "event_type text", "payload json",
	"extra json", "tenant text", "shard int4", "at timestamptz", "raw bytea",
}

const testID = "406c07f3-26f0-4eea-a50c-109940064b8f"

// rowWith is a good row of outboxColumns with some columns replaced.
func rowWith(t testing.TB, change map[string]string) *wal.Row {
	rel := table(t, outboxColumns...)
	row := textRow(rel, testID, "order", "o-1", "created", `{"a":1}`, `{"k":{"n":[10,"x\ty"]}}`, "Acme", "3", "2024-01-02 03:04:05.678912+00", `\x00ff41`)
	for name, v := range change {
		i := column.Index(rel, name)
		if i < 0 {
			t.Fatalf("no column %s", name)
		}
		row.Values[i] = textRow(rel, v).Values[0]
	}
	return row
}

func header(rec record.Record, name string) string {
	for _, h := range rec.Headers {
		if h.Key == name {
			return recordtest.Bytes(h.Value)
		}
	}
	return "absent"
}

func TestRoute_TakesKeysHeadersAndTimesFromColumns(t *testing.T) {
	at := Columns{Timestamp: "at"}
	for _, c := range []struct {
		name   string
		m      Mapping
		change map[string]string
		want   string // lines that show must contain, `;` between them
	}{
		{"NULL key is a null key", Mapping{}, map[string]string{"aggregate_id": null}, "key       null"},
		{"NULL key is a null key in json_string too", Mapping{Key: format.JSONString}, map[string]string{"aggregate_id": null}, "key       null"},
		{"empty key stays empty", Mapping{}, map[string]string{"aggregate_id": ""}, "key       empty"},
		{"bytea key is its bytes", Mapping{Columns: Columns{Key: "raw"}}, nil, "key       bytes 00ff41"},
		{"bytea id is its text", Mapping{Columns: Columns{ID: "raw"}}, nil, `header    id = \x00ff41`},
		{"bytea payload is its bytes", Mapping{Columns: Columns{Payload: "raw"}}, nil, "value     bytes 00ff41"},
		{"bytea header is its bytes", Mapping{Headers: []HeaderMapping{{"h", "raw"}}}, nil, "header    h = bytes 00ff41"},
		{"key from a pointer", Mapping{Columns: Columns{Key: "extra#/k/n/1"}}, nil, "key       bytes 780979"},
		{"a pointer to a number", Mapping{Columns: Columns{Key: "extra#/k/n/0"}}, nil, "key       10"},
		{"a pointer to an object gives its JSON", Mapping{Columns: Columns{Key: "extra#/k"}}, nil, `key       {"n":[10,"x\ty"]}`},
		{"a pointer to nothing is NULL", Mapping{Columns: Columns{Key: "extra#/nope"}}, nil, "key       null"},
		{"timestamp in ms", Mapping{Columns: at}, nil, "timestamp 2024-01-02T03:04:05.678Z"},
		{"partition", Mapping{Partition: "shard"}, nil, "partition 3"},
		{"SQL NULL payload is a null value", Mapping{}, map[string]string{"payload": null}, "value     null"},
		{"configured headers keep NULL", Mapping{Headers: []HeaderMapping{{"t", "tenant"}}}, map[string]string{"tenant": null}, "header    t = null"},
		{"header template", Mapping{Headers: []HeaderMapping{{"t", "x/${tenant|lower}-${shard}"}}}, nil, "header    t = x/acme-3"},
		{"header template with NULL is null", Mapping{Headers: []HeaderMapping{{"t", "x/${tenant}"}}}, map[string]string{"tenant": null}, "header    t = null"},
		{"header template with default", Mapping{Headers: []HeaderMapping{{"t", "x/${tenant|default:none}"}}}, map[string]string{"tenant": null}, "header    t = x/none"},
		{"header template with a pointer", Mapping{Headers: []HeaderMapping{{"t", "${extra#/k/n/0}!"}}}, nil, "header    t = 10!"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rec, err := routeOne(t, c.m, rowWith(t, c.change))
			if err != nil {
				t.Fatal(err)
			}
			if got := recordtest.Show(rec); !strings.Contains(got, c.want) {
				t.Errorf("no %q in\n%s", c.want, got)
			}
		})
	}
}

func TestRoute_LeavesOutPresetHeadersThatAreNull(t *testing.T) {
	rec, err := routeOne(t, Mapping{}, rowWith(t, map[string]string{"event_type": null}))
	if err != nil || len(rec.Headers) != 1 || rec.Headers[0].Key != record.IdHeader {
		t.Errorf("%v\n%s", err, recordtest.Show(rec))
	}
}

func TestRoute_NullFallsBackForTimestampAndPartition(t *testing.T) {
	m := Mapping{Columns: Columns{Timestamp: "at"}, Partition: "shard"}
	rec, err := routeOne(t, m, rowWith(t, map[string]string{"at": null, "shard": null}))
	if err != nil || !rec.Timestamp.IsZero() || rec.Partition != record.AutoPartition {
		t.Errorf("timestamp %s, partition %d, %v", rec.Timestamp, rec.Partition, err)
	}
}

func TestRoute_RejectsWithReasonAndColumn(t *testing.T) {
	for _, c := range []struct {
		name   string
		m      Mapping
		change map[string]string
		reason string
		column string
		text   string
	}{
		{"NULL id", Mapping{}, map[string]string{"id": null}, fault.ReasonMapping, "id", "is NULL"},
		{"NULL route", Mapping{}, map[string]string{"aggregate_type": null}, fault.ReasonRoute, "aggregate_type", "is NULL"},
		{"empty route", Mapping{}, map[string]string{"aggregate_type": ""}, fault.ReasonRoute, "aggregate_type", "is empty"},
		{"NULL route under a regex", Mapping{TopicRegex: ".*", Topic: "all"}, map[string]string{"aggregate_type": null}, fault.ReasonRoute, "aggregate_type", "which topic_regex is matched against, is NULL; have every writer set it, or map columns.route"},
		{"empty route under a regex", Mapping{TopicRegex: ".*", Topic: "all"}, map[string]string{"aggregate_type": ""}, fault.ReasonRoute, "aggregate_type", "matched against, is empty"},
		{"illegal topic", Mapping{}, map[string]string{"aggregate_type": "a b/\n\x1b[31m"}, fault.ReasonRoute, "aggregate_type", `"a b/\n\x1b[31m-events"`},
		{"dots", Mapping{Topic: "${tenant}"}, map[string]string{"tenant": ".."}, fault.ReasonRoute, "tenant", "neither one dot nor two"},
		{"long topic is shortened", Mapping{}, map[string]string{"aggregate_type": strings.Repeat("é", 200)}, fault.ReasonRoute, "aggregate_type", "(407 bytes)"},
		{"malformed timestamp", Mapping{Columns: Columns{Timestamp: "tenant"}}, nil, fault.ReasonMapping, "tenant", "neither a date"},
		{"infinite timestamp", Mapping{Columns: Columns{Timestamp: "at"}}, map[string]string{"at": "infinity"}, fault.ReasonMapping, "at", "infinite"},
		{"negative partition", Mapping{Partition: "shard"}, map[string]string{"shard": "-1"}, fault.ReasonMapping, "shard", "partition"},
		{"merged into an array", Mapping{Value: format.Merged}, map[string]string{"payload": "[1]"}, fault.ReasonEncode, "payload", "no JSON object"},
		{"merged into text", Mapping{Value: format.Merged, Columns: Columns{Payload: "tenant"}}, nil, fault.ReasonEncode, "tenant", "no JSON object"},
		{"json_string of bytes", Mapping{Value: format.JSONString, Columns: Columns{Payload: "raw"}}, nil, fault.ReasonEncode, "raw", "not UTF-8"},
		{"json_string key of bytes", Mapping{Key: format.JSONString, Columns: Columns{Key: "raw"}}, nil, fault.ReasonEncode, "raw", "not UTF-8"},
		{"pointer into text", Mapping{Columns: Columns{Key: "tenant#/a"}}, nil, fault.ReasonMapping, "tenant", "is not JSON"},
		{"headers of an array", Mapping{Columns: Columns{Headers: "extra"}}, map[string]string{"extra": "[]"}, fault.ReasonMapping, "extra", "not a JSON object"},
		{"headers of text", Mapping{Columns: Columns{Headers: "tenant"}}, nil, fault.ReasonMapping, "tenant", "not JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			row := rowWith(t, c.change)
			row.Txn.Time = time.Unix(40, 0) // else it is outside any transaction
			_, err := routeOne(t, c.m, row)
			e, ok := errors.AsType[*record.RowError](err)
			if !ok {
				t.Fatalf("error %v", err)
			}
			if e.Reason != c.reason || e.Column != c.column || !strings.Contains(e.Error(), c.text) {
				t.Errorf("reason %s column %s: %v", e.Reason, e.Column, e)
			}
			if e.Table != "public.outbox" || e.LSN != 0x1_0000_0010 || e.Commit != 0x1_0000_0028 || e.Ordinal != 3 {
				t.Errorf("position of %+v", e)
			}
			for _, secret := range []string{"o-1", "Acme", testID, `x\ty`} {
				if strings.Contains(e.Error(), secret) {
					t.Errorf("%q stands in %q", secret, e)
				}
			}
		})
	}
}

// A row that a command reads from the table, such as redrive, is of no known
// transaction: zeros would pass for its position.
func TestRowError_OfARowFromTheTableNamesNoPosition(t *testing.T) {
	row := rowWith(t, map[string]string{"extra": "[]"})
	row.Txn, row.LSN, row.Ordinal = new(wal.Txn), 0, 1
	_, err := routeOne(t, Mapping{Columns: Columns{Headers: "extra"}}, row)
	if err == nil || !strings.HasPrefix(err.Error(), "route row of table public.outbox.extra: ") || strings.Contains(err.Error(), "0/0") {
		t.Errorf("error %v", err)
	}
}

func TestRoute_NamesTheColumnThatTheTableLost(t *testing.T) {
	r := mustNew(t, Mapping{Columns: Columns{Key: "tenant"}})
	var b record.Buffer
	if err := r.Route(&b, rowWith(t, nil)); err != nil {
		t.Fatal(err)
	}
	without := table(t, "id uuid", "aggregate_type text", "aggregate_id text", "event_type text", "payload json")
	for range 2 { // the second time from what is remembered
		err := r.Route(&b, textRow(without, testID, "order", "o-1", "created", "{}"))
		e, ok := errors.AsType[*record.RowError](err)
		if !ok || e.Reason != fault.ReasonSchema || e.Column != "tenant" || !strings.Contains(e.Error(), `no column "tenant"; it has id, aggregate_type`) {
			t.Fatalf("error %v", err)
		}
	}
	if err := r.Route(&b, rowWith(t, nil)); err != nil || len(b.Records) != 2 {
		t.Errorf("the old shape gives %v, %d records", err, len(b.Records))
	}
}

func TestRoute_RefusesRowsOfOtherTables(t *testing.T) {
	rel := table(t, outboxColumns...)
	rel.Table = -1
	err := mustNew(t, Mapping{}).Route(&record.Buffer{}, textRow(rel))
	if e, ok := errors.AsType[*record.RowError](err); !ok || e.Reason != fault.ReasonSchema {
		t.Errorf("error %v", err)
	}
}

func TestRoute_RefusesBinaryOfUnknownTypes(t *testing.T) {
	rel := table(t, "id uuid", "aggregate_type text", "aggregate_id numeric", "event_type text", "payload json")
	r := mustNew(t, Mapping{})
	if r.BinarySafe(rel) {
		t.Error("numeric passes for safe in binary")
	}
	row := textRow(rel, testID, "order", "1.5", "created", "{}")
	if err := r.Route(&record.Buffer{}, row); err != nil {
		t.Fatal(err)
	}
	row.Values[2].Kind = wal.Binary
	err := r.Route(&record.Buffer{}, row)
	if e, ok := errors.AsType[*record.RowError](err); !ok || e.Reason != fault.ReasonSchema || e.Column != "aggregate_id" {
		t.Errorf("error %v", err)
	}
	if unmapped := table(t, "id uuid", "aggregate_type text", "aggregate_id text", "event_type text", "payload json", "score numeric"); !r.BinarySafe(unmapped) {
		t.Error("a column that nothing reads decides about binary")
	}
}

// TestRoute_TablesKeepTheirMappings alternates between tables behind one slot.
func TestRoute_TablesKeepTheirMappings(t *testing.T) {
	r, err := New(Config{Mappings: []Mapping{{Table: "a", Topic: "first"}, {Table: "b", Topic: "second"}}})
	if err != nil {
		t.Fatal(err)
	}
	first, second := rowWith(t, nil), rowWith(t, nil)
	second.Relation.Table = 1
	var b record.Buffer
	for range 3 {
		if err := errors.Join(r.Route(&b, first), r.Route(&b, second)); err != nil {
			t.Fatal(err)
		}
	}
	for i, rec := range b.Records {
		if want := []string{"first", "second"}[i%2]; rec.Topic != want {
			t.Errorf("record %d goes to %s, want %s", i, rec.Topic, want)
		}
	}
}

func TestRoute_BoundsWhatItRemembers(t *testing.T) {
	r := mustNew(t, Mapping{Topic: "${tenant}", Columns: Columns{Headers: "extra"}})
	row := rowWith(t, nil)
	var b record.Buffer
	for i := range 3 * maxTopics {
		row.Values[6].Data = fmt.Appendf(nil, "t%d", i)
		row.Values[5].Data = fmt.Appendf(nil, `{"h%d": 1}`, i)
		if err := r.Route(&b, row); err != nil {
			t.Fatal(err)
		}
		rec := b.Records[0]
		if want := fmt.Sprintf("t%d", i); rec.Topic != want || rec.Headers[len(rec.Headers)-1].Key != fmt.Sprintf("h%d", i) {
			t.Fatalf("row %d: %s", i, recordtest.Show(rec))
		}
		b.Reset()
	}
	for range maxPlans + 10 {
		row := rowWith(t, nil)
		if err := r.Route(&b, row); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(r.last.topic.known); n > maxTopics || len(r.plans) > maxPlans {
		t.Errorf("%d topics, %d plans remembered", n, len(r.plans))
	}
}

// The headers of a row that is rejected are not those of the next one.
func TestRoute_ARejectedRowLeavesNoHeaders(t *testing.T) {
	r := mustNew(t, Mapping{Headers: []HeaderMapping{{"t", "${tenant}"}}, Partition: "shard"})
	var b record.Buffer
	if err := r.Route(&b, rowWith(t, map[string]string{"shard": "-1"})); err == nil {
		t.Fatal("a partition below zero passes")
	}
	if err := r.Route(&b, rowWith(t, nil)); err != nil {
		t.Fatal(err)
	}
	want, err := routeOne(t, Mapping{Headers: []HeaderMapping{{"t", "${tenant}"}}, Partition: "shard"}, rowWith(t, nil))
	if err != nil || recordtest.Show(b.Records[0]) != recordtest.Show(want) {
		t.Errorf("%v, got\n%s\nwant\n%s", err, recordtest.Show(b.Records[0]), recordtest.Show(want))
	}
}

func TestRoute_DoesNotAllocate(t *testing.T) {
	row := rowWith(t, map[string]string{"extra": `{"h": "1", "n": 2}`})
	for name, m := range map[string]Mapping{
		"raw":      {},
		"headers":  {Columns: Columns{Headers: "extra", Timestamp: "at"}, Headers: []HeaderMapping{{"t", "${tenant|lower}"}}, Partition: "shard"},
		"envelope": {Value: format.Envelope, Key: format.JSONString, ValueFields: []Field{{"t", "tenant"}}},
		"merged":   {Value: format.Merged, ValueFields: []Field{{"t", "tenant"}}},
		"pointer":  {Columns: Columns{Key: "extra#/h"}},
	} {
		r := mustNew(t, m)
		var b record.Buffer
		fill := func() {
			for range 100 {
				if err := r.Route(&b, row); err != nil {
					t.Fatal(err)
				}
			}
			b.Reset()
		}
		for range 8 {
			fill() // chunks double until one batch fits
		}
		if n := testing.AllocsPerRun(100, fill); n > allocations { // an average: what others allocate is less than one a run
			t.Errorf("%s: %v allocations for 100 rows", name, n)
		}
	}
}

func TestBuffer_KeepsEarlierRecordsWhileItGrows(t *testing.T) {
	m := Mapping{Value: format.Merged, ValueFields: []Field{{"tenant", "tenant"}}, Headers: []HeaderMapping{{"t", "${tenant}"}}}
	r := mustNew(t, m)
	row := rowWith(t, nil)
	var b record.Buffer
	for round := range 3 {
		for i := range 2000 {
			tenant := fmt.Sprintf("%d-%d-%s", round, i, strings.Repeat("x", i%50))
			row.Values[6].Data = []byte(tenant)
			if err := r.Route(&b, row); err != nil {
				t.Fatal(err)
			}
		}
		size := 0
		for i, rec := range b.Records {
			tenant := fmt.Sprintf("%d-%d-%s", round, i, strings.Repeat("x", i%50))
			if want := `{"tenant":"` + tenant + `","a":1}`; string(rec.Value) != want || header(rec, "t") != tenant || header(rec, "id") != testID {
				t.Fatalf("record %d of round %d:\n%s", i, round, recordtest.Show(rec))
			}
			size += len(rec.Value) + len(tenant) + len(rec.Headers)*int(unsafe.Sizeof(record.Header{})) + int(unsafe.Sizeof(rec))
		}
		if got := b.Size(); got < size || got > size+size/10 {
			t.Errorf("size %d, records hold %d", got, size)
		}
		b.Reset()
		if b.Size() != 0 {
			t.Errorf("size %d after Reset", b.Size())
		}
	}
}

func TestBuffer_GivesBackWhatOneHugeBatchNeeded(t *testing.T) {
	m := Mapping{Value: format.JSONString}
	row := rowWith(t, map[string]string{"payload": `"` + strings.Repeat("x", 4<<20) + `"`})
	r := mustNew(t, m)
	var b record.Buffer
	if err := r.Route(&b, row); err != nil {
		t.Fatal(err)
	}
	b.Reset()
	if b.Size() != 0 || cap(r.scratch) > maxScratch {
		t.Errorf("the buffer keeps %d bytes, the router %d", b.Size(), cap(r.scratch))
	}
}

func TestRoute_OrdersHeaders(t *testing.T) {
	rel := table(t, "id uuid", "aggregate_type text", "aggregate_id text", "event_type text", "payload json", "idempotency_key text", "headers jsonb", "traceparent text", "tenant text")
	row := textRow(rel, testID, "order", "o-1", "created", "{}", "idem", `{"id": "no", "z": "1", "a": null, "n": 1.50, "o": {"x": [1]}, "\u0074": "é\n"}`, "00-trace", "acme")
	rec, err := routeOne(t, Mapping{Headers: []HeaderMapping{{"z", "tenant"}, {"b", "fixed ${tenant}"}}}, row)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, h := range rec.Headers {
		got = append(got, h.Key+"="+recordtest.Bytes(h.Value))
	}
	want := []string{
		"id=" + testID, "eventType=created", "idempotency_key=idem", "z=acme", "b=fixed acme",
		"z=1", "a=null", "n=1.50", `o={"x": [1]}`, "t=bytes c3a90a", "traceparent=00-trace",
	}
	if !slices.Equal(got, want) {
		t.Errorf("headers\n%q, want\n%q", got, want)
	}
}

// A column that is added while the relay runs could be a better key or topic in
// the eyes of auto. What was decided at start holds: records must not change
// their topic or partition in mid-stream.
func TestRouter_ColumnsAddedInMidStreamChangeNothing(t *testing.T) {
	r, err := New(Config{Mappings: []Mapping{{Table: "public.outbox"}}})
	if err != nil {
		t.Fatal(err)
	}
	text := func(names ...string) *wal.Relation {
		rel := &wal.Relation{OID: 1, Namespace: "public", Name: "outbox"}
		for _, n := range names {
			rel.Columns = append(rel.Columns, wal.Column{Name: n, Type: 25})
		}
		return rel
	}
	start := text("id", "aggregate", "aggregate_id", "event_type", "payload", "trace_parent")
	if _, err := r.Pin(start); err != nil {
		t.Fatal(err)
	}
	commit := wal.LSN(0x100)
	route := func(rel *wal.Relation) (*record.Record, error) {
		commit += 0x10
		row := &wal.Row{Txn: &wal.Txn{Commit: commit}, Relation: rel}
		for _, c := range rel.Columns {
			row.Values = append(row.Values, wal.Value{Kind: wal.Text, Data: []byte(c.Name)})
		}
		var b record.Buffer
		if err := r.Route(&b, row); err != nil {
			return nil, err
		}
		return &b.Records[0], nil
	}
	for _, c := range []struct {
		name string
		rel  *wal.Relation
	}{
		{"older, without an optional column", text("id", "aggregate", "aggregate_id", "event_type", "payload")},
		{"newer, with tempting columns", text("id", "aggregate", "aggregate_id", "event_type", "payload", "trace_parent", "topic", "partition_key")},
	} {
		record, err := route(c.rel)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if record.Topic != "aggregate-events" || string(record.Key) != "aggregate_id" {
			t.Errorf("%s: topic %q, key %q", c.name, record.Topic, record.Key)
		}
	}
	if _, err := route(start); err != nil {
		t.Fatal(err)
	}
	var rejected *record.RowError
	if _, err := route(text("id", "aggregate", "aggregate_id", "event_type", "payload", "traces")); !errors.As(err, &rejected) || rejected.Column != "trace_parent" {
		t.Errorf("a column dropped in mid-stream: %v", err)
	}
}
