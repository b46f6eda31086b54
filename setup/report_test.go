package setup

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/relay"
)

// Rows from before a slot were never sent, or an earlier slot sent some of them: the note has a way
// for both.
func TestReport_SaysWhatSendsTheRowsFromBeforeTheSlot(t *testing.T) {
	for _, tt := range []struct {
		dryRun bool
		want   string
	}{
		{false, "drop the slot and run `cdc-relay backfill`"},
		{true, "run `cdc-relay backfill` instead of setup"},
	} {
		var said strings.Builder
		say := func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }
		New(relay.Config{}, "", say, say).printReport(&provision.SetupReport{RowsBefore: map[string]int64{"public.outbox": 3, "public.empty": 0}}, tt.dryRun)
		want := "note: 3 rows in public.outbox from before the slot will not be sent; to send them, " + tt.want +
			"; if an earlier slot sent some of them, `cdc-relay audit` says which are missing, and `cdc-relay replay` sends those\n"
		if said.String() != want {
			t.Errorf("%s\nwant\n%s", said.String(), want)
		}
	}
}
