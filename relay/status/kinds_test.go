package status_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/relay/status/statustest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Each kind of status in one sentence, and as status prints it.
func TestText_OfEachKind(t *testing.T) {
	all := statustest.All()
	var got strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&got, "-- %s --\n%s", name, status.Text(all[name], statustest.Now))
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
