package kafka_test

import (
	"errors"
	"testing"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestReady_WantsEveryDeadLetterKept(t *testing.T) {
	c := cluster(t, kfake.NumBrokers(1))
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	for name, policy := range map[string]string{"keeps": "delete", "compacts": "compact", "does-both": "compact,delete"} {
		if _, err := admin.CreateTopic(t.Context(), 1, 1, map[string]*string{"cleanup.policy": kadm.StringPtr(policy)}, name); err != nil {
			t.Fatal(err)
		}
	}
	for topic, want := range map[string]bool{"": false, "missing": false, "keeps": false, "compacts": true, "does-both": true} {
		k, err := kafka.New(kafka.Config{Connection: broker.Connection{Brokers: c.ListenAddrs()}, DeadLetterTopic: topic}, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		err = k.Ready(t.Context())
		var refused *sink.Error
		if got := errors.As(err, &refused) && refused.Class == sink.Blocked && refused.Reason == fault.ReasonDeadLetterTopic; got != want || !want && err != nil {
			t.Errorf("topic %q: %v", topic, err)
		}
		_ = k.Close(t.Context())
	}
}
