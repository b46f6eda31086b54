package relay

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
)

// remote is a sink whose brokers may be away. Then nothing ends but by Close, which takes
// as long as brokers that do not answer make it take, and FindRejected ends with its context.
type remote struct {
	*transactional
	away   atomic.Bool
	refuse atomic.Bool // records, while the brokers are there
}

func (r *remote) Reachable() error {
	if r.away.Load() {
		return errors.New("dial tcp: connection refused")
	}
	return nil
}

func (r *remote) Send(ctx context.Context, records []record.Record, done func(error)) {
	switch {
	case r.away.Load() && r.refuse.Load():
		r.transactional.Send(ctx, records, done)
		r.abandon(errors.New("refused"), &sink.Failure{Class: sink.Rejected, Reason: "record_too_large", Err: errors.New("too large")})
	case r.away.Load():
	default:
		r.transactional.Send(ctx, records, done)
	}
}

func (r *remote) SetPosition(m sink.Position) {
	if !r.away.Load() {
		r.transactional.SetPosition(m)
	}
}

func (r *remote) FindRejected(ctx context.Context, _ string, _ []record.Record) (map[int]sink.Failure, error) {
	<-ctx.Done()
	return nil, &sink.Error{Class: sink.Retry, Reason: "closed", Err: ctx.Err()}
}

func (r *remote) Close(ctx context.Context) error {
	if r.away.Load() {
		pass(5 * time.Second)
	}
	return r.transactional.Close(ctx)
}

// freed tells when the session lets go of the server.
type freed struct {
	*fakeSource
	at *atomic.Int64
}

func (f freed) Close(ctx context.Context, confirmed wal.LSN) error {
	f.at.Store(time.Now().UnixNano())
	return f.fakeSource.Close(ctx, confirmed)
}

// A server that stops is not held up by brokers that are known to be away, nor by a search
// for the record that they refused before.
func TestExactly_AStoppingServerIsNotKeptWaitingForBrokersThatAreAway(t *testing.T) {
	for name, refuse := range map[string]bool{"a row is not acknowledged": false, "a row is judged": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, p := newServer(fixed(110, 120, 1, "order/a/1")), new(glance)
				var at atomic.Int64
				server.skipConfirmed = true
				server.wrap = func(s *fakeSource) Source { return freed{s, &at} }
				to := &remote{transactional: &transactional{l: &ledger{sim: calmSim()}}}
				to.refuse.Store(refuse)
				w := watchRelay(t, Config{Guarantee: ExactlyOnce, ProbeInterval: 5 * time.Second}, server, to, p)
				pass(time.Minute)
				to.away.Store(true)
				second := fixed(130, 140, 1, "order/a/2")
				server.mu.Lock()
				server.batches = append(server.batches, second) // for the session that comes then
				server.mu.Unlock()
				server.more <- second
				pass(10*time.Second + time.Millisecond)
				began := time.Now()
				at.Store(0)
				p.stops.Store(true)
				for at.Load() == 0 && time.Since(began) < time.Minute {
					pass(100 * time.Millisecond)
				}
				if took := time.Unix(0, at.Load()).Sub(began); at.Load() == 0 || took > 3*time.Second {
					t.Errorf("the session let go of the server %s after it began to stop", took)
				}
				p.stops.Store(false)
				to.away.Store(false)
				pass(time.Minute)
				if got := to.l.rows(); len(got) != 2 {
					t.Errorf("committed in the end: %q", got)
				}
				w.cancel()
				if err := <-w.result; err != nil {
					t.Errorf("clean stop: %v", err)
				}
			})
		})
	}
}

// Whoever searches for the guilty record shuts out all others. With the connection the
// slot is lost, and the one to shut out would be its new holder.
func TestExactly_TheSearchForTheGuiltyEndsWithTheSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(fixed(110, 120, 1, "order/a/1"))
		var at atomic.Int64
		server.wrap = func(s *fakeSource) Source { return freed{s, &at} }
		to := &remote{transactional: &transactional{l: &ledger{sim: calmSim()}}}
		to.refuse.Store(true)
		to.away.Store(true)
		w := watchRelay(t, Config{Guarantee: ExactlyOnce}, server, to, new(glance))
		pass(2 * time.Second) // refused, and being judged
		if at.Load() != 0 {
			t.Fatal("the session ended before the connection was lost")
		}
		to.refuse.Store(false)
		began := time.Now()
		server.cut()
		for at.Load() == 0 && time.Since(began) < 2*time.Minute {
			pass(time.Millisecond) // the next session, without brokers, has another reason
		}
		if took := time.Unix(0, at.Load()).Sub(began); at.Load() == 0 || took > time.Second {
			t.Errorf("the search went on for %s without the slot", took)
		}
		pass(time.Millisecond)
		if why := w.relay.Status().Message; !strings.Contains(why, "connection reset") {
			t.Errorf("the session ended with %q", why)
		}
		to.away.Store(false)
		w.cancel()
		<-w.result
	})
}

// marked counts the positions that a sink is given.
type marked struct {
	*transactional
	n atomic.Int64
}

func (m *marked) SetPosition(at sink.Position) {
	m.n.Add(1)
	m.transactional.SetPosition(at)
}

// Brokers forget a transactional id that is not used for days.
func TestExactly_RenewsItsTransactionalIDWhileNothingMoves(t *testing.T) {
	const renewEvery = 12 * time.Hour
	renewals := int64(2)
	if testing.Short() {
		renewals = 1 // half a day has ticks enough
	}
	synctest.Test(t, func(t *testing.T) {
		server := newServer(fixed(110, 120, 1, "order/a/1"))
		server.status = time.Hour
		to := &marked{transactional: &transactional{l: &ledger{sim: calmSim()}}}
		w := watchRelay(t, Config{Guarantee: ExactlyOnce, ProbeInterval: time.Hour}, server, to, new(glance))
		pass(time.Hour)
		before := to.n.Load()
		length := time.Duration(renewals) * renewEvery
		pass(length)
		if n := to.n.Load() - before; n != renewals {
			t.Errorf("the position was committed %d times in %s", n, length)
		}
		if got := to.l.rows(); len(got) != 1 || server.opens.Load() != 1 {
			t.Errorf("committed %q in %d sessions", got, server.opens.Load())
		}
		w.cancel()
		if err := <-w.result; err != nil {
			t.Error(err)
		}
	})
}
