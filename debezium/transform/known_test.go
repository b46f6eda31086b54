package transform

import (
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/debezium/options"
)

func TestChain_EveryTransformHasItsOptionsInTheTable(t *testing.T) {
	for _, class := range knownClasses {
		if strings.HasPrefix(class, packagePredicates) || class == ClassEventRouter {
			continue
		}
		found := slices.ContainsFunc(options.All, func(o options.Option) bool { return o.Scope == options.ScopeTransform && o.Of == ShortClass(class) })
		if !found && ShortClass(class) != "Filter" {
			t.Errorf("no option of transform %s is in the table", class)
		}
	}
}
