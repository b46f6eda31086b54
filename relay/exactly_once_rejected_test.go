package relay

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/rs/zerolog"
)

// A letter that the brokers refuse too goes on with less in it, whoever refused the row.
func TestExactly_ShortensLettersThatAreRefused(t *testing.T) {
	shortensLetters(t, false)
}

// What the sink refuses by itself costs no session and no Kafka transaction, neither a row nor its
// letter.
func TestExactly_SetsAsideBeforehandWhatTheSinkRefuses(t *testing.T) {
	shortensLetters(t, true)
}

func shortensLetters(t *testing.T, knows bool) {
	t.Helper()
	for name, c := range map[string]struct {
		spec string
		cfg  Config
	}{
		"of a row that the router refuses":  {"/a/big", Config{}},
		"of a row that the brokers refuse":  {"order/a/big", Config{}},
		"of a row that follows another one": {"order/k/big", Config{ParkKey: true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(fixed(110, 120, 1, "order/k/bad", c.spec, "order/b/3"))
				server.origin = wal.Origin{SystemID: "7000", Timeline: 1}
				l := &ledger{sim: calmSim(), refuses: func(r *record.Record) bool {
					return string(r.Value) == "big" || string(r.Value) == "bad" && r.Topic != lettersTopic
				}}
				var to sink.Sink = &transactional{l: l}
				if knows {
					to = knowing{&transactional{l: l}}
				}
				routes := outboxRoutes(t)
				cfg := c.cfg
				cfg.Guarantee, cfg.OnReject, cfg.DeadLetterTopic = ExactlyOnce, DeadLetterOnReject, lettersTopic
				cfg.Replication.Slot, cfg.Replication.Publication = "orders", "orders"
				sessions := 0
				parts := Parts{Source: func(ctx context.Context) (Source, error) {
					if sessions++; sessions > 10 { // without it a loop would stop the clock
						return nil, &fault.Error{Kind: fault.KindRetry, Op: "start", Err: errors.New("enough")}
					}
					return server.open(ctx)
				}, Router: routes, Sink: func() (sink.Sink, error) { return to, nil }}
				if cfg.ParkKey {
					parts.Journal = new(topicLog).reader()
				}
				relay := New(cfg, parts, Events{}, zerolog.Nop())
				ctx, cancel := context.WithCancel(t.Context())
				result := make(chan error, 1)
				go func() { result <- relay.Run(ctx) }()
				pass(5 * time.Second)
				cancel()
				<-result
				want := []string{lettersTopic + " bad", lettersTopic + " ", "order-events 3"}
				if got := l.topics(); !slices.Equal(got, want) {
					t.Errorf("committed %q after %d sessions, want %q", got, sessions, want)
				}
				if knows && sessions != 1 {
					t.Errorf("%d sessions", sessions)
				}
			})
		})
	}
}
