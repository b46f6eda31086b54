package config

import (
	"time"

	"github.com/cdc-relay/cdc-relay/sink/auth"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/producer"
	"github.com/cdc-relay/cdc-relay/sink/topics"
)

func wantKafka() producer.Config {
	return producer.Config{
		Connection: broker.Connection{Brokers: []string{"b1:9093", "[::1]:9093"},
			SASL: auth.SASL{Mechanism: "oauthbearer", OAuth: auth.OAuth{
				TokenEndpoint: "https://login.example.com/token", ClientID: "relay", Scope: "kafka", Extensions: map[string]string{"logicalCluster": "lkc-1"},
			}}},
		Compression: "zstd", Linger: 5 * time.Millisecond, MaxMessageBytes: 2 << 20,
		CreateTopics: topics.Creation{Enabled: true, Partitions: 6, ReplicationFactor: 3, Config: map[string]string{"retention.ms": "60000"}},
	}
}
