package relay

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

func TestRelay_StopAfterALostConnectionIsNotClean(t *testing.T) {
	for name, order := range map[string]func(*bench){
		"connection first": func(b *bench) { b.server.cut(); pass(time.Second); b.cancel() },
		"signal first":     func(b *bench) { b.cancel(); pass(time.Second); b.server.cut() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &bench{server: newServer(fixed(110, 120, 1, "order/a/1")), sink: new(sinktest.Recorder), result: make(chan error, 1)}
				b.sink.Hold()
				b.start(t, Config{})
				pass(time.Second)
				order(b)
				if err := <-b.result; !errors.Is(err, ErrDrainCut) {
					t.Fatalf("run: %v", err)
				}
			})
		})
	}
}

func TestRelay_StopWithoutTheFinalConfirmationIsNotClean(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{server: newServer(fixed(110, 120, 1, "order/a/1")), sink: new(sinktest.Recorder), result: make(chan error, 1)}
		b.server.closeErr = errors.New("connection reset")
		b.sink.Hold()
		b.start(t, Config{})
		pass(time.Second)
		b.cancel()
		pass(time.Second)
		b.sink.Release()
		if err := <-b.result; !errors.Is(err, ErrDrainCut) {
			t.Fatalf("run: %v", err)
		}
	})
}

// A position that was written to the socket is not taken by the server: it may be away
// since. What the probe saw in the slot is.
func TestRelay_StopIsCleanOnlyWithAPositionThatTheServerHas(t *testing.T) {
	for name, c := range map[string]struct {
		seen  wal.LSN
		clean bool
	}{
		"the probe saw nothing":            {0, false},
		"the probe saw the slot before it": {110, false},
		"the probe saw the slot behind it": {120, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := new(probe)
				p.snapshot.Store(&watch.Snapshot{Slot: catalog.SlotInfo{Confirmed: 100}})
				b := &bench{server: newServer(fixed(110, 120, 1, "order/a/1")), sink: new(sinktest.Recorder), result: make(chan error, 1), probe: p}
				b.start(t, Config{ProbeInterval: 2 * time.Second})
				pass(time.Second) // delivered, and told
				p.snapshot.Store(&watch.Snapshot{Slot: catalog.SlotInfo{Confirmed: c.seen}})
				pass(2 * time.Second)
				b.server.mu.Lock()
				b.server.closeErr = errors.New("confirm final position: i/o timeout")
				b.server.mu.Unlock()
				b.cancel()
				if err := <-b.result; c.clean && err != nil || !c.clean && !errors.Is(err, ErrDrainCut) {
					t.Errorf("run: %v", err)
				}
			})
		})
	}
}

// A server that is gone at a stop takes nothing from one that read nothing.
func TestRelay_StopWithoutRowsIsCleanWhateverTheServerTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{server: newServer(), sink: new(sinktest.Recorder), result: make(chan error, 1)}
		b.server.closeErr = errors.New("connection reset")
		b.start(t, Config{})
		pass(time.Second)
		b.stop(t)
	})
}

// Rows may be missing from the stream, and the next start, which knows nothing of before,
// does not see it: a drain that comes upon it is none that went well.
func TestRelay_ADrainSaysThatThePublicationChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(probe)
		p.snapshot.Store(new(watch.Snapshot))
		b := &bench{server: newServer(fixed(110, 120, 1, "order/a/1")), sink: new(sinktest.Recorder), result: make(chan error, 1), probe: p}
		b.sink.Hold()
		b.start(t, Config{ProbeInterval: time.Second})
		pass(2500 * time.Millisecond)
		b.cancel()
		pass(500 * time.Millisecond)
		p.snapshot.Store(&watch.Snapshot{Drift: &fault.Error{Kind: fault.KindDrift, Reason: fault.ReasonPublicationChanged, Err: errors.New("altered")}})
		pass(2 * time.Second)
		b.sink.Release()
		if err := <-b.result; !errors.Is(err, ErrDrainCut) || postgres.Reason(err) != fault.ReasonPublicationChanged {
			t.Errorf("run: %v; delivered %q, confirmed %s", err, b.values(), b.server.position())
		}
	})
}

// Who stands by gets the slot when the connection goes, also that of a relay which is
// only delivering its last rows: those would land after newer ones of their keys.
func TestRelay_DrainEndsWithTheSlot(t *testing.T) {
	taken := &watch.Snapshot{Slot: catalog.SlotInfo{Active: true, Confirmed: 900}}
	for name, lose := range map[string]func(*bench, *probe){
		"the connection is lost": func(b *bench, _ *probe) { close(b.server.lost) },
		"another relay has it":   func(_ *bench, p *probe) { p.snapshot.Store(taken) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := new(probe)
				p.snapshot.Store(new(watch.Snapshot))
				b := &bench{server: newServer(fixed(110, 120, 1, "order/a/1")), sink: new(sinktest.Recorder), result: make(chan error, 1), probe: p}
				b.server.lost = make(chan struct{})
				b.sink.Hold()
				b.start(t, Config{ProbeInterval: time.Second})
				pass(2500 * time.Millisecond)
				b.cancel()
				pass(2500 * time.Millisecond)
				lose(b, p)
				pass(2 * time.Second)
				b.sink.Release()
				pass(time.Millisecond)
				if got := b.values(); got != "" {
					t.Errorf("delivered %q behind whoever has the slot", got)
				}
				select {
				case err := <-b.result:
					if !errors.Is(err, ErrDrainCut) {
						t.Errorf("run: %v", err)
					}
				default:
					t.Error("the drain goes on without the slot")
					<-b.result
				}
			})
		})
	}
}

func TestRelay_DrainRetriesWhatMayHeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{server: newServer(fixed(110, 120, 1, "order/a/1")), sink: new(sinktest.Recorder), result: make(chan error, 1)}
		healthy := time.Now().Add(10 * time.Second)
		b.sink.Decide(func(*record.Record) sinktest.Verdict {
			if time.Now().Before(healthy) {
				return sinktest.Fail(sink.Retry, "kafka_error", errors.New("not now"))
			}
			return sinktest.Verdict{}
		})
		b.start(t, Config{})
		pass(time.Second)
		b.stop(t)
		if b.values() != "1" || b.server.position() != 120 {
			t.Fatalf("delivered %q, confirmed %s", b.values(), b.server.position())
		}
	})
}

// A server that cannot be heard gives the slot away after wal_sender_timeout.
// Records that are still on their way then would land after the next holder's.
func TestRelay_DropsRecordsInFlightWhenTheServerIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{}
		cfg.Replication.WalSenderTimeout = 15 * time.Second
		b := &bench{server: newServer(fixed(110, 120, 1, "order/a/1")), sink: new(sinktest.Recorder), result: make(chan error, 1)}
		b.sink.Hold()
		b.start(t, cfg)
		pass(time.Second)
		b.server.silent.Store(int64(9 * time.Second))
		pass(time.Second)
		if b.server.opens.Load() != 1 {
			t.Fatal("the session ended while the server may just be slow")
		}
		b.server.silent.Store(int64(11 * time.Second))
		pass(time.Second)
		b.sink.Release() // too late: the sink is closed
		if got := len(b.sink.Delivered()); got != 0 {
			t.Fatalf("%d records landed after the session was over", got)
		}
		b.cancel()
		<-b.result
	})
}

// slowEnd takes its time to end the last transaction.
type slowEnd struct{ *transactional }

func (e slowEnd) Finish(done func(error)) {
	time.AfterFunc(3*time.Second, func() { e.transactional.Finish(done) })
}

// So with exactly-once, where all that was read is committed and confirmed all the same.
func TestExactlyOnce_ADrainSaysThatThePublicationChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(probe)
		p.snapshot.Store(new(watch.Snapshot))
		l := &ledger{sim: calmSim()}
		w := watchRelay(t, Config{Guarantee: ExactlyOnce, ProbeInterval: time.Second}, newServer(fixed(110, 120, 1, "order/a/1")), slowEnd{&transactional{l: l}}, p)
		pass(2500 * time.Millisecond)
		w.cancel()
		p.snapshot.Store(&watch.Snapshot{Drift: &fault.Error{Kind: fault.KindDrift, Reason: fault.ReasonPublicationChanged, Err: errors.New("altered")}})
		if err := <-w.result; postgres.Reason(err) != fault.ReasonPublicationChanged {
			t.Errorf("run: %v; committed %q", err, l.rows())
		}
	})
}

func TestRelay_DrainTimeoutCutsRowsInFlight(t *testing.T) {
	for _, tt := range []struct {
		away error
		says string
	}{
		{nil, "1 row unacknowledged"},
		{errors.New("dial broker: refused"), "no broker answered: dial broker: refused; start the brokers"},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &bench{server: newServer(fixed(110, 120, 1, "order/a/1")), sink: new(sinktest.Recorder), result: make(chan error, 1)}
			b.sink.Hold()
			b.start(t, Config{DrainTimeout: 7 * time.Second})
			pass(time.Second)
			began := time.Now()
			b.sink.SetReachable(tt.away)
			b.cancel()
			err := <-b.result
			if !errors.Is(err, ErrDrainCut) {
				t.Fatalf("run: %v", err)
			}
			if text := err.Error(); !strings.Contains(text, tt.says) || !strings.Contains(text, "relay.drain_timeout (7s) expired") {
				t.Errorf("run: %v", err)
			}
			if took := time.Since(began); took < 7*time.Second || took > 8*time.Second {
				t.Fatalf("drain took %s", took)
			}
			if b.server.position() != 100 {
				t.Fatalf("confirmed %s", b.server.position())
			}
		})
	}
}
