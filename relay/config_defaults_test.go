package relay

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/test/defaults"
)

func TestConfig_CommentsStateTheDefaults(t *testing.T) {
	names := map[string]any{"AtLeastOnce": AtLeastOnce, "WaitWhenBlocked": WaitWhenBlocked, "StopOnReject": StopOnReject}
	if n := defaults.Compare(t, "config.go", "Config", Config{}.WithDefaults(), names); n < 11 {
		t.Errorf("%d comments name a default", n)
	}
}
