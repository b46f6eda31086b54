package router

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// A row whose record went to the checkpoint topic could set the position of another relay, and one
// in the dead-letter topic could pass for a letter.
func TestRoute_RefusesAReservedTopic(t *testing.T) {
	reserved := record.Reserved{{Name: "positions", For: "the positions of relays"}, {Name: "letters", For: "dead letters"}}
	for topic, what := range map[string]string{"positions": "the positions of relays", "letters": "dead letters", "order": ""} {
		r, err := New(Config{Mappings: []Mapping{{Table: "public.outbox", Preset: "outbox", Topic: "${aggregate_type}"}}, Reserved: reserved})
		if err != nil {
			t.Fatal(err)
		}
		var b record.Buffer
		row := salvageRow(topic, "k", `{"a":1}`)
		err = r.Route(&b, row)
		if what == "" {
			if err != nil || len(b.Records) != 1 {
				t.Errorf("%s: %d records, %v", topic, len(b.Records), err)
			}
			continue
		}
		refused, ok := errors.AsType[*record.RowError](err)
		if !ok || refused.Reason != fault.ReasonRoute || !strings.Contains(err.Error(), "its topic is "+topic+", which is reserved for "+what) {
			t.Errorf("%s: %v", topic, err)
		}
		if len(b.Records) != 0 {
			t.Errorf("%s: %d records beside the error", topic, len(b.Records))
		}
		rec, missing := r.Salvage(&b, row)
		if rec.Topic != "" || !slices.Contains(missing, PartTopic) {
			t.Errorf("%s: salvaged with topic %q, without %q", topic, rec.Topic, missing)
		}
	}
}
