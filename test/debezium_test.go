package test

import (
	"regexp"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/parity"
)

// docs/debezium.md lists the cases in which the relay does not follow
// Debezium, each with the reason that the parity suite has.
func TestDocumentation_ListsTheExceptionsToParity(t *testing.T) {
	page := read(t, "docs/debezium.md")
	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9-]+)` \\| (.+) \\|$").FindAllStringSubmatch(page, -1) {
		documented[m[1]] = m[2]
	}
	for name, reason := range parity.Exceptions {
		if documented[name] != reason {
			t.Errorf("docs/debezium.md says %q of %s, and the suite %q", documented[name], name, reason)
		}
	}
	if len(parity.Exceptions) > 10 {
		t.Errorf("%d exceptions; ten are too many already", len(parity.Exceptions))
	}
}
