package debezium

import (
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/debezium/connect"
	"github.com/cdc-relay/cdc-relay/debezium/options"
)

// What is read has a row in the table of options, which carries it.
func TestDebeziumOptions_HaveARowForAllThatIsRead(t *testing.T) {
	for _, option := range connect.ModeOptions {
		if o, ok := options.Find(options.ScopeConnector, "", option); !ok || !o.Accepted() {
			t.Errorf("%s is read, and the table does not carry it", option)
		}
	}
	for _, class := range connect.ConverterClasses() {
		read, _ := connect.ConverterOptions(class)
		for _, option := range read {
			if o, ok := options.Find(options.ScopeConverter, shortClass(class), option); !ok || !o.Accepted() {
				t.Errorf("option %s of %s is not in the table", option, class)
			}
		}
	}
	for _, class := range knownClasses {
		if strings.HasPrefix(class, packagePredicates) || class == classEventRouter {
			continue
		}
		found := slices.ContainsFunc(options.All, func(o options.Option) bool { return o.Scope == options.ScopeTransform && o.Of == shortClass(class) })
		if !found && shortClass(class) != "Filter" {
			t.Errorf("no option of transform %s is in the table", class)
		}
	}
}
