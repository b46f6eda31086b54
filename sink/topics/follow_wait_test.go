package topics_test

import (
	"context"
	"testing"

	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A relay that takes over catches up with an idle topic while nobody answers the server.
func TestFollower_AsksBrokersToAnswerSoon(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "letters"))
	waits := make(chan int32, 1)
	c.ControlKey(int16(kmsg.Fetch), func(request kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		select {
		case waits <- request.(*kmsg.FetchRequest).MaxWaitMillis:
		default:
		}
		return nil, nil, false
	})
	f := topics.NewFollower(broker.Connection{Brokers: c.ListenAddrs()}, "letters", zerolog.Nop())
	defer f.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.Run(ctx, func(*topics.Message) {})
	}()
	if got := <-waits; got > 200 {
		t.Errorf("brokers may keep a fetch for %d ms, want 200 at most", got)
	}
	cancel()
	<-ended
}
