package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// Brokers that go and come back cost nothing but time.
func TestOutage_OfTheBrokersLosesNothing(t *testing.T) {
	apache := harness.OwnKafka(t, nil)
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		t.Run("kfake", func(t *testing.T) {
			brokers := harness.Kfake(t, kfakeDefault)
			rideOutBrokers(t, db, brokers, func() { brokers.Fake.TakeAway(0) }, brokers.Fake.Return)
		})
		t.Run("apache", func(t *testing.T) {
			rideOutBrokers(t, another(t, db), apache, func() {}, func() {
				if err := apache.Apache.Restart(t.Context()); err != nil {
					t.Fatal(err)
				}
			})
		})
	})
}

func rideOutBrokers(t *testing.T, db *harness.Database, brokers *harness.Brokers, away, back func()) {
	t.Helper()
	p, w := outbox(t, db, brokers)
	r := p.Start(t)
	w.Start(t, 2, 5*time.Millisecond)
	r.Await(t, "events flow", func(s status.Status) bool { return s.EventsPublished > 100 })
	away()
	if brokers.Fake != nil {
		r.Await(t, "the outage is seen", func(s status.Status) bool { return s.Reason == "kafka_unreachable" })
	}
	back()
	w.Stop(t)
	p.AwaitCaughtUp(t)
	r.AwaitStreaming(t)
	r.Stop(t)
	w.Verify(t)
}

// A server that stops fast is not held up, and a killed one is found again.
func TestOutage_OfPostgresLosesNothing(t *testing.T) {
	t.Parallel()
	for _, version := range harness.VersionsFor(t) {
		t.Run("postgres"+version, func(t *testing.T) {
			db := harness.OwnPostgres(t, sandbox.PostgresOptions{Version: version})
			p, w := outbox(t, db, harness.Kfake(t, kfakeDefault))
			r := p.Start(t)
			for range 3 {
				w.Insert(t, 500)
				ctx, cancel := context.WithTimeout(t.Context(), relaytest.Patience)
				if err := db.Server.Restart(ctx, sandbox.Fast); err != nil {
					t.Fatal(err)
				}
				cancel()
				w.Insert(t, 500)
				if err := db.Server.Kill(); err != nil {
					t.Fatal(err)
				}
				if err := db.Server.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			p.AwaitCaughtUp(t)
			r.Stop(t)
			w.Verify(t)
		})
	}
}

// A fast stop waits until the relay has taken everything, and the relay confirms
// everything before it lets go: the next session repeats nothing. Before version
// 17 the server forgets that position when it stops: a slot's confirmed position
// alone did not make it write the slot.
func TestOutage_FastStopOfPostgresRepeatsNothing(t *testing.T) {
	t.Parallel()
	for _, version := range harness.VersionsFor(t) {
		t.Run("postgres"+version, func(t *testing.T) {
			db := harness.OwnPostgres(t, sandbox.PostgresOptions{Version: version})
			p, w := outbox(t, db, harness.Kfake(t, kfakeDefault))
			settings := p.Settings()
			settings.Stream.ShutdownGrace = relaytest.Patience // to the end, however slow the machine is
			r := p.StartWith(t, settings, relay.Events{})
			w.Insert(t, 20_000)
			ctx, cancel := context.WithTimeout(t.Context(), 2*relaytest.Patience)
			defer cancel()
			if err := db.Server.Restart(ctx, sandbox.Fast); err != nil {
				t.Fatal(err)
			}
			w.Insert(t, 1)
			p.AwaitCaughtUp(t)
			r.Stop(t)
			remembers := version >= "17"
			if duplicates := w.Verify(t); remembers && duplicates != 0 {
				t.Errorf("duplicates = %d", duplicates)
			}
		})
	}
}

// The connection to PostgreSQL is cut after a random number of bytes, again and
// again.
func TestNetwork_CutAtAnyByteLosesNothing(t *testing.T) {
	t.Parallel()
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		proxy := proxyTo(t, db)
		through := *db
		through.URL = proxied(t, db.URL, proxy.Addr())
		brokers := harness.Kfake(t, kfakeDefault)
		p := relaytest.New(t, &through, brokers, []string{"{table: public.outbox}"})
		p.Setup(t)
		p.DB = db // the test itself looks past the proxy
		w := p.NewWorkload(t, "outbox", harness.Unique(t, "cut"))
		brokers.CreateTopic(t, w.Topic(), 3)
		random := rand.New(rand.NewPCG(w.Seed, 1))
		r := p.Start(t)
		w.Start(t, 2, time.Millisecond)
		const cuts = 8
		for i := range cuts {
			r.AwaitStreaming(t)
			passed, direction := proxy.Passed(sandbox.ToClient), sandbox.ToClient
			if i%5 == 4 {
				direction = sandbox.ToServer
			}
			reconnects := r.Status().Reconnects
			proxy.CutAfter(direction, 1+random.Int64N(60_000)>>(4*direction))
			r.Await(t, "the cut is noticed", func(s status.Status) bool { return s.Reconnects > reconnects })
			if proxy.Passed(sandbox.ToClient) == passed {
				t.Logf("cut %d came before the next byte", i)
			}
		}
		w.Stop(t)
		p.AwaitCaughtUp(t)
		r.Stop(t)
		t.Logf("%d cuts, %d duplicates", cuts, w.Verify(t))
	})
}

// A server that falls silent is given up and found again.
func TestNetwork_SilentServerIsGivenUp(t *testing.T) {
	t.Parallel()
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		proxy := proxyTo(t, db)
		through := *db
		through.URL = proxied(t, db.URL, proxy.Addr())
		brokers := harness.Kfake(t, kfakeDefault)
		p := relaytest.New(t, &through, brokers, []string{"{table: public.outbox}"})
		p.Setup(t)
		p.DB = db
		w := p.NewWorkload(t, "outbox", harness.Unique(t, "silent"))
		brokers.CreateTopic(t, w.Topic(), 3)
		settings := p.Settings()
		settings.Replication.WalSenderTimeout = 2 * time.Second
		settings.Stream.DeadAfter = 2 * time.Second
		r := p.StartWith(t, settings, relay.Events{})
		w.Insert(t, 100)
		p.AwaitCaughtUp(t)
		reconnects := r.Status().Reconnects
		proxy.Blackhole(sandbox.ToClient)
		w.Insert(t, 100)
		r.Await(t, "the silence is noticed", func(s status.Status) bool { return s.Reconnects > reconnects })
		proxy.Heal()
		proxy.Cut()
		p.AwaitCaughtUp(t)
		r.Stop(t)
		w.Verify(t)
	})
}

func proxyTo(t *testing.T, db *harness.Database) *sandbox.Proxy {
	t.Helper()
	proxy, err := sandbox.NewProxy(db.Server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	return proxy
}

// proxied is an address with another host and port.
func proxied(t *testing.T, address, host string) string {
	t.Helper()
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	at.Host = host
	return fmt.Sprint(at)
}
