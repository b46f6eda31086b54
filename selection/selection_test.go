package selection_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/selection"
)

func TestTables_AreTheNamedOneOrAll(t *testing.T) {
	configured := []wal.Table{{Schema: "public", Name: "outbox"}, {Schema: "app", Name: "Events"}}
	for name, want := range map[string][]int{"": {0, 1}, "outbox": {0}, "PUBLIC.outbox": {0}, `app."Events"`: {1}} {
		if got, err := selection.Tables(configured, name); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v; want %v", name, got, err, want)
		}
	}
	for name, want := range map[string]string{
		"app.events": `--table app.events is not configured; allowed: public.outbox, app."Events"`,
		"a.b.c":      `--table: table name "a.b.c": more than two parts; write schema.table, with double quotes around a part that has upper case or other signs`,
	} {
		_, err := selection.Tables(configured, name)
		if _, is := errors.AsType[*advice.Usage](err); !is || err.Error() != want {
			t.Errorf("%q: %v, want %s", name, err, want)
		}
	}
}

func TestBetween_TakesTimesWithAZoneInTheirOrder(t *testing.T) {
	const first, second = "2026-01-31T00:00:00+01:00", "2026-01-31T00:00:00Z"
	from, to, err := selection.Between(first, second)
	if err != nil || to.Sub(from) != time.Hour {
		t.Errorf("%s to %s, %v", from, to, err)
	}
	if from, to, err = selection.Between("", ""); err != nil || !from.IsZero() || !to.IsZero() {
		t.Errorf("nothing given: %s to %s, %v", from, to, err)
	}
	for _, ends := range [][2]string{{second, first}, {first, first}, {"2026-01-31", ""}, {"", "yesterday"}} {
		_, _, err := selection.Between(ends[0], ends[1])
		if _, is := errors.AsType[*advice.Usage](err); !is {
			t.Errorf("%q: %v", ends, err)
		}
	}
}
