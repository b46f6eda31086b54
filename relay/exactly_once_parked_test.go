package relay

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/rs/zerolog"
)

// settling is a sink whose predecessor's last commit is on its way while it opens.
type settling struct {
	*transactional
	settle func()
}

func (s settling) Open(ctx context.Context, h sink.Holder) ([]byte, error) {
	s.settle()
	return s.transactional.Open(ctx, h)
}

// The transaction with which the predecessor parked a key may count until it is shut out.
// The position is behind the row then, so its letter is all that tells of the key.
func TestExactly_KnowsTheKeysThatThePredecessorParkedLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := newRejecting(newServer(fixed(110, 120, 1, "order/a/bad")))
		before.sink.Decide(refuseBad)
		before.run(t, Config{OnReject: DeadLetterOnReject, ParkKey: true})
		pass(time.Second)
		letters := before.log.messages()
		before.stop(t)
		if len(letters) != 1 {
			t.Fatalf("%d letters", len(letters))
		}

		server := newServer(fixed(110, 120, 1, "order/a/bad"), fixed(130, 140, 1, "order/a/2", "order/b/3"))
		server.origin = before.server.origin
		log := new(topicLog)
		l := &ledger{sim: calmSim()}
		to := settling{&transactional{l: l}, func() {
			if l.position != nil {
				return
			}
			rec := stored.Position{System: "7000", Timeline: 1, Slot: "orders", Publication: "orders", End: 120}
			l.position = rec.Encode()
			log.mu.Lock()
			defer log.mu.Unlock()
			log.put(*letters[0])
		}}
		routes := outboxRoutes(t)
		cfg := Config{Guarantee: ExactlyOnce, OnReject: DeadLetterOnReject, ParkKey: true, DeadLetterTopic: lettersTopic}
		cfg.Replication.Slot, cfg.Replication.Publication = "orders", "orders"
		relay := New(cfg, Parts{Source: server.open, Router: routes, Journal: log.reader(), Sink: func() (sink.Sink, error) { return to, nil }}, Events{}, zerolog.Nop())
		runFor(t, relay, 5*time.Second)
		if got := l.topics(); !slices.Equal(got, []string{lettersTopic + " 2", "order-events 3"}) {
			t.Errorf("committed %q", got)
		}
	})
}

// topics are the committed records, each with its topic.
func (l *ledger) topics() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.places)
}
