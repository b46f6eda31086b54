package kafkatx_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/kafkatx"
	"github.com/cdc-relay/cdc-relay/sink/producer"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestTransactional_WantsItsTopicAsItMustBe(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), guardTime)
	defer cancel()
	for topic, c := range map[string]struct {
		partitions int32
		policy     string
		mentions   string
	}{
		"missing": {0, "", "cdc-relay setup"},
		"wide":    {3, "compact", "has 3 partitions"},
		"deleted": {1, "delete", "cleanup.policy=compact"},
		"both":    {1, "compact,delete", "cleanup.policy=compact"},
	} {
		brokers := cluster(t)
		if c.partitions > 0 {
			if err := brokers.CreateTopic(topic, c.partitions, map[string]string{"cleanup.policy": c.policy}); err != nil {
				t.Fatal(err)
			}
		}
		x := transactional(t, brokers, func(cfg *kafkatx.Config) { cfg.CheckpointTopic = topic })
		err := x.Ready(ctx)
		var e *sink.Error
		if !errors.As(err, &e) || e.Class != sink.Blocked || e.Reason != fault.ReasonCheckpointTopic || !strings.Contains(err.Error(), c.mentions) {
			t.Errorf("topic %s: %v", topic, err)
		}
		missing, err := topics.EnsureCheckpointTopic(ctx, broker.Connection{Brokers: brokers.ListenAddrs()}, topics.Creation{}, topic, false)
		if c.partitions > 0 {
			if err == nil {
				t.Errorf("topic %s: setup leaves it as it is", topic)
			}
			continue
		}
		if err != nil || !missing {
			t.Errorf("topic %s: missing %t, %v", topic, missing, err)
		}
		x = transactional(t, brokers, func(cfg *kafkatx.Config) { cfg.CheckpointTopic = topic })
		if err := x.Ready(ctx); err != nil {
			t.Errorf("topic %s, made by setup: %v", topic, err)
		}
	}
}

// Positions must not be lost with one broker, where there are others.
func TestCheckpointTopic_NeedsTwoReplicasInSyncOfThree(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		brokers int
		factor  int16
		own     string // what the brokers say that a topic has by default
		want    string
	}{
		"one broker":                     {1, -1, "", ""},
		"two replicas":                   {3, 2, "", ""},
		"three replicas":                 {3, 3, "", "2"},
		"three replicas by default":      {3, -1, "", "2"},
		"brokers that ask for two":       {3, 3, "2", ""},
		"brokers that ask for all three": {3, 3, "3", ""},
		"brokers that ask for one":       {3, 3, "1", "2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			brokers := cluster(t, kfake.NumBrokers(c.brokers))
			brokers.ControlKey(int16(kmsg.CreateTopics), func(r kmsg.Request) (kmsg.Response, error, bool) {
				brokers.KeepControl()
				req := r.(*kmsg.CreateTopicsRequest)
				if !req.ValidateOnly || c.own == "" {
					return nil, nil, false
				}
				resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
				topic := kmsg.NewCreateTopicsResponseTopic()
				topic.Topic, topic.ReplicationFactor = req.Topics[0].Topic, req.Topics[0].ReplicationFactor
				config := kmsg.NewCreateTopicsResponseTopicConfig()
				config.Name, config.Value = "min.insync.replicas", &c.own
				topic.Configs = append(topic.Configs, config)
				resp.Topics = append(resp.Topics, topic)
				return resp, nil, true
			})
			cfg := producer.Config{Connection: broker.Connection{Brokers: brokers.ListenAddrs()}, CreateTopics: topics.Creation{ReplicationFactor: c.factor}}
			if _, err := topics.EnsureCheckpointTopic(t.Context(), cfg.Connection, cfg.CreateTopics, "positions", false); err != nil {
				t.Fatal(err)
			}
			got := ""
			if v := brokers.TopicInfo("positions").Configs["min.insync.replicas"]; v != nil {
				got = *v
			}
			if got != c.want {
				t.Errorf("min.insync.replicas is %q, want %q", got, c.want)
			}
		})
	}
}
