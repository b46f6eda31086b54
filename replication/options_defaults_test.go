package replication

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/test/defaults"
)

func TestOptions_CommentsStateTheDefaults(t *testing.T) {
	if n := defaults.Compare(t, "options.go", "Options", Options{}.withDefaults(0), nil); n < 4 {
		t.Errorf("%d comments name a default", n)
	}
}
