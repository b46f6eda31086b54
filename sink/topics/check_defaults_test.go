package topics

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/test/defaults"
)

func TestCheckConfig_CommentsStateTheDefaults(t *testing.T) {
	c, err := newChecker(t.Context(), CheckConfig{Connection: broker.Connection{Brokers: []string{"127.0.0.1:1"}}}, Expected{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.client.Close()
	if n := defaults.Compare(t, "check.go", "CheckConfig", c.cfg, nil); n != 1 {
		t.Errorf("%d comments name a default", n)
	}
}
