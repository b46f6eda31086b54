package postgres

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/test/defaults"
)

func TestConfig_CommentsStateTheDefaults(t *testing.T) {
	filled := Config{WalSenderTimeout: Config{}.SenderTimeout(), ApplicationName: defaultApplicationName}
	if n := defaults.Compare(t, "config.go", "Config", filled, nil); n < 2 {
		t.Errorf("%d comments name a default", n)
	}
}
