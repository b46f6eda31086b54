package kafka_test

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/cdc-relay/cdc-relay/sink/producer"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A hook belongs to one client: that of Prometheus writes its fields when it meets its client.
func TestNew_MakesHooksForEachClient(t *testing.T) {
	made := 0
	k, err := kafka.New(producer.Config{Connection: broker.Connection{Brokers: []string{"127.0.0.1:1"}}}, zerolog.Nop(), func() kgo.Hook { made++; return new(broker.Reach) })
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close(t.Context())
	if _, err := k.Options(); err != nil || made != 2 {
		t.Errorf("%d hooks for two clients: %v", made, err)
	}
}
