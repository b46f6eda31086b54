package config

import (
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
)

func wantKafka() sink.KafkaConfig {
	return sink.KafkaConfig{
		Connection: sink.Connection{Brokers: []string{"b1:9093", "[::1]:9093"},
			SASL: sink.SASL{Mechanism: "oauthbearer", OAuth: sink.OAuth{
				TokenEndpoint: "https://login.example.com/token", ClientID: "relay", Scope: "kafka", Extensions: map[string]string{"logicalCluster": "lkc-1"},
			}}},
		Compression: "zstd", Linger: 5 * time.Millisecond, MaxMessageBytes: 2 << 20,
		CreateTopics: sink.CreateTopics{Enabled: true, Partitions: 6, ReplicationFactor: 3, Config: map[string]string{"retention.ms": "60000"}},
	}
}
