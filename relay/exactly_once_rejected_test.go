package relay

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
)

// recordsOf is a flight with the records that the router makes of one row, by value.
func recordsOf(s *session, row *wal.Row, values ...string) *flight {
	f := &flight{s: s, buf: new(record.Buffer)}
	for _, v := range values {
		f.buf.Records = append(f.buf.Records, record.Record{Nth: uint8(len(f.buf.Records)), Topic: "orders", Key: []byte("k"), Value: []byte(v), Row: row})
	}
	return f
}

// valuesOf are those of the records, letters in brackets.
func valuesOf(f *flight) (all []string) {
	for _, r := range f.buf.Records {
		if r.Topic == lettersTopic {
			all = append(all, "["+string(r.Value)+"]")
		} else {
			all = append(all, string(r.Value))
		}
	}
	return all
}

// A row may become several records, of which the brokers refuse one and then another.
func TestExactly_CondemnsTheRecordThatIsRefused(t *testing.T) {
	for policy, want := range map[OnReject][][]string{
		DeadLetterOnReject: {{"a", "[b]", "c"}, {"a", "[b]", "[c]"}, {"[a]", "[b]", "[c]"}},
		SkipOnReject:       {{"a", "c"}, {"a"}, nil},
	} {
		t.Run(string(policy), func(t *testing.T) {
			r, src := onceAt(100, 1)
			r.cfg.OnReject, r.cfg.DeadLetterTopic = policy, lettersTopic
			s := newSession(r, src)
			x := &exactlyOnce{s: s}
			s.delivery = x
			row := batch(110, 120, 1, "order/k/1").Rows[0]
			f := recordsOf(s, &row, "a", "b", "c")
			for i, refused := range []string{"b", "c", "a"} {
				at := slices.IndexFunc(f.buf.Records, func(r record.Record) bool { return string(r.Value) == refused })
				err := x.sentence(f.buf.Records[at:at+1], map[int]sink.Failure{0: {Class: sink.Rejected, Reason: "record_too_large", Err: errors.New("too large")}})
				if !errors.Is(err, errSentenced) {
					t.Fatal(err)
				}
				f = recordsOf(s, &row, "a", "b", "c")
				if err := x.replace(f, 0, &row); err != nil {
					t.Fatal(err)
				}
				if got := valuesOf(f); !slices.Equal(got, want[i]) {
					t.Errorf("%s is refused: %q, want %q", refused, got, want[i])
				}
			}
		})
	}
}

// A letter that the brokers refuse too goes on with less in it, whoever refused the row.
func TestExactly_ShortensLettersThatAreRefused(t *testing.T) {
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
				to := &transactional{l: l}
				routes, err := router.New(router.Config{Mappings: []router.Mapping{{Table: "public.outbox", Preset: "outbox"}}})
				if err != nil {
					t.Fatal(err)
				}
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
			})
		})
	}
}

// What lies behind the checkpoint is not judged any more.
func TestExactly_ForgetsVerdictsOfWhatIsCommitted(t *testing.T) {
	var v verdicts
	early, late := recordID{row: deadletter.Row{Commit: 120, Seq: 1}}, recordID{deadletter.Row{Commit: 320, Seq: 1}, 1}
	for _, id := range []recordID{early, late} {
		put(&v.condemned, id, condemned{reason: "record_too_large"})
		put(&v.strips, id, 1)
	}
	v.forget(&checkpoint.Record{End: 300})
	if len(v.condemned) != 1 || len(v.strips) != 1 || v.strips[late] != 1 {
		t.Errorf("kept %v and %v", v.condemned, v.strips)
	}
}
