package relay

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/relay/ending"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

func newBench(batches ...func() *wal.Batch) *bench {
	return &bench{server: newServer(batches...), sink: new(sinktest.Recorder), result: make(chan error, 1)}
}

// A drain that was acknowledged one Send after another is over with the last one, also
// when that one failed at first.
func TestRelay_DrainRetriesWhatFailsBehindAnAcknowledgement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(fixed(110, 120, 1, "order/a/1"), fixed(130, 140, 1, "order/a/2"))
		failed := false
		b.sink.Decide(func(r *record.Record) sinktest.Verdict {
			if string(r.Value) == "2" && !failed {
				failed = true
				return sinktest.Fail(sink.Retry, "kafka_error", errors.New("not now"))
			}
			return sinktest.Verdict{}
		})
		b.sink.Hold()
		b.start(t, Config{})
		pass(time.Second)
		b.cancel()
		pass(time.Second)
		b.sink.Ack(1)
		pass(time.Second)
		b.sink.Release()
		if err := <-b.result; err != nil || b.values() != "1 2" || b.server.position() != 140 {
			t.Errorf("run: %v; delivered %q, confirmed %s", err, b.values(), b.server.position())
		}
	})
}

// lastWords has a session end with an error as soon as it is to end.
type lastWords struct {
	*fakeSource
	err error
}

func (l lastWords) Run(intake context.Context, out chan<- *wal.Batch, confirmed func() wal.LSN) error {
	_ = l.fakeSource.Run(intake, out, confirmed)
	return l.err
}

// A connection that is lost at a stop matters to what is in flight, and to a transaction
// of which only a part was read.
func TestRelay_AConnectionLostAtAStop(t *testing.T) {
	reset := &fault.Error{Kind: fault.KindRetry, Op: "read stream", Err: errors.New("connection reset")}
	taken := &fault.Error{Kind: fault.KindBusy, Reason: fault.ReasonSlotInUse, Err: errors.New("another relay has it")}
	part := func() *wal.Batch {
		b := batch(110, 0, 1, "order/a/1")
		b.Open = true
		return b
	}
	for name, c := range map[string]struct {
		rows []func() *wal.Batch
		err  error
		cut  bool
	}{
		"nothing was read":                    {nil, reset, false},
		"all is acknowledged":                 {[]func() *wal.Batch{fixed(110, 120, 1, "order/a/1")}, reset, false},
		"the rest of a transaction is missed": {[]func() *wal.Batch{part}, taken, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(c.rows...)
				b.server.wrap = func(s *fakeSource) Source { return lastWords{s, c.err} }
				b.start(t, Config{})
				pass(time.Second)
				b.cancel()
				if err := <-b.result; errors.Is(err, ErrDrainCut) != c.cut || !c.cut && err != nil {
					t.Errorf("run: %v", err)
				}
			})
		})
	}
}

// What the server was told up to where the position is frozen is all that a drain tells.
func TestRelay_ADriftThatADrainIsBlockedAtIsNoCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(probe)
		p.snapshot.Store(new(watch.Snapshot))
		b := newBench(fixed(110, 120, 1, "order/a/1"), fixed(130, 140, 1, "order/a/bad"))
		b.probe = p
		b.sink.Decide(func(r *record.Record) sinktest.Verdict {
			if string(r.Value) == "bad" {
				return sinktest.Fail(sink.Retry, "kafka_error", errors.New("not now"))
			}
			return sinktest.Verdict{}
		})
		b.start(t, Config{ProbeInterval: time.Second, RetryMin: 10 * time.Second, RetryMax: 10 * time.Second})
		pass(2500 * time.Millisecond)
		b.cancel()
		pass(500 * time.Millisecond)
		p.snapshot.Store(&watch.Snapshot{Drift: &fault.Error{Kind: fault.KindDrift, Reason: fault.ReasonPublicationChanged, Err: errors.New("altered")}})
		if err := <-b.result; !errors.Is(err, ending.ErrUnseen) || errors.Is(err, ErrDrainCut) || b.server.position() != 120 {
			t.Errorf("run: %v; confirmed %s", err, b.server.position())
		}
	})
}

// A server that does not take the last position is told of, and no other.
func TestRelay_LogsThatTheLastPositionMayBeMissed(t *testing.T) {
	for name, closed := range map[string]error{"taken": nil, "not taken": errors.New("connection reset")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := new(journal)
				b := newBench()
				b.server.closeErr = closed
				b.log = log
				b.start(t, Config{})
				pass(time.Second)
				b.stop(t)
				if got := log.has("the last transactions may be sent again"); got != (closed != nil) {
					t.Errorf("the log has it: %t", got)
				}
			})
		})
	}
}

// What a session that ends waits for its acknowledgements stays below wal_sender_timeout.
func TestRelay_HandoverIsShorterThanTheServerWaits(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{0: 10 * time.Second, time.Minute: 10 * time.Second, 8 * time.Second: 4 * time.Second} {
		cfg := Config{Replication: postgres.Config{WalSenderTimeout: timeout}}
		if got := cfg.handover(); got != want {
			t.Errorf("with wal_sender_timeout %s it is %s, want %s", timeout, got, want)
		}
	}
}

// The window counts the bytes of rows and of their records, once.
func TestWindow_CountsRowsAndRecords(t *testing.T) {
	least := 100 + new(sinktest.Recorder).Overhead(1)
	synctest.Test(t, func(t *testing.T) {
		b := newBench(fixed(110, 120, 1, "order/a/1"))
		b.sink.Hold()
		b.start(t, Config{})
		pass(time.Second)
		if got := b.relay.Status().InFlightBytes; got < least || got > 2*least {
			t.Errorf("%d bytes are in flight, want at least %d and less than twice as much", got, least)
		}
		b.sink.Release()
		b.stop(t)
	})
}

// A batch without records is nothing to send.
func TestRelay_SendsNothingForRowsThatAreSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(fixed(110, 120, 1, "/a/1", "/b/2"))
		b.start(t, Config{OnReject: SkipOnReject})
		pass(time.Second)
		b.stop(t)
		if got := b.sink.Counts().Sends; got != 0 || b.server.position() != 120 {
			t.Errorf("%d Sends, confirmed %s", got, b.server.position())
		}
	})
}

// A record that the brokers refused and that is skipped is not among those delivered.
func TestRelay_CountsNoSkippedRecordAsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(fixed(110, 120, 1, "order/a/1", "order/a/bad", "order/a/3"))
		b.sink.Decide(refuseBad)
		b.start(t, Config{OnReject: SkipOnReject})
		pass(time.Minute)
		b.stop(t)
		if n := b.counts.delivered.Load(); n != 2 || b.values() != "1 3" {
			t.Errorf("%d records count as delivered, and %q are", n, b.values())
		}
	})
}

// Runs of records that failed double while they succeed.
func TestRelay_RecoversInRunsThatDouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := make([]string, 31)
		for i := range rows {
			rows[i] = "order/a/1"
		}
		b := newBench(fixed(110, 120, 1, rows...))
		first := true
		b.sink.Decide(func(*record.Record) sinktest.Verdict {
			if first {
				first = false
				return sinktest.Fail(sink.Retry, "kafka_error", errors.New("not now"))
			}
			return sinktest.Verdict{}
		})
		b.start(t, Config{})
		pass(time.Second)
		b.stop(t)
		if got := b.sink.Counts().Sends; got != 1+5 { // of 1, 2, 4, 8 and 16 records
			t.Errorf("%d Sends for %d records", got, len(rows))
		}
	})
}

// The slot may not be moved over a row while what lies before it is not delivered,
// whichever row of its batch it is.
func TestBlocked_OffersNoMoveOverWhatIsNotDelivered(t *testing.T) {
	for _, rows := range [][]string{{"order/a/1", "/b/bad"}, {"order/a/1", "order/a/2", "/b/bad"}} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(fixed(110, 120, 1, "order/c/0"), fixed(130, 140, 1, rows...))
			b.sink.Hold()
			b.start(t, Config{})
			pass(time.Second)
			if st := b.relay.Status(); st.State != status.Blocked || strings.Contains(st.Message, status.MoveSlot) {
				t.Errorf("before: %s: %s", st.State, st.Message)
			}
			b.sink.Release()
			pass(5 * time.Second)
			if st := b.relay.Status(); st.State != status.Blocked || !strings.Contains(st.Message, status.MoveSlot) {
				t.Errorf("behind: %s: %s", st.State, st.Message)
			}
			b.stop(t)
		})
	}
}
