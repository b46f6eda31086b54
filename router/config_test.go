package router

import (
	"regexp"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/router/format"
)

// wayOut is how a message says what to do, or what is allowed.
var wayOut = regexp.MustCompile("; |use |there are |it has |a name |is written |the syntax is ")

func TestNew_ReportsEverythingAtOnceWithItsPlace(t *testing.T) {
	_, err := New(Config{Mappings: []Mapping{
		{Table: "good"},
		{
			Preset: "debezum", Topic: "a b/${x|trim}", TopicRegex: "(?=x)", Key: "avro", Value: "protobuff", Partition: "a#/~",
			Columns:     Columns{Key: "payload#/~9"},
			Headers:     []HeaderMapping{{"", "x"}, {"h", " "}, {"i", "${"}, {"j", "c#/~"}},
			ValueFields: []Field{{"f", "c"}},
		},
		{Topic: "or/ders-${x}"},
		{Topic: strings.Repeat("x", 250)},
		{Topic: "x.${routedByValue}", TopicRegex: "(?<other>.*)"},
		{Preset: "generic-event", TopicRegex: ".*"},
		{TopicRegex: "(?<other>.*)"},
		{Value: format.Envelope, ValueFields: []Field{{"payload", "c"}, {"f", "c"}, {"f", "d"}, {"g", ""}, {"", "x"}, {"h", "c#/~"}}},
		{Topic: "   "},
	}})
	var got strings.Builder
	for _, e := range ConfigErrors(err) {
		got.WriteString(e.Error() + "\n")
		if !wayOut.MatchString(e.Error()) {
			t.Errorf("%v: and what is to be done?", e)
		}
	}
	golden(t, "config_errors", got.String())
}

func TestCheck_NamesTableColumnAndTheColumnsThereAre(t *testing.T) {
	rel := table(t, append(outboxColumns, "blob oid", "flag bool")...)
	var got strings.Builder
	for _, m := range []Mapping{
		{
			Columns: Columns{Key: "aggregat_id", Timestamp: "when", Headers: "nope#/x"}, Partition: "tenant",
			Topic: "${eventType}.${none}", Headers: []HeaderMapping{{"h", "x"}, {"i", "${y}-${z}"}},
			Value: format.Merged, ValueFields: []Field{{"f", "w"}},
		},
		{Columns: Columns{Payload: "blob"}},
		{Columns: Columns{Key: "extra"}},
		{Columns: Columns{Key: "blob"}},
		{Columns: Columns{Headers: "at", Timestamp: "flag", Key: "at#/x"}},
		{Preset: "debezium"},
		{Preset: "generic-topic"},
		{Preset: "generic"},
		{Columns: Columns{Type: "none"}, Preset: "debezium", Topic: "x"},
		{Preset: "generic-event", Topic: "${routedByValue}"},
	} {
		m.Table = "public.outbox"
		_, err := mustNew(t, m).Pin(rel)
		for _, e := range ConfigErrors(err) {
			got.WriteString(e.Error() + "\n")
			if !wayOut.MatchString(e.Error()) {
				t.Errorf("%v: and what is to be done?", e)
			}
		}
		if err == nil {
			t.Errorf("%+v passes", m)
		}
		got.WriteString("\n")
	}
	golden(t, "check_errors", got.String())
}

func TestAuto_AmbiguityIsAnErrorWithABlockToPaste(t *testing.T) {
	var got strings.Builder
	for _, columns := range [][]string{
		{"id uuid", "aggregate text", "entity_type text", "event_type text", "payload jsonb"},
		{"id uuid", "event_type text", "type text", "payload jsonb"},
		{"id uuid", "event_type text", "payload jsonb", "data jsonb"},
		{"id uuid", "event_type text", "payload jsonb", "aggregate_id text", "partition_key text"},
		{"message_id uuid", "event_id uuid", "event_type text", "payload jsonb"},
		{"id uuid", "aggregate text", "channel text", "payload jsonb"},
		{"id uuid", "event_type text", "payload jsonb", "headers jsonb", "metadata jsonb"},
		{"id uuid", "aggregatetype text", "aggregate_type text", "aggregateid text", "type text", "payload jsonb"},
		{"id uuid", "aggregatetype text", "aggregateid text", "partition_key text", "type text", "payload jsonb", "body text"},
		{"id uuid", "aggregatetype text", "aggregateid text", "type text", "payload jsonb", "topic text", "channel text"},
		{"id uuid", "ID uuid", "aggregatetype text", "aggregateid text", "type text", "payload jsonb"},
		{"id uuid", "aggregatetype text", "aggregateid text", "type text", "timestamp timestamp", "payload text", "tracingspancontext text", "key text"},
		{"id uuid", "aggregate_type text", "aggregate_id text", "event_type text", "payload jsonb", "key text"},
		{"id uuid", "aggregate_type text", "entity_type text", "aggregate_id text", "event_type text", "type text", "payload jsonb"},
		{"id text", "aggregateType text", "aggregateId text", "eventName text", "payload jsonb", "partitionKey text"},
		{"id uuid", "event_type text"},
		{"id uuid", "payload jsonb", "kind text"},
		{"a text", "b text"},
	} {
		rel := table(t, columns...)
		_, err := mustNew(t, Mapping{}).Pin(rel)
		if err == nil {
			t.Errorf("%q passes", columns)
			continue
		}
		got.WriteString(strings.Join(columns, ", ") + "\n" + err.Error() + "\n\n")
		if strings.Contains(err.Error(), "COLUMN") {
			continue
		}
		if _, err := mustNew(t, pasted(t, err.Error())).Pin(rel); err != nil {
			t.Errorf("the block to paste gives %v", err)
		}
	}
	golden(t, "auto_errors", got.String())
}

// What the configuration says already is in the block too: it replaces the entry.
func TestAuto_TheBlockKeepsWhatIsConfigured(t *testing.T) {
	rel := table(t, "id uuid", "ref text", "aggregatetype text", "aggregateid text", "type text", "payload jsonb", "body jsonb", "topic text")
	_, err := mustNew(t, Mapping{Columns: Columns{Key: "ref"}, Topic: "orders.${aggregatetype}"}).Pin(rel)
	const want = "outbox:\n  - table: public.outbox\n    preset: debezium\n    columns:\n      key: ref\n      payload: payload # or body\n    topic: 'orders.${aggregatetype}'"
	if err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v", err)
	}
}

// A type matters to who may be told apart by it: CloudEvents have it, Debezium's
// records do not.
func TestAuto_ARoleThatNoRecordShowsIsNotAmbiguous(t *testing.T) {
	rel := table(t, "id uuid", "aggregatetype text", "aggregateid text", "type text", "event_type text", "payload jsonb")
	if _, err := mustNew(t, Mapping{}).Pin(rel); err != nil {
		t.Error(err)
	}
	if _, err := mustNew(t, Mapping{Value: format.CloudEvents}).Pin(rel); err == nil || !strings.Contains(err.Error(), "any of type, event_type could be the type") {
		t.Errorf("%v", err)
	}
}

// pasted is the mapping in the block at the end of an error's text.
func pasted(t *testing.T, text string) Mapping {
	var m Mapping
	_, block, _ := strings.Cut(text, "  - table: public.outbox\n")
	for line := range strings.Lines(block) {
		if strings.TrimSpace(line) == "columns:" {
			continue
		}
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		value, _, _ = strings.Cut(value, " # ")
		switch key {
		case "id":
			m.Columns.ID = value
		case "key":
			m.Columns.Key = value
		case "route":
			m.Columns.Route = value
		case "type":
			m.Columns.Type = value
		case "payload":
			m.Columns.Payload = value
		case "headers":
			m.Columns.Headers = value
		case "topic":
			m.Topic = value
		case "preset":
			m.Preset = value
		default:
			t.Fatalf("line %q", line)
		}
	}
	return m
}

func TestAuto_Chooses(t *testing.T) {
	var got strings.Builder
	for _, c := range []struct {
		m       Mapping
		columns []string
	}{
		{Mapping{}, []string{"id text", "aggregateType text", "aggregateId text", "eventType text", "payload jsonb", "createdAt timestamp"}},
		{Mapping{}, []string{"id int8", "kafka_topic varchar", "kafka_key varchar", "kafka_value varchar", "create_time timestamptz", "headers _text"}},
		{Mapping{}, []string{"id int8", "topic text", "aggregate_type text", "aggregate_id text", "event_type text", "payload jsonb", "available_at timestamptz"}},
		{Mapping{}, []string{"id int8", "event_id uuid", "event_type text", "payload jsonb", "metadata text", "traceparent text"}},
		{Mapping{Preset: "outbox"}, []string{"id uuid", "aggregate_type text", "aggregate_id text", "event_type text", "payload jsonb", "partition_key text", "metadata jsonb"}},
		{Mapping{Columns: Columns{Key: "aggregate_id"}}, []string{"id uuid", "aggregate_type text", "aggregate_id text", "event_type text", "payload jsonb", "partition_key text"}},
		{Mapping{}, []string{"id uuid", "event_id text", "aggregate_type text", "aggregate_id text", "payload jsonb", "key jsonb", "value int4", "entity_type int4"}},
		{Mapping{}, []string{"id uuid", "aggregatetype varchar", "aggregateid varchar", "type varchar", "event_type text", "payload jsonb", "headers jsonb"}},
		{Mapping{Preset: "debezium"}, []string{"id uuid", "aggregatetype varchar", "aggregate_type varchar", "aggregateid varchar", "type varchar", "payload jsonb", "topic text"}},
		{Mapping{Columns: Columns{Route: "aggregatetype"}}, []string{"id uuid", "aggregatetype varchar", "aggregateid varchar", "type varchar", "payload jsonb", "topic text"}},
		{Mapping{}, []string{"id uuid", "aggregatetype varchar", "aggregateid varchar", "type varchar", "payload varchar", "timestamp timestamp", "tracingspancontext varchar"}},
		{Mapping{Columns: Columns{Key: "customer"}}, []string{"id uuid", "aggregatetype varchar", "aggregateid varchar", "customer text", "payload varchar"}},
		{Mapping{Columns: Columns{ID: "a", Key: "b", Route: "c", Payload: "d"}}, []string{"a uuid", "b text", "c text", "d jsonb"}},
		{Mapping{Columns: Columns{Payload: "body"}}, []string{"id uuid", "event_type text", "payload jsonb", "body jsonb"}},
		{Mapping{Topic: "orders"}, []string{"id uuid", "payload jsonb"}},
		{Mapping{Topic: "x.${kind}", Columns: Columns{Type: "kind"}}, []string{"id uuid", "payload jsonb", "kind text"}},
		{Mapping{Preset: "outbox", Topic: "orders"}, []string{"id uuid", "aggregate_id text", "payload jsonb"}},
		{Mapping{Preset: "debezium", TopicRegex: "(?<routedByValue>.*)", Columns: Columns{Type: "type"}, Headers: []HeaderMapping{{"id", "aggregateid"}}}, []string{"id uuid", "aggregatetype varchar", "aggregateid varchar", "type varchar", "payload jsonb"}},
		{Mapping{Preset: "generic-event"}, []string{"id uuid", "name text", "data jsonb", "stream_id text"}},
	} {
		rel := table(t, c.columns...)
		e, err := mustNew(t, c.m).Pin(rel)
		if err != nil {
			t.Errorf("%q: %v", c.columns, err)
			continue
		}
		got.WriteString("columns   " + strings.Join(c.columns, ", ") + "\n" + showExplanation(e) + "\n")
	}
	golden(t, "auto_choices", got.String())
}

func TestCheck_ColumnOfTheWholeNameWinsOverAPointer(t *testing.T) {
	rel := table(t, "id uuid", "aggregate_type text", "payload json", "a#/b text", "a json")
	rec, err := routeOne(t, Mapping{Columns: Columns{Key: "a#/b"}}, textRow(rel, testID, "order", "{}", "whole", `{"b":"inside"}`))
	if err != nil || string(rec.Key) != "whole" {
		t.Errorf("key %q, %v", rec.Key, err)
	}
}

func TestRegexError_NamesTheExpressionOfTheUser(t *testing.T) {
	for _, expr := range []string{"(", "a)(b", "(?<a_>.*)(?=x)", `\1`, "x++"} {
		_, err := New(Config{Mappings: []Mapping{{TopicRegex: expr}}})
		if err == nil || strings.Contains(err.Error(), `\A`) {
			t.Errorf("%q: %v", expr, err)
		}
	}
}
