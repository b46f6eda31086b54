package topics_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// follow has a follower of the topic run until the test ends. The function gives the values
// that it visited.
func follow(t *testing.T, c *kfake.Cluster, topic string) (*topics.Follower, func() []string) {
	t.Helper()
	f := topics.NewFollower(broker.Connection{Brokers: c.ListenAddrs()}, topic, zerolog.Nop())
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var seen []string
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.Run(ctx, func(m *topics.Message) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, string(m.Value))
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		f.Close()
	})
	return f, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
}

func client(t *testing.T, c *kfake.Cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(c.ListenAddrs()...))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// A letter lies after the transaction of another pipeline that is not over. It counts, and
// nobody who reads what is committed sees it.
func TestFollower_WaitsForWhatATransactionHides(t *testing.T) {
	for name, end := range map[string]kgo.TransactionEndTry{"committed": kgo.TryCommit, "aborted": kgo.TryAbort} {
		t.Run(name, func(t *testing.T) {
			c := cluster(t, kfake.SeedTopics(1, "letters"))
			other := client(t, c, kgo.TransactionalID("other"))
			if err := other.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			for _, each := range []struct {
				by    *kgo.Client
				value string
			}{{client(t, c), "early"}, {other, "open"}, {client(t, c), "late"}} {
				if err := each.by.ProduceSync(t.Context(), &kgo.Record{Topic: "letters", Value: []byte(each.value)}).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			f, seen := follow(t, c, "letters")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := f.CatchUp(ctx, false); err != nil {
				t.Fatalf("with what can be read: %v", err)
			}
			hidesWithin(t, fault.ReasonLettersHidden, "", func(short context.Context, _ time.Duration) error { return f.CatchUp(short, true) })
			if got := seen(); !slices.Equal(got, []string{"early"}) {
				t.Errorf("visited %q before the transaction's end", got)
			}
			if err := other.EndTransaction(ctx, end); err != nil {
				t.Fatal(err)
			}
			if err := f.CatchUp(ctx, true); err != nil {
				t.Fatal(err)
			}
			want := []string{"early", "open", "late"}
			if end == kgo.TryAbort {
				want = []string{"early", "late"}
			}
			if got := seen(); !slices.Equal(got, want) {
				t.Errorf("visited %q, want %q", got, want)
			}
		})
	}
}

// hidesWithin wants the reason of what is called while an open transaction hides records. A short
// time may end before it comes to that: it has more then.
func hidesWithin(t *testing.T, reason, mentions string, call func(ctx context.Context, patience time.Duration) error) {
	t.Helper()
	for patience := 300 * time.Millisecond; ; patience *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := call(ctx, patience)
		cancel()
		if err == nil {
			t.Fatal("nothing is hidden")
		}
		if own, _ := errors.AsType[*sink.Error](err); own != nil && own.Reason == reason && own.Class == sink.Retry && strings.Contains(err.Error(), mentions) {
			return
		}
		if patience > time.Minute {
			t.Fatalf("behind an open transaction: %v", err)
		}
	}
}

// beforeKafka24 has the brokers refuse a topic with their own number of replicas, before they look whether
// it exists.
func beforeKafka24(c *kfake.Cluster) {
	c.ControlKey(int16(kmsg.CreateTopics), func(request kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := request.(*kmsg.CreateTopicsRequest)
		resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
		for _, topic := range req.Topics {
			if topic.ReplicationFactor > 0 {
				return nil, nil, false
			}
			resp.Topics = append(resp.Topics, kmsg.CreateTopicsResponseTopic{Topic: topic.Topic, ErrorCode: kerr.InvalidReplicationFactor.Code, ErrorMessage: kmsg.StringPtr("Replication factor must be larger than 0.")})
		}
		return resp, nil, true
	})
}

func TestCheckpointTopic_SaysWhatBrokersWithoutADefaultNeed(t *testing.T) {
	t.Parallel()
	c := cluster(t, kfake.MaxVersions(kversion.V2_1_0()))
	beforeKafka24(c)
	cfg := broker.Connection{Brokers: c.ListenAddrs()}
	_, err := topics.EnsureCheckpointTopic(t.Context(), cfg, topics.Creation{}, "positions", false)
	if err == nil || !strings.Contains(err.Error(), "set kafka.create_topics.replication_factor") {
		t.Errorf("without a number: %v", err)
	}
	if _, err := topics.EnsureCheckpointTopic(t.Context(), cfg, topics.Creation{ReplicationFactor: 1}, "positions", false); err != nil {
		t.Errorf("with one: %v", err)
	}
}

// A broker that has just started does not know the topic. Whoever took it for missing would
// go on without the letters in it.
func TestFollower_AsksTheControllerBeforeATopicCountsAsMissing(t *testing.T) {
	c := cluster(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "letters"))
	host, text, err := net.SplitHostPort(c.ListenAddrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	beforeKafka24(c)
	c.ControlKey(int16(kmsg.Metadata), func(request kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := request.(*kmsg.MetadataRequest)
		if len(req.Topics) == 0 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		resp.Brokers = []kmsg.MetadataResponseBroker{{NodeID: 0, Host: host, Port: int32(port)}}
		for _, topic := range req.Topics {
			resp.Topics = append(resp.Topics, kmsg.MetadataResponseTopic{ErrorCode: kerr.UnknownTopicOrPartition.Code, Topic: topic.Topic})
		}
		return resp, nil, true
	})
	for topic, want := range map[string]string{"letters": fault.ReasonMetadataStale, "others": "unknown_topic"} {
		f := topics.NewFollower(broker.Connection{Brokers: c.ListenAddrs()}, topic, zerolog.Nop())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var found *sink.Error
		if err := f.CatchUp(ctx, true); !errors.As(err, &found) || found.Reason != want {
			t.Errorf("%s: %v, want reason %s", topic, err, want)
		}
		cancel()
		f.Close()
	}
}
