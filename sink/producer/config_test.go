package producer

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/test/defaults"
)

func TestConfig_CommentsStateTheDefaults(t *testing.T) {
	filled, err := Config{Connection: broker.Connection{Brokers: []string{"127.0.0.1:1"}}}.WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if n := defaults.Compare(t, "config.go", "Config", filled, nil); n < 1 {
		t.Errorf("%d comments name a default", n)
	}
}
