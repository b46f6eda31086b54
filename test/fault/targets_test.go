package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/sandbox/ledger"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// What others are known to lose, to repeat or to hold up, each as a test of its
// own. CDC_RELAY_FAULT_SCALE=full takes the sizes of a nightly run.

func scaled(usual, full int) int {
	if os.Getenv("CDC_RELAY_FAULT_SCALE") == "full" {
		return full
	}
	return usual
}

// beside has the sample of a test run beside the same on another version of the server;
// at full size each has the machine for itself.
func beside(t *testing.T) {
	t.Helper()
	if scaled(0, 1) == 0 {
		t.Parallel()
	}
}

func outbox(t *testing.T, db *harness.Database, brokers *harness.Brokers, more ...string) (*relaytest.Pipeline, *relaytest.Workload) {
	t.Helper()
	p := relaytest.New(t, db, brokers, []string{"{table: public.outbox}"}, more...)
	p.Setup(t)
	w := p.NewWorkload(t, "outbox", harness.Unique(t, "bar"))
	brokers.CreateTopic(t, w.Topic(), 3)
	return p, w
}

// copyRows commits n rows by COPY: in the WAL they share positions.
func copyRows(t *testing.T, p *relaytest.Pipeline, w *relaytest.Workload, n int) {
	t.Helper()
	key, aggregate := uuid.New(), strings.TrimSuffix(w.Topic(), "-events")
	events, rows := make([]ledger.Event, n), make([][]any, n)
	for i := range rows {
		id, payload := uuid.New(), fmt.Sprintf(`{"n": %d}`, i)
		events[i] = ledger.Event{ID: id.String(), Topic: w.Topic(), Key: key.String(), Value: []byte(payload)}
		rows[i] = []any{id, aggregate, key, "Copied", []byte(payload)}
	}
	if _, err := p.DB.Connect(t).CopyFrom(t.Context(), pgx.Identifier{"outbox"}, []string{"id", "aggregate_type", "aggregate_id", "event_type", "payload"}, pgx.CopyFromRows(rows)); err != nil {
		t.Fatal(err)
	}
	w.Ledger.Committed(events...)
}

// delivered is how many records in-process brokers have of a topic.
func delivered(brokers *harness.Brokers, topic string) int64 {
	var n int64
	for part := range int32(3) {
		if info := brokers.Fake.Cluster().PartitionInfo(topic, part); info != nil {
			n += info.HighWatermark
		}
	}
	return n
}

// finish runs the relay until everything is confirmed, and judges.
func finish(t *testing.T, p *relaytest.Pipeline, w *relaytest.Workload) int {
	t.Helper()
	running := p.Exec(t, "run")
	relaytest.Eventually(t, "the signals are caught", func() (bool, string) { out := running.Output(); return strings.Contains(out, "cdc-relay starts"), out })
	p.AwaitCaughtUp(t)
	running.Terminate(t)
	if code := running.Wait(t); code != 0 {
		t.Errorf("exit code of the last run = %d", code)
	}
	return w.Verify(t)
}

// throughProxy is a database by way of a proxy.
func throughProxy(t *testing.T, db *harness.Database) (*harness.Database, *sandbox.Proxy) {
	t.Helper()
	proxy, err := sandbox.NewProxy(db.Server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	at, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	at.Host = proxy.Addr()
	through := *db
	through.URL = at.String()
	return &through, proxy
}

// runUntilDrained starts a relay that a stop gives as long as the test waits.
func runUntilDrained(t *testing.T, p *relaytest.Pipeline) *relaytest.Process {
	t.Helper()
	return p.Exec(t, "run", "--set", "relay.drain_timeout="+(relaytest.Patience/2).String())
}

// runForEver starts a relay whose drain only a second signal cuts short.
func runForEver(t *testing.T, p *relaytest.Pipeline) *relaytest.Process {
	t.Helper()
	return p.Exec(t, "run", "--set", "relay.drain_timeout="+(2*relaytest.Patience).String())
}

// hurry stops a relay that something holds in its drain, by two signals, and returns
// its exit code.
func hurry(t *testing.T, running *relaytest.Process) int {
	t.Helper()
	running.Terminate(t)
	relaytest.Eventually(t, "it drains", func() (bool, string) {
		out := running.Output()
		return running.Ended() || strings.Contains(out, "stopping"), out
	})
	<-time.After(notAnEcho + 400*time.Millisecond) // the relay may have been slow to see the first
	if running.Ended() {
		t.Fatalf("the drain was over before the second signal, with code %d", running.Wait(t))
	}
	if err := syscall.Kill(running.PID(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	return running.Wait(t)
}

// takeAwayAfter takes the brokers away once they were sent that many bytes of records.
func takeAwayAfter(brokers *harness.Brokers, bytes int) {
	cluster := brokers.Fake.Cluster()
	cluster.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		for _, topic := range request.(*kmsg.ProduceRequest).Topics {
			for _, part := range topic.Partitions {
				bytes -= len(part.Records)
			}
		}
		if bytes <= 0 {
			brokers.Fake.TakeAway(0)
			cluster.DropControl()
		} else {
			cluster.KeepControl()
		}
		return nil, nil, false
	})
}

// A COPY of which a part was delivered when the relay was stopped: the rest has the
// same position as what was delivered.
func TestTarget_CopyInterruptedBySIGTERMLosesNothing(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		beside(t)
		brokers := harness.Kfake(t, sandbox.KafkaOptions{})
		p, w := outbox(t, db, brokers, "relay: {max_in_flight_bytes: 16KiB}")
		cut := 0
		rounds := scaled(2, 20)
		for range rounds {
			before := delivered(brokers, w.Topic())
			copyRows(t, p, w, 10_000)
			running := runUntilDrained(t, p)
			relaytest.Eventually(t, "some rows are delivered", func() (bool, string) { return delivered(brokers, w.Topic()) > before, running.Output() })
			running.Terminate(t)
			if code := running.Wait(t); code != 0 {
				cut++
			}
		}
		duplicates := finish(t, p, w)
		if duplicates > 0 {
			t.Errorf("%d duplicates although every stop could drain", duplicates)
		}
		t.Logf("bar: COPY of 10000 rows interrupted by 1 x SIGTERM, %d rounds, PostgreSQL %s: 0 lost, %d duplicates, %d stops cut short", rounds, db.Major(), duplicates, cut)
	})
}

// A COPY of which a part was delivered when the relay was told to stop at once: the
// brokers are unreachable, so that its drain lasts until the second signal.
func TestTarget_CopyCutByASecondSIGTERMLosesNothing(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		beside(t)
		const n = 10_000
		const window, some = 16 << 10, 400 << 10 // n rows are more than twice as much
		brokers := harness.Kfake(t, sandbox.KafkaOptions{})
		p, w := outbox(t, db, brokers, "relay: {max_in_flight_bytes: 16KiB}")
		random := rand.New(rand.NewPCG(w.Seed, 1))
		cut := 0
		rounds := scaled(2, 20)
		for range rounds {
			running := runForEver(t, p)
			p.AwaitCaughtUp(t)
			before := delivered(brokers, w.Topic())
			takeAwayAfter(brokers, 2*window+random.IntN(some)) // more than a window, whatever encloses its rows: a part is acknowledged
			copyRows(t, p, w, n)
			relaytest.Eventually(t, "the brokers are unreachable", func() (bool, string) { return brokers.Fake.Away(), running.Output() })
			if code := hurry(t, running); code == 1 {
				cut++
			} else {
				t.Errorf("a drain that was cut short ended with %d, want 1", code)
			}
			brokers.Fake.Return()
			if sent := delivered(brokers, w.Topic()) - before; sent <= 0 || sent >= n {
				t.Errorf("%d of %d rows were delivered: the COPY was not interrupted", sent, n)
			}
		}
		duplicates := finish(t, p, w)
		if duplicates == 0 {
			t.Error("no duplicate: nothing was cut short")
		}
		t.Logf("bar: COPY of %d rows interrupted by 2 x SIGTERM, %d rounds, PostgreSQL %s: 0 lost, %d duplicates, %d stops cut short", n, rounds, db.Major(), duplicates, cut)
	})
}

// A COPY of which a part was delivered when the connection broke.
func TestTarget_CopyCutByTheNetworkLosesNothing(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		beside(t)
		through, proxy := throughProxy(t, db)
		brokers := harness.Kfake(t, sandbox.KafkaOptions{})
		p, w := outbox(t, through, brokers, "relay: {max_in_flight_bytes: 16KiB}")
		p.DB = db
		random := rand.New(rand.NewPCG(w.Seed, 1))
		running := p.Exec(t, "run")
		before := p.Confirmed(t)
		relaytest.Eventually(t, "the relay streams", func() (bool, string) { return p.Confirmed(t) > before, running.Output() })
		rounds := scaled(2, 8) // each waits out the back-off, which grows
		for range rounds {
			had := delivered(brokers, w.Topic())
			proxy.CutAfter(sandbox.ToClient, 100_000+random.Int64N(1_000_000))
			copyRows(t, p, w, 10_000)
			relaytest.Eventually(t, "rows are delivered", func() (bool, string) { return delivered(brokers, w.Topic()) >= had+10_000, running.Output() })
			p.AwaitCaughtUp(t)
		}
		running.Terminate(t)
		if code := running.Wait(t); code != 0 {
			t.Errorf("exit code = %d", code)
		}
		t.Logf("bar: COPY of 10000 rows with the connection cut, %d rounds, PostgreSQL %s: 0 lost, %d duplicates", rounds, db.Major(), w.Verify(t))
	})
}

// Acknowledgements that never arrive: the records are there, and the client sends
// them again under the same numbers.
func TestTarget_LostAcknowledgementsRepeatNothing(t *testing.T) {
	brokers := harness.Kfake(t, sandbox.KafkaOptions{Brokers: 3, Proxied: true})
	p, w := outbox(t, harness.Postgres(t), brokers)
	running := p.Exec(t, "run")
	w.Start(t, 2, 5*time.Millisecond)
	relaytest.Eventually(t, "rows are delivered", func() (bool, string) { return delivered(brokers, w.Topic()) > 100, running.Output() })
	lost, random := 0, rand.New(rand.NewPCG(w.Seed, 1))
	for range scaled(5, 50) {
		goOn := func() {
			t.Helper()
			had := delivered(brokers, w.Topic())
			relaytest.Eventually(t, "rows go on", func() (bool, string) { return delivered(brokers, w.Topic()) > had+50, running.Output() })
		}
		heal := brokers.Fake.LoseProduceAnswers(w.Topic(), 3)
		goOn()
		heal()
		for _, proxy := range brokers.Fake.Proxies() {
			proxy.CutAfter(sandbox.ToClient, 1+random.Int64N(40)) // in the middle of an answer
		}
		goOn()
		lost++
	}
	w.Stop(t)
	p.AwaitCaughtUp(t)
	running.Terminate(t)
	if code := running.Wait(t); code != 0 {
		t.Errorf("exit code = %d", code)
	}
	duplicates := verifyPast(t, w, brokers)
	if duplicates != 0 {
		t.Errorf("%d duplicates", duplicates)
	}
	t.Logf("bar: %d times lost acknowledgements, of both sorts: 0 lost, %d duplicates", lost, duplicates)
}

// verifyPast reads past the proxies.
func verifyPast(t *testing.T, w *relaytest.Workload, brokers *harness.Brokers) int {
	t.Helper()
	records, err := sandbox.ReadTopics(t.Context(), brokers.Addrs, []string{w.Topic()}, brokers.Fake.Direct())
	if err != nil {
		t.Fatal(err)
	}
	report := w.Ledger.Check(records)
	if err := report.Err(); err != nil || report.Committed == 0 {
		t.Fatalf("%s: %v", report, err)
	}
	return report.Duplicates
}

// Brokers that are away are back-pressure and not memory.
func TestTarget_MemoryStaysBoundedInAnOutage(t *testing.T) {
	brokers := harness.Kfake(t, sandbox.KafkaOptions{})
	p, w := outbox(t, harness.Postgres(t), brokers)
	running := p.Exec(t, "run")
	w.Insert(t, 100)
	p.AwaitCaughtUp(t)
	brokers.Fake.TakeAway(0)
	rows := scaled(60_000, 800_000)
	const each = 20_000
	for range rows / each {
		w.InsertKey(t, uuid.New(), each, 600)
	}
	relaytest.Eventually(t, "the outage is noticed", func() (bool, string) {
		return strings.Contains(running.Output(), "kafka_unreachable"), running.Output()
	})
	during := running.PeakMemory(t) >> 20
	brokers.Fake.Return()
	p.AwaitCaughtUp(t)
	peak := running.PeakMemory(t) >> 20
	running.Terminate(t)
	if code := running.Wait(t); code != 0 {
		t.Errorf("exit code = %d", code)
	}
	duplicates := w.Verify(t)
	t.Logf("bar: outage of the brokers with %d rows waiting: peak memory %d MiB, %d MiB until they were all sent, %d duplicates", rows, during, peak, duplicates)
	if peak >= 64 {
		t.Errorf("peak memory = %d MiB", peak)
	}
}

// stopPatience is for a stop that is far beyond its bound.
const stopPatience = time.Minute

// stopBound is P8 where a test has the machine for itself. Beside others a stop may take as long as
// each of its processes stands still; one that is held up takes wal_sender_timeout, two minutes here.
func stopBound() time.Duration {
	if scaled(0, 1) == 1 {
		return stopLimit
	}
	return stopPatience / 2
}

// A fast shutdown of PostgreSQL is not held up, whatever the relay is doing.
func TestTarget_FastShutdownIsNotHeldUp(t *testing.T) {
	for _, version := range harness.VersionsFor(t) {
		t.Run("postgres"+version, func(t *testing.T) {
			beside(t)
			db := harness.OwnPostgres(t, sandbox.PostgresOptions{Version: version})
			brokers := harness.Kfake(t, sandbox.KafkaOptions{})
			p, w := outbox(t, db, brokers)
			// Far beyond the limits, so that it is not what ends a connection.
			running := p.Exec(t, "run", "--set", "postgres.wal_sender_timeout=2m")
			w.Insert(t, 100)
			p.AwaitCaughtUp(t)
			stop := func(while string) {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), stopPatience)
				defer cancel()
				began := time.Now()
				if err := db.Server.Stop(ctx, sandbox.Fast); err != nil {
					t.Fatal(err)
				}
				took := time.Since(began)
				t.Logf("bar: fast stop of PostgreSQL %s, %s: %s", version, while, took.Round(time.Millisecond))
				if took > stopBound() {
					t.Errorf("%s: it took %s; the bound is %s", while, took, stopBound())
				}
				if err := db.Server.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				p.AwaitCaughtUp(t)
			}
			stop("idle")
			w.Insert(t, 20_000)
			stop("streaming")
			brokers.Fake.TakeAway(0)
			w.Insert(t, 20_000)
			timer := time.AfterFunc(stopPatience, brokers.Fake.Return)
			defer timer.Stop()
			ctx, cancel := context.WithTimeout(t.Context(), stopPatience+30*time.Second)
			defer cancel()
			began := time.Now()
			if err := db.Server.Stop(ctx, sandbox.Fast); err != nil {
				t.Fatal(err)
			}
			took := time.Since(began)
			brokers.Fake.Return()
			t.Logf("bar: fast stop of PostgreSQL %s, brokers away: %s", version, took.Round(time.Millisecond))
			if took > stopBound() {
				t.Errorf("brokers away: it took %s; the bound is %s, and the relay's grace is 5s, from when it sees the stop", took, stopBound())
			}
			if err := db.Server.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			p.AwaitCaughtUp(t)
			running.Terminate(t)
			if code := running.Wait(t); code != 0 {
				t.Errorf("exit code = %d", code)
			}
			w.Verify(t)
		})
	}
}
