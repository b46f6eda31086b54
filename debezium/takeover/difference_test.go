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
