package replication

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/test/defaults"
)

func TestConfig_CommentsStateTheDefaults(t *testing.T) {
	filled := withStreamDefaults(Config{ApplicationName: "cdc-relay"}, 0)
	if n := defaults.Compare(t, "config.go", "Config", filled, nil); n < 6 {
		t.Errorf("%d comments name a default", n)
	}
}
