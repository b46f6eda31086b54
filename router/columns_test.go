package router

import (
	"slices"
	"strings"
	"testing"
)

const stringConverter = "org.apache.kafka.connect.storage.StringConverter"

func TestColumns_AreThoseThatRecordsAreMadeOf(t *testing.T) {
	rel := table(t, "id uuid", "aggregate_type varchar", "aggregate_id uuid", "event_type varchar", "payload jsonb", "created_at timestamptz", "tenant text", "wide text", "extra jsonb")
	debezium := func(more ...Setting) Mapping {
		return Mapping{Debezium: append([]Setting{
			{"topic.prefix", "shop"}, {"key.converter", stringConverter}, {"value.converter", stringConverter},
			{"transforms", "outbox"}, {"transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter"},
			{"transforms.outbox.table.field.event.key", "aggregate_id"}, {"transforms.outbox.route.by.field", "aggregate_type"},
		}, more...)}
	}
	for name, c := range map[string]struct {
		m    Mapping
		want string
	}{
		"outbox":           {Mapping{Preset: "outbox"}, "id aggregate_type aggregate_id event_type payload"},
		"a header":         {Mapping{Preset: "outbox", Headers: []HeaderMapping{{"tenant", "tenant"}}}, "id aggregate_type aggregate_id event_type payload tenant"},
		"a pointer":        {Mapping{Preset: "outbox", Columns: Columns{Key: "extra#/a"}}, "id aggregate_type event_type payload extra"},
		"a timestamp":      {Mapping{Preset: "outbox", Columns: Columns{Timestamp: "created_at"}}, "id aggregate_type aggregate_id event_type payload created_at"},
		"debezium options": {debezium(), "id aggregate_type aggregate_id payload"},
		"a placement": {
			debezium(Setting{"transforms.outbox.table.fields.additional.placement", "tenant:header:t,wide:envelope"}),
			"id aggregate_type aggregate_id payload tenant wide",
		},
		"rows that pass unrouted": {
			debezium(Setting{"transforms.outbox.predicate", "is"}, Setting{"predicates", "is"},
				Setting{"predicates.is.type", "org.apache.kafka.connect.transforms.predicates.TopicNameMatches"}, Setting{"predicates.is.pattern", ".*outbox"}),
			"id aggregate_type aggregate_id event_type payload created_at tenant wide extra",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := mustNew(t, c.m).Columns(rel)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, strings.Fields(c.want)) {
				t.Errorf("got %v, want %s", got, c.want)
			}
		})
	}
}

// What cannot be compiled has no columns.
func TestColumns_OfAMappingThatDoesNotFit(t *testing.T) {
	_, err := mustNew(t, Mapping{Preset: "outbox", Columns: Columns{Key: "absent"}}).Columns(table(t, "id uuid", "aggregatetype text", "payload jsonb"))
	if err == nil || !strings.Contains(err.Error(), "absent") {
		t.Errorf("got %v", err)
	}
}
