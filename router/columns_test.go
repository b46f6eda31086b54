package router

import (
	"slices"
	"strings"
	"testing"
)

func TestPublishedColumns_AreThoseThatRecordsAreMadeOf(t *testing.T) {
	rel := table(t, "id uuid", "aggregate_type varchar", "aggregate_id uuid", "event_type varchar", "payload jsonb", "created_at timestamptz", "tenant text", "extra jsonb")
	for name, c := range map[string]struct {
		m    Mapping
		want string
	}{
		"outbox":      {Mapping{Preset: "outbox"}, "id aggregate_type aggregate_id event_type payload"},
		"a header":    {Mapping{Preset: "outbox", Headers: []HeaderMapping{{"tenant", "tenant"}}}, "id aggregate_type aggregate_id event_type payload tenant"},
		"a pointer":   {Mapping{Preset: "outbox", Columns: Columns{Key: "extra#/a"}}, "id aggregate_type event_type payload extra"},
		"a timestamp": {Mapping{Preset: "outbox", Columns: Columns{Timestamp: "created_at"}}, "id aggregate_type aggregate_id event_type payload created_at"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := mustNew(t, c.m).PublishedColumns(rel)
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
func TestPublishedColumns_OfAMappingThatDoesNotFit(t *testing.T) {
	_, err := mustNew(t, Mapping{Preset: "outbox", Columns: Columns{Key: "absent"}}).PublishedColumns(table(t, "id uuid", "aggregatetype text", "payload jsonb"))
	if err == nil || !strings.Contains(err.Error(), "absent") {
		t.Errorf("got %v", err)
	}
}
