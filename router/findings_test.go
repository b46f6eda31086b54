package router

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/replication"
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
		e, err := mustNew(t, Mapping{}).Check(table(t, tt.columns...))
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
		_, err := mustNew(t, Mapping{}).Check(rel)
		if list := ConfigErrors(err); len(list) != 1 || list[0].Path != "outbox[0]."+key || !strings.Contains(err.Error(), "is of type place") {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestCheck_TellsWhyAColumnIsNotInTheStream(t *testing.T) {
	const why = "is generated, which this server does not publish; write it as an ordinary column"
	rel := table(t, "id uuid", "aggregate_type text", "aggregate_id text", "event_type text")
	rel.Hidden = map[string]string{"payload": why}
	for _, m := range []Mapping{{}, {Preset: "outbox"}, {Columns: Columns{Payload: "payload"}}} {
		_, err := mustNew(t, m).Check(rel)
		if err == nil || !strings.Contains(err.Error(), `column "payload" of table public.outbox `+why) {
			t.Errorf("%+v: %v", m, err)
		}
	}
	rel = table(t, "id uuid", "event_type text", "payload jsonb")
	rel.Hidden = map[string]string{"partition_key": why}
	if e, err := mustNew(t, Mapping{}).Check(rel); err != nil || !strings.Contains(strings.Join(e.Warnings, "\n"), `column "partition_key" of table public.outbox `+why) {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestMessages_SayWhatTheBodyLacks(t *testing.T) {
	rel := &replication.Relation{Namespace: "message", Name: "shop", Columns: []replication.Column{{Name: MessageBody, Type: 114, TypeMod: -1, TypeName: "json"}}}
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

func TestCloudEvents_WriteBooleansAndIntegersAsSuch(t *testing.T) {
	rel := table(t, "id uuid", "event_type text", "aggregate_id text", "payload jsonb", "urgent bool", "tenant int8")
	fields := []Field{{"urgent", "urgent"}, {"tenant", "tenant"}, {"n", "payload#/n"}, {"s", "payload#/s"}}
	for _, tt := range []struct{ tenant, members string }{
		{"-2147483648", `"urgent":true,"tenant":-2147483648,"n":1,"s":"1",`},
		{"2147483648", `"urgent":true,"tenant":"2147483648","n":1,"s":"1",`},
	} {
		row := textRow(rel, idA, "placed", "o-1", `{"n": 1, "s": "1"}`, "t", tt.tenant)
		rec, err := routeOne(t, Mapping{Value: FormatCloudEvents, ValueFields: fields}, row)
		if err != nil || !strings.Contains(string(rec.Value), tt.members) {
			t.Errorf("%s, %v; want %s", rec.Value, err, tt.members)
		}
		rec, err = routeOne(t, Mapping{Value: FormatCloudEventsBinary, ValueFields: fields}, row)
		if err != nil {
			t.Fatal(err)
		}
		if attributes, _ := binaryMode(t, rec); attributes["urgent"] != "true" || attributes["tenant"] != tt.tenant {
			t.Errorf("%q", attributes)
		}
	}
}
