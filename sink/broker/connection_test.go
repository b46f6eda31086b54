package broker

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/test/defaults"
)

func TestConnection_CommentsStateTheDefaults(t *testing.T) {
	filled, err := Connection{Brokers: []string{"127.0.0.1:1"}}.WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if n := defaults.Compare(t, "connection.go", "Connection", filled, nil); n < 1 {
		t.Errorf("%d comments name a default", n)
	}
}
