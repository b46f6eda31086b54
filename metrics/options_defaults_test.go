package metrics

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/test/defaults"
)

func TestOptions_CommentsStateTheDefaults(t *testing.T) {
	if n := defaults.Compare(t, "metrics.go", "Options", New(Options{}).options, nil); n != 1 {
		t.Errorf("%d comments name a default", n)
	}
}
