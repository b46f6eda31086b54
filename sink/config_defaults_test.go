package sink

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/test/defaults"
	"github.com/rs/zerolog"
)

func TestKafkaConfig_CommentsStateTheDefaults(t *testing.T) {
	filled, err := KafkaConfig{Connection: Connection{Brokers: []string{"127.0.0.1:1"}}}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if n := defaults.Compare(t, "kafka_config.go", "KafkaConfig", filled, nil); n < 1 {
		t.Errorf("%d comments name a default", n)
	}
}

func TestConnection_CommentsStateTheDefaults(t *testing.T) {
	filled, err := Connection{Brokers: []string{"127.0.0.1:1"}}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if n := defaults.Compare(t, "broker_connection.go", "Connection", filled, nil); n < 1 {
		t.Errorf("%d comments name a default", n)
	}
}

func TestTransactionalConfig_CommentsStateTheDefaults(t *testing.T) {
	k, err := NewTransactional(TransactionalConfig{KafkaConfig: KafkaConfig{Connection: Connection{Brokers: []string{"127.0.0.1:1"}}}, CheckpointTopic: "positions"}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = k.Close(t.Context()) }()
	if n := defaults.Compare(t, "transactional.go", "TransactionalConfig", k.cfg, nil); n < 3 {
		t.Errorf("%d comments name a default", n)
	}
}
