package router

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/format"
	"github.com/cdc-relay/cdc-relay/router/record"
)

func TestAuto_TakesARoutingKeyBesideATopic(t *testing.T) {
	for _, tt := range []struct {
		columns      []string
		key, warning string
	}{
		{[]string{"id int8", "topic text", "routing_key text", "payload jsonb"}, "routing_key", ""},
		{[]string{"id int8", "topic text", "key text", "routing_key text", "payload jsonb"}, "key", "column routing_key could be the key too"},
		{[]string{"id int8", "event_type text", "routing_key text", "payload jsonb"}, "id", "set columns.key, perhaps to routing_key"},
	} {
		e, err := mustNew(t, Mapping{}).Pin(table(t, tt.columns...))
		if err != nil {
			t.Fatal(err)
		}
		if warnings := strings.Join(e.Warnings, "\n"); e.Roles["key"] != tt.key || !strings.Contains(warnings, tt.warning) || tt.warning == "" && warnings != "" {
			t.Errorf("%q: key %s, warnings %q", tt.columns, e.Roles["key"], warnings)
		}
	}
}

func TestCheck_RefusesCompositeColumns(t *testing.T) {
	for key, column := range map[string]int{"columns.key": 2, "columns.payload": 4} {
		rel := table(t, "id uuid", "aggregate_type text", "aggregate_id place", "event_type text", "payload place")
		rel.Columns[column].Composite = true
		_, err := mustNew(t, Mapping{}).Pin(rel)
		if list := ConfigErrors(err); len(list) != 1 || list[0].Path != "outbox[0]."+key || !strings.Contains(err.Error(), "is of type place") {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// A key by which Kafka keeps rows in order has one text for one value.
func TestCheck_RefusesTypesThatCannotBeAKey(t *testing.T) {
	for typ, shown := range map[string]string{
		"_int4": "int4[]", "_text": "text[]", "_uuid": "uuid[]", "_mood": "mood[]", "integer[]": "integer[]", "numeric(10,2)[]": "numeric(10,2)[]", "json": "json", "jsonb": "jsonb",
		"hstore": "hstore", "oid": "oid", "xml": "xml", "point": "point", "polygon": "polygon", "tsvector": "tsvector", "interval": "interval",
		"int4range": "int4range", "tstzrange": "tstzrange", "nummultirange": "nummultirange",
	} {
		rel := table(t, "id uuid", "aggregate_type text", "aggregate_id "+typ, "event_type text", "payload jsonb")
		rel.Columns[2].Array = typ == "_mood"
		for _, m := range []Mapping{{}, {Preset: "outbox"}, {Columns: Columns{Key: "aggregate_id"}}} {
			_, err := mustNew(t, m).Pin(rel)
			want := `outbox[0].columns.key: column "aggregate_id" of table public.outbox is of type ` + shown + ", which cannot be the key, by which Kafka keeps rows in order; "
			if list := ConfigErrors(err); len(list) != 1 || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "map another column") {
				t.Errorf("%s: %v", typ, err)
			}
		}
		rel = table(t, "id "+typ, "event_type text", "payload jsonb")
		rel.Columns[0].Array = typ == "_mood"
		if _, err := mustNew(t, Mapping{}).Pin(rel); len(ConfigErrors(err)) != 1 {
			t.Errorf("an event id of type %s for a key: %v", typ, err)
		}
	}
	for _, typ := range []string{"text", "varchar", "bpchar", "uuid", "int2", "int8", "numeric", "float8", "bool", "date", "timestamptz", "bytea", "citext", "mood", "_status", "inet"} {
		if _, err := mustNew(t, Mapping{}).Pin(table(t, "id uuid", "aggregate_type text", "aggregate_id "+typ, "payload jsonb")); err != nil {
			t.Errorf("%s: %v", typ, err)
		}
	}
}

func TestCheck_RefusesTypesThatMakeNoTopicName(t *testing.T) {
	for _, typ := range []string{"jsonb", "json", "_text", "_int4", "hstore", "point", "interval", "int4range", "tstzmultirange"} {
		rel := table(t, "id uuid", "kind "+typ, "aggregate_id text", "payload jsonb")
		for key, m := range map[string]Mapping{
			"columns.route": {Columns: Columns{Route: "kind"}, TopicRegex: "(?<routedByValue>.*)", Preset: "generic-aggregate"},
			"topic":         {Topic: "shop.${kind}"},
		} {
			_, err := mustNew(t, m).Pin(rel)
			if list := ConfigErrors(err); len(list) != 1 || list[0].Path != "outbox[0]."+key || !strings.Contains(err.Error(), "cannot be a topic name; ") {
				t.Errorf("%s, %s: %v", typ, key, err)
			}
		}
	}
	if _, err := mustNew(t, Mapping{Topic: "shop.${kind#/name}"}).Pin(table(t, "id uuid", "kind jsonb", "payload jsonb")); err != nil {
		t.Error(err)
	}
}

func TestCheck_TellsWhyAColumnIsNotInTheStream(t *testing.T) {
	const why = "is generated, which this server does not publish; write it as an ordinary column"
	rel := table(t, "id uuid", "aggregate_type text", "aggregate_id text", "event_type text")
	rel.Hidden = map[string]string{"payload": why}
	for _, m := range []Mapping{{}, {Preset: "outbox"}, {Columns: Columns{Payload: "payload"}}} {
		_, err := mustNew(t, m).Pin(rel)
		if err == nil || !strings.Contains(err.Error(), `column "payload" of table public.outbox `+why) {
			t.Errorf("%+v: %v", m, err)
		}
	}
	rel = table(t, "id uuid", "event_type text", "payload jsonb")
	rel.Hidden = map[string]string{"partition_key": why}
	if e, err := mustNew(t, Mapping{}).Pin(rel); err != nil || !strings.Contains(strings.Join(e.Warnings, "\n"), `column "partition_key" of table public.outbox `+why) {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestMessages_SayWhatTheBodyLacks(t *testing.T) {
	rel := &wal.Relation{Namespace: "message", Name: "shop", Columns: []wal.Column{{Name: column.MessageBody, Type: 114, TypeMod: -1, TypeName: "json"}}}
	for body, want := range map[string]string{
		"hello":     "the message body is not a JSON object; send a JSON object with the members id",
		`{"id": 1`:  "the message body is not JSON; send a JSON object",
		`{}`:        "the message body's member /id, the event id, is missing or null",
		`{"id": 1}`: "the message body's member /aggregateType, which the topic is made of, is missing or null; `${body#/aggregateType|default:other}`",
	} {
		_, err := routeOne(t, ForMessages(Mapping{Table: "shop"}), textRow(rel, body))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %v, want %s", body, err, want)
		}
	}
}

// Whoever pastes the advice keeps the filters that the topic has.
func TestTopic_TheAdviceForAnEmptyValueKeepsTheFilters(t *testing.T) {
	rel := &wal.Relation{Namespace: "message", Name: "shop", Columns: []wal.Column{{Name: column.MessageBody, Type: 114, TypeMod: -1, TypeName: "json"}}}
	for topic, want := range map[string]string{
		"${body#/kind}":              "`${body#/kind|default:other}`",
		"x-${body#/kind|topic}":      "`${body#/kind|topic|default:other}`",
		"${body#/kind|lower|topic}s": "`${body#/kind|lower|topic|default:other}`",
	} {
		_, err := routeOne(t, ForMessages(Mapping{Table: "shop", Topic: topic}), textRow(rel, `{"id": 1}`))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %v, want %s", topic, err, want)
		}
	}
}

func TestMessages_WarnOnlyOfWhatIsSet(t *testing.T) {
	rel := &wal.Relation{Namespace: "message", Name: "shop", Columns: []wal.Column{{Name: column.MessageBody, Type: 114, TypeMod: -1, TypeName: "json"}}}
	for route, warnings := range map[string]int{"": 0, "body#/kind": 1} {
		e, err := mustNew(t, ForMessages(Mapping{Table: "shop", Topic: "events", Columns: Columns{Route: route}})).Pin(rel)
		if err != nil || len(e.Warnings) != warnings {
			t.Errorf("route %q: %v, %+v", route, err, e)
		}
	}
}

func TestAdvised_TellsWhatToDoApartFromWhatIsWrong(t *testing.T) {
	for _, tt := range []struct {
		columns []string
		m       Mapping
		hint    string
		block   bool
	}{
		{[]string{"a text", "b text"}, Mapping{}, "say what they mean", true},
		{[]string{"id uuid", "kind text", "payload jsonb"}, Mapping{Columns: Columns{Type: "kind", Key: "payload"}, Topic: "t"}, "point into it, as in payload#/customer/id, or map another column", false},
	} {
		_, err := mustNew(t, tt.m).Pin(table(t, tt.columns...))
		advised, ok := errors.AsType[*advice.Error](err)
		if !ok || advised.Next != tt.hint || (advised.Block != "") != tt.block || strings.Contains(advised.Cause.Error(), tt.hint) || !strings.Contains(err.Error(), "; "+tt.hint) {
			t.Errorf("%v: %v, %+v", tt.columns, err, advised)
		}
	}
}

func TestCloudEvents_WriteBooleansAndIntegersAsSuch(t *testing.T) {
	rel := table(t, "id uuid", "event_type text", "aggregate_id text", "payload jsonb", "urgent bool", "tenant int8")
	fields := []Field{{"urgent", "urgent"}, {"tenant", "tenant"}, {"n", "payload#/n"}, {"s", "payload#/s"}}
	for _, tt := range []struct{ tenant, members string }{
		{"-2147483648", `"urgent":true,"tenant":-2147483648,"n":1,"s":"1",`},
		{"2147483648", `"urgent":true,"tenant":"2147483648","n":1,"s":"1",`},
	} {
		row := textRow(rel, idA, "placed", "o-1", `{"n": 1, "s": "1"}`, "t", tt.tenant)
		rec, err := routeOne(t, Mapping{Value: format.CloudEvents, ValueFields: fields}, row)
		if err != nil || !strings.Contains(string(rec.Value), tt.members) {
			t.Errorf("%s, %v; want %s", rec.Value, err, tt.members)
		}
		rec, err = routeOne(t, Mapping{Value: format.CloudEventsBinary, ValueFields: fields}, row)
		if err != nil {
			t.Fatal(err)
		}
		if attributes, _ := binaryMode(t, rec); attributes["urgent"] != "true" || attributes["tenant"] != tt.tenant {
			t.Errorf("%q", attributes)
		}
	}
}

// Dapr's Kafka pub/sub takes a record's value for an event in JSON, unless its
// content-type is application/octet-stream: then, in recent versions, it takes
// the headers ce_… for the attributes. It wants these members to be strings.
func TestCloudEvents_AreWhatDaprReads(t *testing.T) {
	for payload, c := range map[string]struct{ value, contentType, binaryType string }{
		"payload jsonb": {`{"n": 1}`, jsonType, jsonType},
		"payload text":  {`plain`, textType, textType},
		"payload bytea": {`\x0001`, bytesType, bytesType},
	} {
		rel := table(t, "id int8", "event_type text", "aggregate_id int8", payload)
		row := textRow(rel, "7", "order.placed", "42", c.value)
		row.Txn.Time = time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
		rec, err := routeOne(t, Mapping{Value: format.CloudEvents}, row)
		if err != nil {
			t.Fatal(err)
		}
		var event map[string]any
		if err := json.Unmarshal(rec.Value, &event); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"id", "source", "specversion", "type", "datacontenttype", "subject", "time"} {
			if text, isText := event[name].(string); !isText || text == "" {
				t.Errorf("%s: %s is %v, no string", payload, name, event[name])
			}
		}
		if event["data"] == nil && event["data_base64"] == nil || event["datacontenttype"] != c.contentType {
			t.Errorf("%s", rec.Value)
		}
		for _, own := range []string{"topic", "pubsubname", "traceid", "expiration"} { // which Dapr sets or acts on
			if _, there := event[own]; there {
				t.Errorf("%s has %s", rec.Value, own)
			}
		}
		if typ := headerOf(rec, "content-type"); !strings.HasPrefix(typ, "application/cloudevents+json") {
			t.Errorf("structured mode has content-type %q", typ)
		}

		rec, err = routeOne(t, Mapping{Value: format.CloudEventsBinary}, row)
		if err != nil {
			t.Fatal(err)
		}
		if typ := headerOf(rec, "content-type"); typ != c.binaryType {
			t.Errorf("%s: binary mode has content-type %q, want %q", payload, typ, c.binaryType)
		}
		for _, name := range []string{"ce_id", "ce_source", "ce_specversion", "ce_type"} {
			if headerOf(rec, name) == "" {
				t.Errorf("%s: no header %s", payload, name)
			}
		}
		// A null is no event: Dapr would fail at it for ever.
		row.Values[3] = wal.Value{Kind: wal.Null}
		if rec, err = routeOne(t, Mapping{Value: format.CloudEvents}, row); err != nil || rec.Value != nil {
			t.Errorf("%s, %v", rec.Value, err)
		}
	}
}

func headerOf(rec record.Record, name string) string {
	for _, h := range rec.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// Equal values of some types are written in several ways, and each is a key.
func TestCheck_WarnsOfKeysWithSeveralTexts(t *testing.T) {
	for _, tt := range []struct {
		column wal.Column
		want   string
	}{
		{wal.Column{Type: 1700, TypeMod: -1}, "1.0 and 1.00 are equal"},
		{wal.Column{Type: 90001, TypeMod: -1, TypeName: "numeric"}, "1.0 and 1.00 are equal"}, // a domain
		{wal.Column{Type: 90001, TypeMod: -1, TypeName: "public.citext"}, "Key and key are equal"},
		{wal.Column{Type: 90001, TypeMod: -1, TypeName: "citext"}, "Key and key are equal"},
		{wal.Column{Type: 1700, TypeMod: 10<<16 | 2 + 4}, ""},
		{wal.Column{Type: 90001, TypeMod: -1, TypeName: "numeric(10,2)"}, ""},
		{wal.Column{Type: 20, TypeMod: -1}, ""},
		{wal.Column{Type: 25, TypeMod: -1}, ""},
	} {
		rel := table(t, "id uuid", "aggregate_type text", "aggregate_id text", "event_type text", "payload jsonb")
		tt.column.Name = "aggregate_id"
		rel.Columns[2] = tt.column
		e, err := mustNew(t, Mapping{}).Pin(rel)
		if err != nil {
			t.Fatal(err)
		}
		warnings := strings.Join(e.Warnings, "\n")
		if tt.want == "" && warnings != "" || !strings.Contains(warnings, tt.want) {
			t.Errorf("%+v: warnings %q, want %q", tt.column, warnings, tt.want)
		}
	}
}

// What a template only quotes it does not read.
func TestCheck_UsesAreThoseOfTheBoundPlan(t *testing.T) {
	rel := table(t, "id uuid", "aggregate_type text", "aggregate_id text", "event_type text", "payload jsonb", "tenant text", "meta jsonb", "a|b text")
	e, err := mustNew(t, Mapping{
		Topic:       "shop.${routedByValue}.${tenant|lower}",
		Headers:     []HeaderMapping{{"where", "$${payload} of ${meta#/place}${tenant}"}, {"who", "tenant"}},
		Value:       format.Envelope,
		ValueFields: []Field{{"odd", "a|b"}},
	}).Pin(rel)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"aggregate_type": {"topic"}, "tenant": {"topic", "header where", "header who"}, "meta": {"header where"}, "a|b": {"value field odd"},
	}
	if !reflect.DeepEqual(e.Uses, want) {
		t.Errorf("uses %v, want %v", e.Uses, want)
	}
}

func TestCheck_RefusesTombstonesOfBytes(t *testing.T) {
	rel := table(t, "id uuid", "aggregate_type text", "aggregate_id text", "event_type text", "payload bytea")
	_, err := mustNew(t, Mapping{TombstoneOnEmpty: true}).Pin(rel)
	if list := ConfigErrors(err); len(list) != 1 || list[0].Path != "outbox[0].tombstone_on_empty" || !strings.Contains(err.Error(), `"payload"`) {
		t.Errorf("%v", err)
	}
	m := Mapping{TombstoneOnEmpty: true, Columns: Columns{Payload: "payload#/body"}}
	if _, err := mustNew(t, m).Pin(rel); err != nil {
		t.Errorf("text inside of bytes: %v", err)
	}
}
