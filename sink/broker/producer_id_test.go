package broker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/sink/broker"
)

// Brokers that are not ready may still refuse a producer id once they are.
func TestAskProducerID_AsksUntilBrokersAnswer(t *testing.T) {
	t.Parallel()
	for _, ready := range []*kerr.Error{nil, kerr.ClusterAuthorizationFailed} {
		c, err := kfake.NewCluster(kfake.NumBrokers(1))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RequestRetries(0))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		var asked atomic.Int32
		early := func(kmsg.Request) bool { return asked.Add(1) <= 3 }
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, TopLevel: true, Err: kerr.CoordinatorLoadInProgress, Count: -1, When: early})
		if ready != nil {
			c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, TopLevel: true, Err: ready, Count: -1, When: func(kmsg.Request) bool { return asked.Load() > 3 }})
		}
		err = broker.AskProducerID(t.Context(), client)
		if ready == nil && err != nil || ready != nil && !errors.Is(err, ready) {
			t.Errorf("%v, want %v", err, ready)
		}
		if n := asked.Load(); n < 4 {
			t.Errorf("it asked %d times", n)
		}
	}
}

func TestAskProducerID_EndsWithItsContextAndWithTheClient(t *testing.T) {
	t.Parallel()
	client, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:1"), kgo.RequestRetries(0)) // nobody listens there
	if err != nil {
		t.Fatal(err)
	}
	over := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(over)
	if err := broker.AskProducerID(ctx, client); !errors.Is(err, over) {
		t.Errorf("%v, want the cause of the context's end", err)
	}
	outcome := make(chan error, 1)
	go func() { outcome <- broker.AskProducerID(context.Background(), client) }()
	client.Close()
	if err := <-outcome; !errors.Is(err, kgo.ErrClientClosed) {
		t.Errorf("%v, want %v", err, kgo.ErrClientClosed)
	}
}
