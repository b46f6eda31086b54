package router

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/format"
	"github.com/cdc-relay/cdc-relay/router/record"
)

func positioned(r *record.Record) string {
	out := ""
	for _, h := range r.Headers[len(r.Headers)-3:] {
		value := "null"
		if h.Value != nil {
			value = string(h.Value)
		}
		out += fmt.Sprintf("%s=%s ", h.Key, value)
	}
	return out
}

func TestPositionHeaders_StandLastAndArePlacedOnce(t *testing.T) {
	for _, tt := range []struct {
		name string
		txn  wal.Txn
		late wal.LSN // becomes the end after routing
		want string
	}{
		{"commit was read", wal.Txn{Commit: 0x100, End: 0x130, Time: time.Unix(1, 500_000).UTC()}, 0, "cdc-relay-lsn=0/130 cdc-relay-seq=3 cdc-relay-commit-time=1970-01-01T00:00:01.0005Z "},
		{"commit comes later", wal.Txn{Commit: 0x100, Time: time.Unix(1, 0).UTC()}, 1<<32 | 0x130, "cdc-relay-lsn=1/130 cdc-relay-seq=3 cdc-relay-commit-time=1970-01-01T00:00:01Z "},
		{"message outside any", wal.Txn{Commit: 0x99}, 0, "cdc-relay-lsn=0/99 cdc-relay-seq=0 cdc-relay-commit-time=null "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := New(Config{Mappings: []Mapping{{Table: "public.outbox", Preset: "outbox"}}, PositionHeaders: true})
			if err != nil {
				t.Fatal(err)
			}
			var b record.Buffer
			row := salvageRow("order", "k", `{"a":1}`)
			row.Txn, row.Ordinal = &tt.txn, 3
			for range 100 { // more than a chunk of headers
				if err := r.Route(&b, row); err != nil {
					t.Fatal(err)
				}
			}
			for i := range b.Records {
				rec := &b.Records[i]
				if tt.late != 0 {
					tt.txn.End = 0
					if record.FillPosition(rec) {
						t.Fatal("placed before the commit was read")
					}
					tt.txn.End = tt.late
				}
				if again := record.FillPosition(rec); !again || !record.FillPosition(rec) {
					t.Fatal("not placed")
				}
				if got := positioned(rec); got != tt.want {
					t.Fatalf("%q, want %q", got, tt.want)
				}
				if rec.Headers[0].Key != "id" || rec.Headers[1].Key != "eventType" || len(rec.Headers) != 5 {
					t.Fatalf("headers %v", rec.Headers)
				}
			}
		})
	}
}

var salvageOutbox = &wal.Relation{OID: 1, Namespace: "public", Name: "outbox", Columns: []wal.Column{
	{Name: "id", Type: 25}, {Name: "aggregate_type", Type: 25}, {Name: "aggregate_id", Type: 25}, {Name: "event_type", Type: 25}, {Name: "payload", Type: 114},
}}

func salvageRow(route, key, payload string) *wal.Row {
	value := func(s string) wal.Value {
		if s == "" {
			return wal.Value{Kind: wal.Null}
		}
		return wal.Value{Kind: wal.Text, Data: []byte(s)}
	}
	return &wal.Row{
		Txn: &wal.Txn{Commit: 0x100, Time: time.Unix(1, 0)}, Ordinal: 1, Relation: salvageOutbox,
		Values: []wal.Value{value("e1"), value(route), value(key), value("Placed"), value(payload)},
	}
}

// What Salvage cannot make it names; the rest is what Route would have made.
func TestSalvage_KeepsWhatIsThere(t *testing.T) {
	merged := Mapping{Table: "public.outbox", Preset: "outbox", Value: format.Merged, ValueFields: []Field{{Name: "type", Column: "event_type"}}}
	for _, tt := range []struct {
		name    string
		mapping Mapping
		row     *wal.Row
		topic   string
		value   string
		missing []string
	}{
		{"no route", Mapping{Table: "public.outbox", Preset: "outbox"}, salvageRow("", "k", `{"a":1}`), "", `{"a":1}`, []string{PartTopic}},
		{"illegal topic", Mapping{Table: "public.outbox", Preset: "outbox"}, salvageRow("no topic!", "k", `{"a":1}`), "", `{"a":1}`, []string{PartTopic}},
		{"payload is no object", merged, salvageRow("order", "k", `[1]`), "order-events", `[1]`, []string{PartValue}},
		{"partition below zero", Mapping{Table: "public.outbox", Preset: "outbox", Partition: "shard"}, placedRow("-1", "2026-01-02 03:04:05+00"), "order-events", `{"a":1}`, []string{PartPartition}},
		{"no time", Mapping{Table: "public.outbox", Preset: "outbox", Columns: Columns{Timestamp: "at"}}, placedRow("1", "soon"), "order-events", `{"a":1}`, []string{PartTimestamp}},
		{"neither", Mapping{Table: "public.outbox", Preset: "outbox", Columns: Columns{Timestamp: "at"}, Partition: "shard"}, placedRow("x", "soon"), "order-events", `{"a":1}`, []string{PartTimestamp, PartPartition}},
		{"columns went away", Mapping{Table: "public.outbox", Preset: "outbox"}, &wal.Row{Txn: &wal.Txn{}, Relation: salvageOutbox, Values: []wal.Value{}}, "", "", []string{PartTopic, PartKey, PartValue, PartHeaders}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := New(Config{Mappings: []Mapping{tt.mapping}})
			if err != nil {
				t.Fatal(err)
			}
			var b record.Buffer
			if err := r.Route(&b, tt.row); err == nil {
				t.Fatal("the router takes the row")
			}
			rec, missing := r.Salvage(&b, tt.row)
			if !slices.Equal(missing, tt.missing) || rec.Topic != tt.topic || string(rec.Value) != tt.value || rec.Row != tt.row {
				t.Fatalf("topic %q, value %s, missing %v", rec.Topic, rec.Value, missing)
			}
			if len(b.Records) != 0 {
				t.Fatal("the buffer has a record")
			}
			if rec.Partition != record.AutoPartition || !rec.Timestamp.IsZero() {
				t.Fatalf("partition %d, timestamp %v", rec.Partition, rec.Timestamp)
			}
			if !slices.Contains(missing, PartKey) && (string(rec.Key) != "k" || string(rec.Headers[0].Value) != "e1") {
				t.Fatalf("key %s, headers %v", rec.Key, rec.Headers)
			}
			good := salvageRow("order", "k2", `{"a":2}`)
			if tt.row.Relation != salvageOutbox {
				good.Relation = tt.row.Relation
				good.Values = append(good.Values, wal.Value{Kind: wal.Null}, wal.Value{Kind: wal.Null})
			}
			if err := r.Route(&b, good); err != nil {
				t.Fatal(err)
			}
			if got := b.Records[0]; string(got.Key) != "k2" || len(got.Headers) < 2 || got.Headers[0].Key != "id" {
				t.Fatalf("the record after it: %+v", got)
			}
		})
	}
}

// placedRow has a partition and a time, each as text.
func placedRow(shard, at string) *wal.Row {
	row := salvageRow("order", "k", `{"a":1}`)
	rel := *salvageOutbox
	rel.Columns = append(slices.Clone(rel.Columns), wal.Column{Name: "shard", Type: 23}, wal.Column{Name: "at", Type: 25})
	row.Relation = &rel
	for _, text := range []string{shard, at} {
		row.Values = append(row.Values, wal.Value{Kind: wal.Text, Data: []byte(text)})
	}
	return row
}
