package debezium

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/debezium/connect/codec"
	"github.com/cdc-relay/cdc-relay/debezium/connect/converter"
	"github.com/cdc-relay/cdc-relay/debezium/options"
	"github.com/cdc-relay/cdc-relay/debezium/transform"
)

// What is read has a row in the table of options, which carries it.
func TestDebeziumOptions_HaveARowForAllThatIsRead(t *testing.T) {
	for _, option := range codec.ModeOptions {
		if o, ok := options.Lookup(options.ScopeConnector, "", option); !ok || !o.Accepted() {
			t.Errorf("%s is read, and the table does not carry it", option)
		}
	}
	for _, class := range converter.Classes() {
		read, _ := converter.OptionsOf(class)
		for _, option := range read {
			if o, ok := options.Lookup(options.ScopeConverter, transform.ShortClass(class), option); !ok || !o.Accepted() {
				t.Errorf("option %s of %s is not in the table", option, class)
			}
		}
	}
}
