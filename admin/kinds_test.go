package admin

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/relay/status/statustest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Each kind of status as the interface answers it: the status, and what stands in the way with its runbook entry
// and the ways out. Both are as the OpenAPI file describes them.
func TestAPI_AnswersOfEachKind(t *testing.T) {
	d, all := description(t), statustest.All()
	var got bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(all)) {
		c, _ := consoleOf(t, Config{Listen: local}, func() status.Status { return all[name] }, tools())
		for _, path := range []string{"/api/v1/status", "/api/v1/obstacle"} {
			w := c.get(path)
			got.WriteString("-- " + name + ": " + path + " --\n")
			if path != "/api/v1/status" {
				d.fits(t, "GET", path, w)
			}
			if w.Code != 200 || json.Indent(&got, w.Body.Bytes(), "", " ") != nil {
				t.Errorf("%s of %s: %d %s", path, name, w.Code, w.Body)
			}
		}
	}
	const file = "testdata/kinds.golden"
	if *update {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the answers changed: run with -update and look at the difference of %s", file)
	}
}
