package options

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// testdata/worker_options.txt has every option that a Connect worker lists for
// Debezium's connector with an EventRouter (PUT /connector-plugins/…/config/validate).
func TestDebeziumOptions_HaveAFateForAllThatAWorkerLists(t *testing.T) {
	names, err := os.ReadFile(filepath.Join("testdata", "worker_options.txt"))
	if err != nil {
		t.Fatal(err)
	}
	listed := strings.Fields(string(names))
	if len(listed) < 150 {
		t.Fatalf("only %d options", len(listed))
	}
	for _, name := range listed {
		scope, short := ScopeConnector, name
		if rest, ok := strings.CutPrefix(name, "transforms.outbox."); ok {
			scope, short = ScopeEventRouter, rest
			if _, common := Lookup(ScopeTransform, "EventRouter", rest); common {
				continue
			}
		}
		if o, known := Lookup(scope, "", short); !known || o.Fate == "" {
			t.Errorf("%s has no fate", name)
		}
	}
}
