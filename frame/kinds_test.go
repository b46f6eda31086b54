package frame

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/relay/status/statustest"
	"github.com/cdc-relay/cdc-relay/ways"
)

// Each kind of status as a terminal of the usual size shows it, with what to do.
func TestLines_OfEachKind(t *testing.T) {
	all := statustest.All()
	var got strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		m := Model{Status: all[name], Now: statustest.Now}
		if o := m.Status.Obstacle; o != nil {
			facts := ways.Facts{Slot: o.Slot, Position: "16/B374D849", Brokers: "b1:9092,b2:9092", Stops: true}
			if o.Row != nil {
				facts.Table, facts.Topic, facts.Bytes = o.Row.Table, o.Row.Topic, o.Row.Bytes
			}
			m.Ways = ways.Out(o.Reason, facts)
		}
		got.WriteString("-- " + name + " --\n" + strings.Join(Lines(&m, Size{Width: 80, Height: 24}), "\n") + "\n")
	}
	const file = "testdata/kinds.golden"
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}
}
