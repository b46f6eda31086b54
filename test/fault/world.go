package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/sandbox/objects"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// senderTimeout is the relay's wal_sender_timeout: short, so that a run has room
// for faults that outlast it.
const senderTimeout = 3 * time.Second

// cluster is what every kind of brokers has in common.
type cluster interface {
	Addrs() []string
	Proxies() []*sandbox.Proxy
	Direct() kgo.Opt
	Close() error
}

// servers outlive a run: a PostgreSQL of each version, real brokers, and a link.
type servers struct {
	postgres map[string]*sandbox.Postgres
	kafka    map[behind]*sandbox.Cluster
	link     *sandbox.Link // nil: no run needed one
	building sync.Mutex
	steps    string // a relay with failpoints, once it is built
}

// behind is a kind of real brokers, whose clients reach them over a link or not.
type behind struct {
	brokers string
	link    bool
}

func newServers() *servers {
	return &servers{postgres: map[string]*sandbox.Postgres{}, kafka: map[behind]*sandbox.Cluster{}}
}

func (s *servers) close() error {
	var errs []error
	for _, p := range s.postgres {
		errs = append(errs, p.Close())
	}
	for _, k := range s.kafka {
		errs = append(errs, k.Close())
	}
	if s.link != nil {
		errs = append(errs, s.link.Close())
	}
	return errors.Join(errs...)
}

// forget gives up servers that a failed run may have left in any state.
func (s *servers) forget(plan Plan) {
	if p := s.postgres[plan.Postgres]; p != nil {
		_ = p.Close()
		delete(s.postgres, plan.Postgres)
	}
	for _, link := range []bool{false, true} {
		if k := s.kafka[behind{plan.Broker, link}]; k != nil {
			_ = k.Close()
			delete(s.kafka, behind{plan.Broker, link})
		}
	}
}

func (s *servers) pg(ctx context.Context, version string) (*sandbox.Postgres, error) {
	if p := s.postgres[version]; p != nil {
		return p, nil
	}
	p, err := sandbox.StartPostgres(ctx, sandbox.PostgresOptions{
		Version: version, Sources: []sandbox.Source{sandbox.Local, sandbox.Download}, Log: os.Stderr,
		Settings: map[string]string{"max_wal_size": "2GB", "shared_buffers": "128MB", "wal_sender_timeout": "3s", "max_prepared_transactions": "20"},
	})
	if err == nil {
		s.postgres[version] = p
	}
	return p, err
}

func (s *servers) brokers(ctx context.Context, kind string, link *sandbox.Link) (cluster, error) {
	if kind == "kfake" {
		return sandbox.StartKafka(sandbox.KafkaOptions{Brokers: 3, Proxied: true, Link: link})
	}
	if k := s.kafka[behind{kind, link != nil}]; k != nil {
		return k, nil
	}
	java, jars, err := harness.KafkaProgram(ctx)
	if err != nil {
		return nil, err
	}
	n := 1
	if kind == "apache3" {
		n = 3
	}
	k, err := sandbox.StartCluster(ctx, sandbox.ClusterOptions{Java: java, Jars: jars, Brokers: n, Link: link})
	if err != nil {
		return nil, err
	}
	s.kafka[behind{kind, link != nil}] = k
	return k, nil
}

// partitions of each topic.
const partitions = 3

// world is the servers and processes of one run.
type world struct {
	plan    Plan
	dir     string // logs and artefacts
	servers *servers

	pg       *sandbox.Postgres
	database string
	slot     string
	pgProxy  *sandbox.Proxy // the relays' way to PostgreSQL
	inProxy  *sandbox.Proxy // the writers'
	link     *sandbox.Link  // between the relays and the proxies; nil: none
	kafka    cluster
	admin    *kadm.Client
	closers  []func()

	aggregates []string // values of the route column
	topics     []string

	relays   *relays
	load     *workload
	samples  *sampler
	locks    map[string]*sync.Mutex
	archived []*Delivery // records of topics that were deleted
	box      letterBox

	registry *schemaRegistry // nil: rows are not encoded

	store     *objects.Store // of exported files; nil: none
	storeURL  string
	smallDisk bool // that exported files are on

	mu       sync.Mutex
	done     []Done
	problems []string
}

// Done is an action as it happened.
type Done struct {
	Action
	Began  time.Time `json:"began"`
	Healed time.Time `json:"healed"`
	Detail string    `json:"detail,omitempty"`
	Took   Span      `json:"took,omitempty"` // of a stop or a takeover
}

// problem is something that must not happen and that only the fault's own code can see.
func (w *world) problem(format string, args ...any) {
	w.mu.Lock()
	w.problems = append(w.problems, fmt.Sprintf(format, args...))
	w.mu.Unlock()
}

func newWorld(ctx context.Context, s *servers, plan Plan, binary, dir string) (*world, error) {
	w := &world{plan: plan, dir: dir, servers: s, locks: map[string]*sync.Mutex{}, box: letterBox{discarded: map[string]bool{}}}
	for _, k := range kinds {
		for _, name := range k.takes {
			w.locks[name] = &sync.Mutex{}
		}
	}
	if err := w.build(ctx, binary); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *world) build(ctx context.Context, binary string) error {
	var err error
	if w.pg, err = w.servers.pg(ctx, w.plan.Postgres); err != nil {
		return err
	}
	name := fmt.Sprintf("fault_%d_%d", os.Getpid(), time.Now().UnixNano()%1e9)
	w.database, w.slot = name, name
	if err := w.exec(ctx, "postgres", "CREATE DATABASE "+name); err != nil {
		return err
	}
	if w.plan.loses() {
		if err := w.connect(); err != nil {
			return err
		}
	}
	for p, link := range map[**sandbox.Proxy]*sandbox.Link{&w.pgProxy: w.link, &w.inProxy: nil} {
		if *p, err = sandbox.NewProxyBehind(link, w.pg.Addr()); err != nil {
			return err
		}
		w.closers = append(w.closers, func() { _ = (*p).Close() })
	}
	if w.kafka, err = w.servers.brokers(ctx, w.plan.Broker, w.link); err != nil {
		return err
	}
	if w.plan.Broker == "kfake" {
		w.closers = append(w.closers, func() { _ = w.kafka.Close() })
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(w.kafka.Addrs()...), w.kafka.Direct())
	if err != nil {
		return err
	}
	w.closers = append(w.closers, client.Close)
	w.admin = kadm.NewClient(client)
	for i := range 2 {
		w.aggregates = append(w.aggregates, fmt.Sprintf("%s-%d", name, i))
		w.topics = append(w.topics, w.aggregates[i]+"-events")
	}
	for _, topic := range w.watched() {
		if err := w.createTopic(ctx, topic); err != nil {
			return err
		}
	}
	if w.plan.Letters != nil {
		if err := w.limit(ctx, narrow, w.topics...); err != nil {
			return err
		}
		if err := w.limit(ctx, wide, w.letterTopic()); err != nil {
			return err
		}
	}
	config := filepath.Join(w.dir, "relay.yaml")
	if err := errors.Join(w.prepareExport(ctx), w.prepareRegistry(), os.WriteFile(config, []byte(w.config()), 0o600)); err != nil {
		return err
	}
	args := []string{"--config", config}
	for _, setting := range w.plan.Settings {
		args = append(args, "--set", setting)
	}
	if err := w.setup(ctx, binary, config); err != nil {
		return err
	}
	w.samples = startSampler(w)
	w.closers = append(w.closers, w.samples.end)
	w.relays = newRelays(binary, w.dir, w.plan.Relays, args)
	if w.store != nil {
		w.relays.env = append(w.relays.env, storeEnv...)
	}
	return nil
}

func (w *world) config() string {
	text := fmt.Sprintf("postgres: {url: %q, slot: %s, publication: %s, wal_sender_timeout: %s}\n%skafka:\n  brokers: [%s]\n%slog: {level: info, format: text}\n",
		proxied(w.pg.URL(w.database), w.pgProxy.Addr()), w.slot, w.slot, senderTimeout, w.outboxConfig(), join(w.kafka.Addrs()), w.registryConfig())
	relay := w.lettersConfig()
	if w.plan.ExactlyOnce {
		relay = append(relay, "guarantee: exactly_once", "checkpoint_topic: "+w.checkpointTopic())
	}
	if w.plan.Jobs != nil {
		text += "maintenance: {interval: 1s, wait: 5s, max_rows_per_second: 0}\n"
		if !w.plan.ExactlyOnce {
			relay = append(relay, "detect_moved_slot: true", "checkpoint_topic: "+w.checkpointTopic())
		}
	}
	if relay != nil {
		text += "relay: {" + join(relay) + "}\n"
	}
	return text
}

func (w *world) checkpointTopic() string { return w.slot + "-positions" }

func join(parts []string) string {
	text := ""
	for i, p := range parts {
		if i > 0 {
			text += ", "
		}
		text += p
	}
	return text
}

func proxied(address, host string) string {
	at, err := url.Parse(address)
	if err != nil {
		return address
	}
	at.Host = host
	query := at.Query()
	query.Set("sslmode", "disable") // which is asked for where the address is not loopback
	at.RawQuery = query.Encode()
	return at.String()
}

// setup has the relay's own command make publication and slot, and makes a second
// slot of the same publication that nobody reads before the end: the server's own
// word on what was committed and in which order.
func (w *world) setup(ctx context.Context, binary, config string) error {
	if w.plan.Partitioned {
		err := w.exec(ctx, w.database, `CREATE TABLE outbox (id uuid PRIMARY KEY, aggregate_type varchar(100) NOT NULL, aggregate_id uuid NOT NULL,
			event_type varchar(100) NOT NULL, payload jsonb NOT NULL, created_at timestamptz NOT NULL DEFAULT now(), published_at timestamptz) PARTITION BY HASH (id)`)
		for i := 0; i < 3 && err == nil; i++ {
			err = w.exec(ctx, w.database, fmt.Sprintf("CREATE TABLE outbox_%d PARTITION OF outbox FOR VALUES WITH (MODULUS 3, REMAINDER %d)", i, i))
		}
		if err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, binary, "setup", "--config", config, "--create-table=polling")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cdc-relay setup: %w\n%s", err, out)
	}
	if w.plan.Jobs != nil {
		if err := w.exec(ctx, w.database, upkeepSQL); err != nil {
			return err
		}
	}
	return w.exec(ctx, w.database, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", w.witness())
}

func (w *world) witness() string { return w.slot + "_witness" }

func (w *world) createTopic(ctx context.Context, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	forEver := "-1" // what may hold dead letters has to keep them, or retention and marks pause
	settings := map[string]*string{"retention.ms": &forEver, "retention.bytes": &forEver}
	for {
		response, err := w.admin.CreateTopic(ctx, partitions, -1, settings, topic)
		if err == nil {
			err = response.Err
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		rest(ctx, 100*time.Millisecond)
	}
}

// sql is exec for a fault that finds the server in the middle of another one.
func (w *world) sql(ctx context.Context, sql string, args ...any) error {
	return persistEach(ctx, statementTime, func(ctx context.Context) error { return w.exec(ctx, w.database, sql, args...) })
}

// statementTime is the most for one statement: it may wait for a large transaction, which
// takes minutes on a busy machine.
const statementTime = 5 * time.Minute

// exec runs one statement past the proxies.
func (w *world) exec(ctx context.Context, database, sql string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	conn, err := pgx.Connect(ctx, w.pg.URL(database))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, sql, args...)
	return err
}

func (w *world) lsn(ctx context.Context, sql string, args ...any) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, w.pg.URL(w.database))
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var text string
	if err := conn.QueryRow(ctx, sql, args...).Scan(&text); err != nil {
		return 0, err
	}
	return parseLSN(text)
}

func parseLSN(text string) (uint64, error) {
	var high, low uint64
	if _, err := fmt.Sscanf(text, "%X/%X", &high, &low); err != nil {
		return 0, fmt.Errorf("position %q: %w", text, err)
	}
	return high<<32 | low, nil
}

func showLSN(lsn uint64) string { return fmt.Sprintf("%X/%X", lsn>>32, uint32(lsn)) }

// act runs one action to its end, healing included.
func (w *world) act(ctx context.Context, a Action) {
	k := kindNamed(a.Kind)
	for _, name := range slices.Sorted(slices.Values(k.takes)) {
		w.locks[name].Lock()
		defer w.locks[name].Unlock()
	}
	if ctx.Err() != nil {
		return
	}
	d := &Done{Action: a, Began: time.Now()}
	if err := k.run(ctx, w, d); err != nil && ctx.Err() == nil {
		w.problem("fault %s at %s could not be made or healed: %v", a.Kind, a.At, err)
	}
	d.Healed = time.Now()
	w.mu.Lock()
	w.done = append(w.done, *d)
	w.mu.Unlock()
	if w.plan.Patience > 0 {
		w.recovered(ctx, d.Healed)
	}
}

// recovered waits until what was written by then is confirmed.
func (w *world) recovered(ctx context.Context, then time.Time) {
	var goal uint64
	w.await(ctx, time.Duration(w.plan.Patience), func() bool {
		s, ok := w.samples.latest()
		if goal == 0 && ok && s.At.After(then) {
			goal = s.WAL
		}
		return goal > 0 && s.Confirmed >= goal
	})
}

// play runs the schedule beside the workload and returns when all is healed.
func (w *world) play(ctx context.Context) {
	began := time.Now()
	var actions sync.WaitGroup
	for _, a := range w.plan.Actions {
		rest(ctx, time.Until(began.Add(time.Duration(a.At))))
		if ctx.Err() != nil {
			break
		}
		actions.Go(func() { w.act(ctx, a) })
	}
	actions.Wait()
	rest(ctx, time.Until(began.Add(time.Duration(w.plan.Duration))))
}

// close ends everything of the run; what the servers keep of it is dropped.
func (w *world) close() {
	if w.load != nil {
		w.load.end()
	}
	if w.relays != nil {
		w.relays.close()
	}
	w.drop()
	for _, end := range slices.Backward(w.closers) {
		end()
	}
}

func (w *world) drop() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if w.database == "" {
		return
	}
	for _, slot := range []string{w.slot, w.witness()} {
		for ctx.Err() == nil {
			err := w.exec(ctx, w.database, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1", slot)
			if err == nil {
				break
			}
			_ = w.exec(ctx, w.database, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1", slot)
			rest(ctx, 50*time.Millisecond)
		}
	}
	_ = w.exec(ctx, "postgres", "DROP DATABASE IF EXISTS "+w.database+" WITH (FORCE)")
	if w.admin != nil && w.plan.Broker != "kfake" && w.plan.Broker != keepsTopics {
		_, _ = w.admin.DeleteTopics(ctx, append(slices.Clone(w.watched()), w.checkpointTopic())...)
	}
}
