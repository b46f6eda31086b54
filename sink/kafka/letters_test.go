package kafka_test

import (
	"errors"
	"testing"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/cdc-relay/cdc-relay/sink/producer"
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
		k, err := kafka.New(producer.Config{Connection: broker.Connection{Brokers: c.ListenAddrs()}, DeadLetterTopic: topic}, zerolog.Nop())
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

// Somebody compacts the topic while the relay runs, and sets it right later.
func TestKafka_WritesNoDeadLetterToACompactedTopic(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "letters", "orders"))
	k := open(t, c, func(cfg *producer.Config) { cfg.DeadLetterTopic = "letters" })
	if err := k.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	heals(t, k, newRecord("letters", "k", "while it keeps them"))
	setPolicy(t, c, "letters", "compact")
	if err := k.LettersKept(t.Context()); err == nil {
		t.Error("nothing is said of a topic that was compacted")
	}
	heals(t, k, newRecord("orders", "k", "row"))
	wantFailure(t, sendOne(t, k, newRecord("letters", "k", "while it is compacted")), sink.Blocked, fault.ReasonDeadLetterTopic, "cleanup.policy=compact", "--add-config cleanup.policy=delete")
	setPolicy(t, c, "letters", "delete")
	heals(t, k, newRecord("letters", "k", "once it is right")) // though nobody but Send looks at it
	if got := read(t, c, "letters"); len(got) != 2 || string(got[0].Value) != "while it keeps them" || string(got[1].Value) != "once it is right" {
		t.Errorf("letters: %v", got)
	}
}

func setPolicy(t *testing.T, c *kfake.Cluster, topic, policy string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "cleanup.policy", Value: &policy}}, topic); err != nil {
		t.Fatal(err)
	}
}
