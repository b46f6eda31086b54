//go:build chaos

package ends

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/outbox/pgxoutbox"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

var (
	chaosLength = flag.Duration("length", 15*time.Second, "how long TestChaos kills")
	chaosRate   = flag.Int("rate", 5000, "events a second that TestChaos writes at most")
	chaosKfake  = flag.Bool("kfake", false, "in-process brokers for TestChaos, in place of a real Apache Kafka")
)

// chaos is both ends with everything between them, each of which is killed by chance.
type chaos struct {
	*shop
	relay  *relaytest.Pipeline
	from   *harness.Database
	broker *harness.Brokers
	redis  *redisServer
	url    string // the consumers' way to their database
	counts map[string]*atomic.Int64
	kind   string

	// rebalance is how long a group waits for its members; 0: the client's minute. In-process brokers
	// keep a member that died while it waited to join, without a session that could end: the group
	// waits for it for all of that time, and from the beginning with each further death. Kafka ends
	// its session.
	rebalance time.Duration
}

// Relay, brokers, databases, Redis and consumers are killed at random under load. In the end every
// committed event has its effect once, and effects of a key are in order.
func TestChaos(t *testing.T) {
	brokers := "apache"
	if *chaosKfake || testing.Short() {
		brokers = "kfake"
	}
	for _, postgres := range []string{"15", "18"} {
		t.Run(postgres+" "+brokers, func(t *testing.T) { runChaos(t, postgres, brokers) })
	}
}

func runChaos(t *testing.T, major, kind string) {
	from, to := harness.OwnPostgres(t, sandbox.PostgresOptions{Version: major}), harness.OwnPostgres(t, sandbox.PostgresOptions{Version: major})
	var brokers *harness.Brokers
	if kind == "apache" {
		brokers = harness.OwnKafka(t, nil)
	} else {
		brokers = harness.Kfake(t, shortSessions)
	}
	c := &chaos{shop: newShop(t, to, brokers, 6), from: from, broker: brokers, redis: startRedis(t), url: to.URL, counts: map[string]*atomic.Int64{}}
	if kind == "kfake" {
		c.rebalance = 3 * time.Second
	}
	c.kind = strings.TrimSuffix(c.topic, "-events")
	c.topic = c.kind + "-events"
	brokers.CreateTopic(t, c.topic, 6)
	c.relay = relaytest.New(t, from, brokers, []string{"{table: public.outbox}"})
	c.relay.Setup(t)

	relayProgram(t) // which takes a while
	ctx, cancel := context.WithTimeout(t.Context(), *chaosLength)
	defer cancel()
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() { c.writes(t, ctx, n) })
	}
	all.Go(func() {
		c.killed(ctx, "relay", 3*time.Second, func() *exec.Cmd { return relayCommand(t, c.relay, "run") })
	})
	for range 3 {
		all.Go(func() { c.killed(ctx, "consumer", 4*time.Second, func() *exec.Cmd { return c.member(t) }) })
	}
	all.Go(func() {
		c.restarted(ctx, "database", 12*time.Second, func() error {
			db := []*harness.Database{from, to}[rand.IntN(2)]
			if err := db.Server.Kill(); err != nil {
				return err
			}
			<-time.After(time.Duration(rand.IntN(500)) * time.Millisecond)
			return db.Server.Start(t.Context())
		}, t)
	})
	all.Go(func() {
		c.restarted(ctx, "redis", 5*time.Second, func() error {
			switch rand.IntN(3) {
			case 0:
				return c.redis.client.FlushAll(t.Context()).Err()
			case 1:
				if err := c.redis.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
					return err
				}
				<-time.After(time.Second)
				return c.redis.cmd.Process.Signal(syscall.SIGCONT)
			}
			c.redis.kill()
			c.redis.start(t)
			for c.redis.client.Ping(t.Context()).Err() != nil && t.Context().Err() == nil {
				<-time.After(20 * time.Millisecond)
			}
			return nil
		}, t)
	})
	all.Go(func() {
		c.restarted(ctx, "broker", 15*time.Second, func() error {
			if brokers.Fake != nil {
				brokers.Fake.TakeAway(time.Duration(100+rand.IntN(900)) * time.Millisecond)
				return nil
			}
			return brokers.Apache.Restart(t.Context())
		}, t)
	})
	all.Wait()

	relay, member := &process{cmd: relayCommand(t, c.relay, "run"), done: make(chan struct{})}, &process{cmd: c.member(t), done: make(chan struct{})}
	relay.start(t)
	member.start(t)
	c.settle(t, func() string {
		return fmt.Sprintf("%d records\nrelay:\n%s\nconsumer:\n%s", len(c.broker.Read(t, c.topic)), relay.out.String(), member.out.String())
	})
	records := 0
	for range c.broker.Read(t, c.topic) {
		records++
	}
	c.verify(t)
	kills := []string{}
	for name, n := range c.counts {
		kills = append(kills, fmt.Sprint(name, " ", n.Load()))
		if n.Load() == 0 && *chaosLength >= time.Minute {
			t.Errorf("%s was never killed", name)
		}
	}
	t.Logf("%d events in %s, %d of %d records were repeats; killed: %s", len(c.ids), *chaosLength, records-len(c.ids), records, strings.Join(kills, ", "))
	if len(c.ids) < 100 || records <= len(c.ids) && *chaosLength >= time.Minute {
		t.Error("nothing was tried")
	}
}

var chaosMu sync.Mutex

func (c *chaos) count(name string) {
	chaosMu.Lock()
	n := c.counts[name]
	if n == nil {
		n = &atomic.Int64{}
		c.counts[name] = n
	}
	chaosMu.Unlock()
	n.Add(1)
}

// killed runs a program until ctx ends, kills it after a time by chance, and starts it again.
func (c *chaos) killed(ctx context.Context, name string, mean time.Duration, command func() *exec.Cmd) {
	for ctx.Err() == nil {
		cmd := command()
		if cmd.Start() != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(rand.ExpFloat64()*float64(mean)) + 500*time.Millisecond):
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		c.count(name)
	}
}

func (c *chaos) restarted(ctx context.Context, name string, mean time.Duration, do func() error, t *testing.T) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(rand.ExpFloat64()*float64(mean)) + 2*time.Second):
		}
		if ctx.Err() != nil {
			return
		}
		if err := do(); err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		c.count(name)
	}
}

// member is a consumer in a process of its own.
func (c *chaos) member(t *testing.T) *exec.Cmd {
	one := child{Rebalance: c.rebalance, URL: c.url, Topic: c.topic, Group: c.group, Brokers: c.brokers.Addrs, Parallel: 1 + rand.IntN(3), Session: 6 * time.Second, Redis: "127.0.0.1:" + c.redis.port, Payload: true, Round: 500}
	text, err := json.Marshal(one)
	if err != nil {
		t.Error(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$") //nolint:gosec // this program
	cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	return cmd
}

// writes commits events in the order of their keys. What it does not know to be committed, because
// the server died meanwhile, the table tells.
func (c *chaos) writes(t *testing.T, ctx context.Context, n int) {
	w := writer(t, outbox.Config{SkipDuplicates: true})
	const each = 50
	pace := time.NewTicker(time.Second * 4 * each / time.Duration(*chaosRate))
	defer pace.Stop()
	var conn *pgx.Conn
	seq := 0
	for ctx.Err() == nil {
		<-pace.C
		var err error
		if conn == nil || conn.IsClosed() {
			if conn, err = pgx.Connect(t.Context(), c.from.URL); err != nil {
				continue
			}
			// A transaction whose end is not known may have used its numbers.
			if err := conn.QueryRow(t.Context(), "SELECT coalesce(max((payload->>'Seq')::int), 0) FROM outbox WHERE aggregate_id LIKE $1", fmt.Sprintf("w%d-%%", n)).Scan(&seq); err != nil {
				_ = conn.Close(t.Context())
				continue
			}
		}
		events := make([]outbox.Event, each)
		for i := range events {
			seq++
			events[i] = outbox.Event{AggregateType: c.kind, AggregateID: fmt.Sprintf("w%d-%d", n, rand.IntN(200)), Type: "T", Payload: map[string]int{"Seq": seq}}
		}
		_ = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			_, err := w.Write(t.Context(), pgxoutbox.Tx(tx), events...)
			return err
		})
	}
	if conn != nil {
		_ = conn.Close(t.Context())
	}
}

// settle takes from the table what was committed, and waits for its effects.
func (c *chaos) settle(t *testing.T, state func() string) {
	t.Helper()
	conn := c.from.Connect(t)
	rows, err := conn.Query(t.Context(), "SELECT id::text FROM outbox")
	if err != nil {
		t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		c.ids[id] = true
	}
	last, moved := 0, time.Now()
	for {
		n := c.effects(t)
		if n >= len(c.ids) {
			return
		}
		if n != last {
			last, moved = n, time.Now()
		}
		if time.Since(moved) > relaytest.Patience {
			t.Fatalf("%d of %d events have an effect, and no more come; %s", n, len(c.ids), state())
		}
		<-time.After(100 * time.Millisecond)
	}
}
