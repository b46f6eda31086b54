package ends

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox/kafkainbox"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

const childVariable = "CDC_RELAY_TEST_CONSUMER"

// child is a consumer in a process of its own, which kills itself at a step.
type child struct {
	URL, Topic, Group, Letters string
	Brokers                    []string
	Step                       string // empty: it lives until it is killed
	At                         int64  // how often the step is passed before
	Parallel                   int
	Offsets                    bool
	Killer                     string // id of a record at which the process ends
	Frozen                     string // id of a record at which the process stops, with its effect not committed
	Redis                      string // address of one that has hints
	Payload                    bool   // records are those of a relay
	Round                      int    // events of a round; 0: 20
	Poison                     int64  // last digit of numbers that fail where there are Letters; negative: none
	Session                    time.Duration
	Rebalance                  time.Duration // 0: the client's minute
}

// steps are those between which a crash leaves different things behind.
var steps = []string{"claimed", "handled", "before commit", "committed", "progress stored", "offset committed", "dead letter sent"}

func runChild() {
	var c child
	must(json.Unmarshal([]byte(os.Getenv(childVariable)), &c))
	settings, err := pgxpool.ParseConfig(c.URL)
	must(err)
	settings.ConnConfig.Tracer = statements{&c}
	pool, err := pgxpool.NewWithConfig(context.Background(), settings)
	must(err)
	cfg := kafkainbox.Config{
		Consumer: "billing", Group: c.Group, Brokers: c.Brokers, Topics: []string{c.Topic}, DB: pool, RoundEvents: cmp.Or(c.Round, 20), Parallel: c.Parallel, Offsets: c.Offsets, DeadLetterTopic: c.Letters,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Retry:  kafkainbox.Retry{First: time.Millisecond, Max: 10 * time.Millisecond},
		Kafka:  []kgo.Opt{kgo.WithHooks(answers{&c}), kgo.HeartbeatInterval(100 * time.Millisecond), kgo.SessionTimeout(c.Session), kgo.FetchMaxWait(100 * time.Millisecond)},
	}
	if c.Rebalance > 0 {
		cfg.Kafka = append(cfg.Kafka, kgo.RebalanceTimeout(c.Rebalance))
	}
	cfg.Handle = func(ctx context.Context, tx pgx.Tx, r *kgo.Record) error {
		called.Store(true)
		c.pass("claimed")
		if c.Killer != "" && header(r, "id") == c.Killer {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		if c.Letters != "" && number(r)%10 == c.Poison {
			return kafkainbox.Permanent(errPoison)
		}
		effect := journal
		if c.Payload {
			effect = journalPayload
		}
		err := effect(ctx, tx, r)
		if c.Frozen != "" && header(r, "id") == c.Frozen {
			continued := make(chan os.Signal, 1)
			signal.Notify(continued, syscall.SIGCONT)
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			<-continued // the threads stop a moment after the call
		}
		c.pass("handled")
		return err
	}
	cfg.Events.Round = func(kafkainbox.Round) { c.pass("committed") }
	if c.Redis != "" {
		cfg.Hints = redisHints{redis.NewClient(&redis.Options{Addr: c.Redis})}
	}
	consumer, err := kafkainbox.New(cfg)
	must(err)
	must(consumer.Run(context.Background()))
	os.Exit(1)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var (
	passed atomic.Int64
	called atomic.Bool // the handler was
)

// pass ends the process as kill -9 does, with whatever it has on the way.
func (c *child) pass(step string) {
	if step == c.Step && passed.Add(1) > c.At {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// statements passes the steps that are before or behind a statement.
type statements struct{ c *child }

type textOf struct{}

func (s statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	// Before the first record a commit is that of prune, while the process joins its group: kfake
	// holds a group of which a joining member was killed for the rebalance timeout.
	if strings.HasSuffix(data.SQL, "commit") && called.Load() {
		s.c.pass("before commit")
	}
	return context.WithValue(ctx, textOf{}, data.SQL)
}

func (s statements) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if text, _ := ctx.Value(textOf{}).(string); data.Err == nil && strings.Contains(text, "inbox_progress\" AS p") && strings.Contains(text, "unnest") {
		s.c.pass("progress stored")
	}
}

// answers passes the steps that brokers' answers are.
type answers struct{ c *child }

func (a answers) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	switch {
	case e2e.Err() != nil:
	case key == 8: // OffsetCommit
		a.c.pass("offset committed")
	case key == 0: // Produce
		a.c.pass("dead letter sent")
	}
}

func (s *shop) child(step string, at int64, parallel int) child {
	return child{URL: s.db.URL, Topic: s.topic, Group: s.group, Brokers: s.brokers.Addrs, Step: step, At: at, Parallel: parallel, Session: 6 * time.Second}
}

func (c child) start(t *testing.T) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^$") //nolint:gosec,noctx // this program; the end of the test asks it first where it is
	cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() && cmd.Process.Signal(syscall.SIGQUIT) == nil { // a consumer that hangs says where
			<-time.After(time.Second)
		}
		_ = cmd.Process.Kill()
	})
	return cmd
}

// live is start for a consumer that is to live until it is killed by the function returned. One that
// ends before, as on a machine without memory left, fails the test.
func (c child) live(t *testing.T) (kill func()) {
	t.Helper()
	var cmd *exec.Cmd
	var asked atomic.Bool
	ended := make(chan struct{})
	t.Cleanup(func() { // behind that of start, which kills
		if cmd != nil {
			<-ended
		}
	})
	cmd = c.start(t)
	go func() {
		defer close(ended)
		if err := cmd.Wait(); !asked.Load() && !t.Failed() {
			t.Errorf("the consumer ended by itself: %v", err)
		}
	}()
	return func() {
		asked.Store(true)
		_ = cmd.Process.Kill()
		<-ended
	}
}

func awaitKilled(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		var exit *exec.ExitError
		if !errors.As(err, &exit) || !exit.Sys().(syscall.WaitStatus).Signaled() {
			t.Fatalf("the consumer was not killed: %v", err)
		}
	case <-time.After(relaytest.Patience):
		t.Fatal("the consumer did not reach the step")
	}
}

// A consumer is killed at each step, again and again. What it leaves is right every time.
func TestCrash_AtEachStep(t *testing.T) {
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, harness.Postgres(t), harness.Kfake(t, shortSessions), 3)
			kills := 6
			if testing.Short() {
				kills = 2
			}
			one := s.child(step, 0, 1)
			one.Session = time.Second
			if step == "dead letter sent" {
				one.Letters, one.Poison = s.topic+"-dead-letters", 3
				s.brokers.CreateTopic(t, one.Letters, 1)
			}
			for n := range kills {
				s.produce(t, 120, 12)
				one.Parallel = 1 + n%2*3
				one.At = rand.Int64N(map[string]int64{"claimed": 60, "handled": 60, "before commit": 4, "committed": 4, "progress stored": 2, "offset committed": 2, "dead letter sent": 2}[step])
				s.trickle(t, step)
				awaitKilled(t, one.start(t))
			}
			last := one
			last.Step = ""
			killed := last.live(t)
			s.awaitCommitted(t)
			killed()
			var dead []string
			for id := range s.ids {
				var n int
				if _, err := fmt.Sscanf(id[len(id)-1:], "%d", &n); err == nil && n == 3 && last.Letters != "" {
					dead = append(dead, id)
				}
			}
			s.verify(t, dead...)
			if last.Letters == "" {
				return
			}
			letters := map[string]int{}
			for _, r := range s.brokers.Read(t, last.Letters) {
				letters[header(r, "id")]++
			}
			for _, id := range dead {
				if letters[id] == 0 {
					t.Errorf("%s has no effect and no dead letter", id)
				}
			}
		})
	}
}

// trickle gives a step that comes with time its time.
func (s *shop) trickle(t *testing.T, step string) {
	if step != "offset committed" && step != "progress stored" {
		return
	}
	ctx := t.Context()
	go func() {
		for range 3 {
			select {
			case <-ctx.Done():
				return
			case <-time.After(1500 * time.Millisecond):
			}
			s.mu.Lock()
			last := s.past[len(s.past)-1]
			s.mu.Unlock()
			s.sent.Produce(ctx, &kgo.Record{Key: last.Key, Value: last.Value, Headers: last.Headers}, nil) // a repeat
		}
	}()
}

// A member that is frozen longer than its session comes back and believes to own its partitions.
func TestConsumer_MemberThatWasFrozenDoesNoHarm(t *testing.T) {
	for _, parallel := range []int{1, 8, 0} {
		t.Run(fmt.Sprint("parallel ", parallel), func(t *testing.T) {
			t.Parallel()
			s := newShop(t, harness.Postgres(t), harness.Kfake(t, shortSessions), 6)
			frozen := s.child("", 0, parallel)
			frozen.Session = time.Second
			s.unique = parallel == 0
			frozen.Offsets = s.unique
			cfg := s.config()
			cfg.Parallel, cfg.Offsets = parallel, s.unique
			cfg.Kafka = append(cfg.Kafka, kgo.SessionTimeout(time.Second))
			s.produce(t, 300, 30)
			process := frozen.start(t)
			s.awaitEffects(t, 20)
			m := s.start(t, cfg)
			for range 3 {
				s.produce(t, 300, 30)
				if err := process.Process.Signal(syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				s.produce(t, 200, 30)
				s.repeat(t, 200)
				s.awaitGroup(t, "the frozen one is no member", func(g kadm.DescribedGroup) bool { return g.State == "Stable" && len(g.Members) == 1 })
				s.produce(t, 300, 30)
				if err := process.Process.Signal(syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
				s.awaitGroup(t, "it is a member again", func(g kadm.DescribedGroup) bool { return g.State == "Stable" && len(g.Members) == 2 })
			}
			s.awaitAll(t)
			s.awaitCommitted(t)
			_ = process.Process.Kill()
			_ = process.Wait()
			// While the group waits for the killed member the client commits nothing, with brokers of any
			// kind. Its records would be duplicates, and verify shows that they have no second effect.
			if err := m.end(t); err != nil {
				t.Log(err)
			}
			s.verify(t)
		})
	}
}

// Connections to the database are cut all the time: also between a COMMIT and its answer.
func TestConsumer_LosesConnectionsToTheDatabase(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t)
	s := newShop(t, db, harness.Kfake(t, sandbox.KafkaOptions{}), 3)
	proxy, err := sandbox.NewProxy(db.Server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	cfg := s.config()
	cfg.DB, cfg.Parallel, cfg.RoundEvents = newPool(t, through(t, db.URL, proxy), 8), 2, 10
	cfg.Events.Trouble = func(error) {}
	letters := s.topic + "-dead-letters"
	s.brokers.CreateTopic(t, letters, 1)
	cfg.DeadLetterTopic = letters
	m := s.start(t, cfg)
	for range 40 {
		s.produce(t, 60, 10)
		<-time.After(time.Duration(30+rand.IntN(60)) * time.Millisecond)
		proxy.Cut()
		if rand.IntN(4) == 0 {
			proxy.CutAfter(sandbox.ToClient, int64(rand.IntN(2000)))
			<-time.After(20 * time.Millisecond)
			proxy.Heal()
		}
	}
	s.finish(t, m)
	if dead := s.brokers.Read(t, letters); len(dead) > 0 {
		t.Errorf("%d records paid for the connections", len(dead))
	}
}

// The database is killed, and comes back; so do the brokers.
func TestConsumer_OutlivesServers(t *testing.T) {
	t.Parallel()
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{})
	s := newShop(t, db, harness.Kfake(t, sandbox.KafkaOptions{}), 3)
	cfg := s.config()
	cfg.Events.Trouble = func(error) {}
	m := s.start(t, cfg)
	for range 3 {
		s.produce(t, 400, 10)
		if err := db.Server.Kill(); err != nil {
			t.Fatal(err)
		}
		s.produce(t, 400, 10)
		if err := db.Server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.brokers.Fake.TakeAway(200 * time.Millisecond)
	}
	s.finish(t, m)
}

// A record that ends the process each time is found among others that were on their way, and becomes
// a dead letter.
func TestPoison_ThatEndsTheProcessIsFound(t *testing.T) {
	for _, way := range []string{"one at a time", "parallel", "offsets"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, harness.Postgres(t), harness.Kfake(t, shortSessions), 2)
			var cfg kafkainbox.Config
			ways[way](&cfg)
			s.unique = cfg.Offsets
			one := s.child("", 0, cfg.Parallel)
			one.Offsets, one.Session = cfg.Offsets, time.Second
			one.Letters = s.topic + "-dead-letters"
			s.brokers.CreateTopic(t, one.Letters, 1)
			for s.seqs["k1"] < 15 {
				s.produce(t, 50, 5)
			}
			one.Killer = "k1-12"
			one.Poison = -1
			kills := 0
			for ; kills < 12; kills++ {
				cmd := one.start(t)
				ended := make(chan error, 1)
				go func() { ended <- cmd.Wait() }()
				for done := false; !done; {
					select {
					case <-ended:
						done = true
					case <-time.After(50 * time.Millisecond):
						if s.effects(t) == len(s.ids)-1 && len(s.brokers.Read(t, one.Letters)) > 0 {
							s.awaitCommitted(t)
							_ = cmd.Process.Kill()
							<-ended
							s.verify(t, one.Killer)
							letters := s.brokers.Read(t, one.Letters)
							if len(letters) != 1 || header(letters[0], "id") != one.Killer || !strings.Contains(header(letters[0], "cdc-relay-error-message"), "the process ended 3 times") {
								t.Errorf("%d letters: %s", len(letters), text(letters[0]))
							}
							t.Logf("found after %d ends of the process", kills)
							return
						}
					}
				}
			}
			t.Errorf("the process ended %d times, and the record is not found; %d of %d effects", kills, s.effects(t), len(s.ids))
		})
	}
}

// An attempt that came back is no end of the process, though the database did not take that it did.
func TestPoison_IsNotARecordWhoseAttemptsCameBack(t *testing.T) {
	t.Parallel()
	s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 1)
	s.produce(t, 5, 1)
	s.db.Exec(t, "INSERT INTO inbox_progress (consumer, topic, partition, next, at, starts) VALUES ('billing', $1, 0, 0, now(), 5)", s.topic) // members ended there
	s.db.Exec(t, "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END'")
	s.db.Exec(t, "CREATE TRIGGER refuse BEFORE DELETE ON inbox_attempts EXECUTE FUNCTION refuse()")
	cfg := s.config()
	cfg.Events.Blocked = func(e *kafkainbox.RecordError) { t.Error(e) }
	tries := 0
	cfg.Handle = func(ctx context.Context, tx pgx.Tx, r *kgo.Record) error { // one partition, one goroutine
		if tries++; tries <= 5 {
			return &pgconn.PgError{Code: "40001"}
		}
		return journal(ctx, tx, r)
	}
	s.finish(t, s.start(t, cfg))
}

// shortSessions are brokers that find out within a second that a member is gone.
var shortSessions = sandbox.KafkaOptions{Settings: map[string]string{"group.min.session.timeout.ms": "500"}}
