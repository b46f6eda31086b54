package check

import (
	"context"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestTopicLimit_IsWhatTheBrokersSay(t *testing.T) {
	brokers, err := sandbox.StartKafka(sandbox.KafkaOptions{Topics: map[string]int32{"orders": 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer brokers.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers.Addrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	limit := "4321"
	if _, err := kadm.NewClient(client).AlterTopicConfigs(context.Background(), []kadm.AlterConfig{{Name: "max.message.bytes", Value: &limit}}, "orders"); err != nil {
		t.Fatal(err)
	}
	at, err := broker.Connection{Brokers: brokers.Addrs()}.WithDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if bytes, err := TopicLimit(t.Context(), at, "orders"); bytes != 4321 || err != nil {
		t.Errorf("%d, %v", bytes, err)
	}
	if _, err := TopicLimit(t.Context(), at, "nothing"); err == nil || !strings.Contains(err.Error(), `"nothing"`) {
		t.Errorf("of a topic that does not exist: %v", err)
	}
}
