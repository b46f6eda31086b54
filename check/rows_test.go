package check

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/postgres/preflight"
)

// Next to "2 of the 16 newest rows would be rejected" it cannot be said that all 16 were routed.
func TestRows_OnlyThoseThatWereRoutedAreOK(t *testing.T) {
	for rejected, want := range map[int]string{
		0: ": the 16 newest rows routed on trial, to orders",
		2: ": 14 of the 16 newest rows routed on trial, to orders",
	} {
		d := new(checker)
		d.outcome(preflight.CheckedTable{}, &trial{rows: 16, rejected: rejected, topics: map[string]int{"orders": 16 - rejected}})
		if got := d.findings[len(d.findings)-1].Seen; !strings.HasSuffix(got, want) {
			t.Errorf("%d rejected: %q, want %q", rejected, got, want)
		}
	}
}
