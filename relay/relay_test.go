package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
	"github.com/rs/zerolog"
)

func TestRelay_ConfirmsOnlyWhatIsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{server: newServer(fixed(110, 120, 1, "order/a/1", "order/b/2"), fixed(130, 140, 1, "order/a/3")), sink: new(sinktest.Recorder), result: make(chan error, 1)}
		b.sink.Hold()
		b.start(t, Config{})
		pass(time.Second)
		if got := b.server.position(); got != 100 {
			t.Fatalf("confirmed %s before any acknowledgement", got)
		}
		b.sink.Ack(2)
		pass(time.Second)
		if got := b.server.position(); got != 120 {
			t.Fatalf("confirmed %s after the first transaction, want 120", got)
		}
		b.sink.Release()
		b.stop(t)
		if got := b.server.position(); got != 140 {
			t.Fatalf("confirmed %s at the end, want 140", got)
		}
		if got := b.values(); got != "1 2 3" {
			t.Fatalf("delivered %q", got)
		}
	})
}

func TestRelay_RetriesOnlyWhatIsNotDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := make([]string, 10_001)
		for i := range rows {
			rows[i] = fmt.Sprintf("order/k%d/%d", i%7, i)
		}
		rows[10_000] = "order/k0/bad"
		b := &bench{server: newServer(fixed(110, 120, 1, rows...), fixed(130, 140, 1, "order/k0/after")), sink: new(sinktest.Recorder), result: make(chan error, 1)}
		var healed atomic.Bool
		b.sink.Decide(func(r *record.Record) sinktest.Verdict {
			if string(r.Value) == "bad" && !healed.Load() {
				return sinktest.Fail(sink.Rejected, "record_too_large", errors.New("record of topic order-events is too large"))
			}
			return sinktest.Verdict{}
		})
		b.start(t, Config{RetryMin: 10 * time.Millisecond})
		for b.counts.retried.Load() < 20 {
			pass(100 * time.Millisecond)
		}
		if st := b.relay.Status(); st.State != status.Blocked || st.Reason != "record_too_large" || !strings.Contains(st.Message, "0/6E") {
			t.Fatalf("status while blocked: %+v", st)
		}
		if got := len(b.sink.Delivered()); got != 10_000 {
			t.Fatalf("%d records durable after 20 tries, want 10000", got)
		}
		if got := b.server.position(); got != 100 {
			t.Fatalf("confirmed %s past a rejected row", got)
		}
		if got := b.counts.rejected.Load(); got != 1 {
			t.Fatalf("the row was counted %d times", got)
		}
		healed.Store(true)
		pass(5 * time.Second)
		if st := b.relay.Status(); st.State != status.Streaming || st.Reason != "" {
			t.Fatalf("status after it healed: %s %s", st.State, st.Reason)
		}
		b.stop(t)
		if got := len(b.sink.Delivered()); got != 10_002 || b.server.position() != 140 {
			t.Fatalf("%d records, confirmed %s", got, b.server.position())
		}
	})
}

func TestRelay_FindsTheGuiltyRecordAmongInnocents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{server: newServer(fixed(110, 120, 1, "order/a/1", "order/a/2", "order/a/bad", "order/b/4", "order/a/5")), sink: new(sinktest.Recorder), result: make(chan error, 1)}
		b.sink.Scatter(true)
		b.sink.Decide(func(r *record.Record) sinktest.Verdict {
			if string(r.Value) == "bad" {
				return sinktest.Fail(sink.Rejected, "invalid_record", errors.New("no"))
			}
			return sinktest.Verdict{}
		})
		b.start(t, Config{})
		pass(10 * time.Second)
		got := b.values()
		if !strings.HasPrefix(got, "1 2") || strings.Contains(got, "5") || b.server.position() != 100 {
			t.Fatalf("delivered %q, confirmed %s", got, b.server.position())
		}
		b.stop(t)
	})
}

func TestRelay_BlocksAtARowThatCannotBeRouted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, Config{}, newServer(fixed(110, 120, 1, "order/a/1"), fixed(130, 140, 1, "order/a/2", "/a/bad", "order/a/3"), fixed(150, 160, 1, "order/a/4")))
		pass(time.Minute)
		if st := b.relay.Status(); st.State != status.Blocked || st.Reason != fault.ReasonRoute || st.EventsRejected != 1 {
			t.Fatalf("status %+v", st)
		}
		if got := b.values(); got != "1 2" || b.server.position() != 120 {
			t.Fatalf("delivered %q, confirmed %s", got, b.server.position())
		}
		b.stop(t) // nothing is in flight: clean
		if b.server.position() != 120 {
			t.Fatalf("confirmed %s after the stop", b.server.position())
		}
	})
}

// several puts transactions of one batch together, each ending at its own position.
func several(parts ...func() *wal.Batch) func() *wal.Batch {
	return func() *wal.Batch {
		all := &wal.Batch{}
		for _, part := range parts {
			b := part()
			for i := range b.Rows {
				b.Rows[i].Txn.End = b.Through
			}
			all.Rows = append(all.Rows, b.Rows...)
			all.Bytes += b.Bytes
			all.Through = b.Through
		}
		return all
	}
}

// What is delivered before a bad row is confirmed although it shares a batch with
// it, so that no restart repeats it; nothing of the row's own transaction is.
func TestRelay_ConfirmsTheTransactionsBeforeABlockedRow(t *testing.T) {
	for name, spec := range map[string]string{"unroutable": "/a/x", "refused by the brokers": "order/a/bad"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &bench{server: newServer(several(
					fixed(110, 120, 1, "order/a/1"), fixed(130, 140, 1, "order/a/2"),
					fixed(150, 160, 1, "order/a/3", spec), fixed(170, 180, 1, "order/a/4"),
				)), sink: new(sinktest.Recorder), result: make(chan error, 1)}
				b.sink.Decide(func(r *record.Record) sinktest.Verdict {
					if string(r.Value) == "bad" {
						return sinktest.Fail(sink.Rejected, "record_too_large", errors.New("too large"))
					}
					return sinktest.Verdict{}
				})
				b.start(t, Config{})
				pass(time.Minute)
				if got := b.server.position(); got != 140 {
					t.Fatalf("confirmed %s, want 140", got)
				}
				if st := b.relay.Status(); st.State != status.Blocked || !strings.Contains(st.Message, "pg_replication_slot_advance('', '0/97')") {
					t.Fatalf("status %+v", st)
				}
				b.stop(t)
				if got := b.values(); got != "1 2 3" || b.server.position() != 140 {
					t.Fatalf("delivered %q, confirmed %s", got, b.server.position())
				}
			})
		})
	}
}

func TestRelay_ExitsWhenBlockedIfToldSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, Config{OnBlocked: ExitWhenBlocked}, newServer(fixed(130, 140, 1, "/a/bad")))
		var blocked *BlockedError
		if err := <-b.result; !errors.As(err, &blocked) || blocked.Reason != fault.ReasonRoute {
			t.Fatalf("run: %v", err)
		}
		b.cancel()
	})
}

func TestRelay_ReconnectsAndReadsUnconfirmedRowsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{server: newServer(fixed(110, 120, 1, "order/a/1"), fixed(130, 140, 1, "order/a/2")), sink: new(sinktest.Recorder), result: make(chan error, 1)}
		b.sink.Hold()
		b.start(t, Config{})
		pass(time.Second)
		b.sink.Ack(1)
		pass(time.Second)
		b.sink.Written(true)
		b.server.cut()
		pass(lossGrace / 2)
		if got := b.server.opens.Load(); got != 1 {
			t.Fatalf("%d sessions while a record of the first is outstanding", got)
		}
		b.sink.Release()
		pass(5 * time.Second)
		if st := b.relay.Status(); st.State != status.Streaming || st.Reconnects != 1 {
			t.Fatalf("status %s, %d reconnects", st.State, st.Reconnects)
		}
		b.stop(t)
		if got := b.values(); got != "1 2" || b.server.position() != 140 {
			t.Fatalf("delivered %q, confirmed %s: the acknowledgements that came in time count", got, b.server.position())
		}
	})
}

// What ended a session is in the log once, with the state that follows from it; where that
// repeats, the log has now and then how often, and the next wait.
func TestRelay_LogsOnceWhyASessionEndedAndTheWaitWithItsUnit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		gone := func(context.Context) (Source, error) {
			return nil, &fault.Error{Kind: fault.KindRetry, Op: "connect", Err: errors.New("refused")}
		}
		routes := outboxRoutes(t)
		r := New(Config{RetryMin: 1500 * time.Millisecond, RetryMax: 1500 * time.Millisecond}, Parts{Source: gone, Router: routes, Sink: func() (sink.Sink, error) { return new(sinktest.Recorder), nil }}, Events{}, zerolog.New(&log))
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		_ = r.Run(ctx)
		if n := strings.Count(log.String(), "connect: refused"); n != 2 || !strings.Contains(log.String(), `"times":50`) {
			t.Errorf("the error is in the log %d times, want once with the state and once when it came fifty times:\n%s", n, &log)
		}
		var line struct {
			RetryIn string `json:"retry_in"`
		}
		first, _, _ := strings.Cut(log.String(), "\n")
		for l := range strings.Lines(log.String()) {
			if strings.Contains(l, "retry_in") {
				first = l
				break
			}
		}
		err := json.Unmarshal([]byte(first), &line)
		if wait, perr := time.ParseDuration(line.RetryIn); err != nil || perr != nil || wait <= 0 {
			t.Errorf("retry_in is %q: %v, %v\n%s", line.RetryIn, err, perr, &log)
		}
	})
}

func TestRelay_GivesUpASinkThatKeepsRecordsOfALostSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(fixed(110, 120, 1, "order/a/1"))
		first, second := new(sinktest.Recorder), new(sinktest.Recorder)
		first.Hold()
		first.Written(true)
		began := time.Now()
		var lost, wrote atomic.Int64 // since then
		second.Decide(func(*record.Record) sinktest.Verdict {
			wrote.Store(int64(time.Since(began)))
			return sinktest.Verdict{}
		})
		sinks := []*sinktest.Recorder{first, second}
		routes := outboxRoutes(t)
		r := New(Config{}, Parts{Source: server.open, Router: routes, Sink: func() (sink.Sink, error) {
			s := sinks[0]
			sinks = sinks[1:]
			return s, nil
		}}, Events{}, zerolog.Nop())
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { result <- r.Run(ctx) }()
		pass(2 * time.Second)
		server.cut()
		lost.Store(int64(time.Since(began)))
		pass(time.Minute)
		cancel()
		if err := <-result; err != nil {
			t.Fatal(err)
		}
		if after := time.Duration(wrote.Load() - lost.Load()); after < standbyGrace { // what the first sink had written may be on its way
			t.Errorf("the second sink wrote %s after the loss", after)
		}
		if len(first.Delivered()) != 0 || len(second.Delivered()) != 1 || server.position() != 120 {
			t.Fatalf("first sink %d, second %d records, confirmed %s", len(first.Delivered()), len(second.Delivered()), server.position())
		}
	})
}

func TestRelay_AbortCutsADrainShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{server: newServer(fixed(110, 120, 1, "order/a/1")), sink: new(sinktest.Recorder), result: make(chan error, 1)}
		b.sink.Hold()
		b.start(t, Config{})
		pass(time.Second)
		b.cancel()
		pass(time.Second)
		b.relay.Abort()
		b.relay.Abort()
		if err := <-b.result; !errors.Is(err, ErrDrainCut) {
			t.Fatalf("run: %v", err)
		}
	})
}

func TestRelay_FullWindowWithoutKafkaIsBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{server: newServer(fixed(110, 120, 1, "order/a/1"), fixed(130, 140, 1, "order/a/2")), sink: new(sinktest.Recorder), result: make(chan error, 1)}
		b.sink.Hold()
		b.start(t, Config{MaxInFlightBytes: 1 << 20})
		b.sink.SetReachable(errors.New("dial broker: refused"))
		pass(5 * time.Second)
		if st := b.relay.Status(); st.State != status.Streaming || st.Reason != "kafka_unreachable" {
			t.Fatalf("with room in the window: %s %s", st.State, st.Reason)
		}
		b.server.more <- func() *wal.Batch { x := batch(150, 160, 1, "order/a/3"); x.Bytes = 2 << 20; return x }
		pass(5 * time.Second)
		if st := b.relay.Status(); st.State != status.Blocked || st.Reason != "kafka_unreachable" || st.Ready() {
			t.Fatalf("with a full window: %s %s", st.State, st.Reason)
		}
		b.sink.SetReachable(&sink.Error{Class: sink.Blocked, Reason: "tls", Err: errors.New("certificate refused")})
		if st := b.relay.Status(); st.State != status.Blocked || st.Reason != "tls" || st.Message != "certificate refused" {
			t.Fatalf("with a certificate that is refused: %s %s: %s", st.State, st.Reason, st.Message)
		}
		b.sink.SetReachable(nil)
		b.sink.Release()
		pass(5 * time.Second)
		if st := b.relay.Status(); st.State != status.Streaming || st.Reason != "" || st.InFlightEvents != 0 {
			t.Fatalf("after Kafka came back: %+v", st)
		}
		b.stop(t)
	})
}

func TestRelay_StartErrorsEndTheProcessAndLaterOnesBlock(t *testing.T) {
	missing := &fault.Error{Kind: fault.KindRefused, Op: "inspect", Subject: `slot "s"`, Err: errors.New("does not exist")}
	t.Run("at start", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server := newServer()
			server.openErr = func(int64) error { return missing }
			b := start(t, Config{}, server)
			var refused *RefusedError
			if err := <-b.result; !errors.As(err, &refused) {
				t.Fatalf("run: %v", err)
			}
			b.cancel()
		})
	})
	t.Run("after streaming began", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server := newServer(fixed(110, 120, 1, "order/a/1"))
			server.openErr = func(n int64) error {
				if n > 1 {
					return missing
				}
				return nil
			}
			b := start(t, Config{}, server)
			pass(time.Second)
			server.cut()
			pass(time.Minute)
			if st := b.relay.Status(); st.State != status.Blocked || !strings.Contains(st.Message, `slot "s"`) {
				t.Fatalf("status %+v", st)
			}
			b.stop(t)
		})
	})
	t.Run("a busy slot is standby", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server := newServer(fixed(110, 120, 1, "order/a/1"))
			var free atomic.Bool
			server.openErr = func(int64) error {
				if !free.Load() {
					return &fault.Error{Kind: fault.KindBusy, Op: "open slot", Err: errors.New("held by pid 1")}
				}
				return nil
			}
			b := start(t, Config{}, server)
			pass(time.Minute)
			if st := b.relay.Status(); st.State != status.Standby || !st.Ready() {
				t.Fatalf("status %+v", st)
			}
			free.Store(true)
			pass(2 * time.Second)
			if st := b.relay.Status(); st.State != status.Streaming {
				t.Fatalf("two seconds after the slot was free: %+v", st)
			}
			b.stop(t)
		})
	})
	t.Run("brokers down at start are waited for", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := &bench{server: newServer(fixed(110, 120, 1, "order/a/1")), sink: new(sinktest.Recorder), result: make(chan error, 1)}
			b.sink.SetReady(&sink.Error{Class: sink.Retry, Reason: "kafka_unreachable", Err: errors.New("refused")})
			b.start(t, Config{})
			pass(time.Minute)
			if st := b.relay.Status(); st.State != status.Reconnecting || st.Reason != "kafka_unreachable" || b.server.opens.Load() != 0 {
				t.Fatalf("status %+v", st)
			}
			b.sink.SetReady(nil)
			pass(time.Minute)
			b.stop(t)
			if b.values() != "1" {
				t.Fatalf("delivered %q", b.values())
			}
		})
	})
}
