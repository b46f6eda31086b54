package takeover

import (
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/debezium"
)

func TestSettingDifferences(t *testing.T) {
	theirs := []debezium.Setting{{Name: "a", Value: "1"}, {Name: "b", Value: "2"}, {Name: "c", Value: "3"}, {Name: "column.mask.hash.SHA-256.with.salt.SALTSECRET", Value: "x"}}
	ours := []debezium.Setting{{Name: "c", Value: "3 "}, {Name: "a", Value: "0"}, {Name: "d.password", Value: "SALTSECRET"}}
	want := []string{
		`a: connector "1", configuration "0"`, `b: connector "2", configuration none`,
		"column.mask.hash.SHA-256.with.salt.…: connector a value that is not shown, configuration none",
		"d.password: connector none, configuration a value that is not shown",
	}
	if got := settingDifferences(theirs, ours); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// What Debezium does without a setting is no difference from a block that leaves the setting
// out, for options of the connector and of its transform.
func TestSettingDifferences_OfDefaults(t *testing.T) {
	theirs := []debezium.Setting{
		{Name: "decimal.handling.mode", Value: "precise"},
		{Name: "transforms.outbox.route.by.field", Value: " AggregateType"},
		{Name: "transforms.outbox.table.field.event.key", Value: "order_id"},
		{Name: "transforms.route.by.field", Value: "aggregatetype"}, // no option of a transform
		{Name: "route.by.field", Value: "aggregatetype"},            // nor of the connector
		{Name: "other.outbox.route.by.field", Value: "aggregatetype"},
	}
	var got []string
	for _, each := range theirs {
		if settingDifferences([]debezium.Setting{each}, nil) != nil {
			got = append(got, each.Name)
		}
	}
	want := []string{"transforms.outbox.table.field.event.key", "transforms.route.by.field", "route.by.field", "other.outbox.route.by.field"}
	if !slices.Equal(got, want) {
		t.Errorf("differences in %q, want %q", got, want)
	}
}
