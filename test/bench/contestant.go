package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/topics"
)

// job is what a contestant is told.
type job struct {
	w      *workload
	slot   string
	topics []string
	to     *cluster
	begin  func(context.Context) error // called again by whoever had to warm up first
}

// contestant reads one slot, or the table, and writes to topics.
type contestant struct {
	name  string
	sink  string
	runs  int  // at most; 0: as many as asked for
	first bool // its rate counts from its first record on, not from its start
	large bool // takes part where the point is one transaction or memory

	confirms bool // it is the slot of its job that it reads and confirms, so drains look at its position

	shards int // not 0: takes part in the suite of that name alone

	columns bool // takes part in the suite of that name alone

	backfills bool // takes part in the suite backfill alone

	far bool // takes part in the suite ways alone

	encodes bool // takes part in the suite formats alone

	replicated bool // takes part in the suite cluster alone

	drains  bool // takes part where a backlog is drained alone
	follows bool // takes part where rows are followed as they come alone

	foreign bool // what headers it gives is its own business

	// prepare makes ready what the run itself does not count. It says what is
	// missing when the contestant cannot take part. May be nil.
	prepare func(ctx context.Context, b *bench) error
	start   func(ctx context.Context, b *bench, j job) (*running, error)
}

// running is a contestant at work.
type running struct {
	pid      int
	spent    time.Duration                   // CPU time that does not count
	exited   <-chan struct{}                 // it ended
	finished func(ctx context.Context) error // returns when it says that it is through; nil: what it wrote is counted
	metrics  string                          // address of what it says of itself; empty: nothing
	stop     func() error
	log      fmt.Stringer
}

// The contestants by name.
const (
	limit        = "pg_recvlogical"
	relayDiscard = "relay-discard"
	relayKfake   = "relay-kfake"
	relayKafka   = "relay-kafka"
	relayExactly = "relay-exactly-once"
	relayShards2 = "relay-shards-2"
	relayShards4 = "relay-shards-4"
	relayColumns = "relay-column-list"
	debezium     = "debezium"
	debeziumWarm = "debezium-warm"
	debeziumHeap = "debezium-512m"
	debeziumSoon = "debezium-latency"
	polling      = "polling"
)

func contestants() []contestant {
	all := []contestant{
		{name: limit, sink: toNothing, prepare: needTool, start: startRecv},
		{name: relayDiscard, sink: toNothing, confirms: true, start: startDiscard},
		{name: relayKfake, sink: toKfake, runs: 1, confirms: true, start: startRelay()},
		{name: relayKafka, sink: toKafka, large: true, confirms: true, start: startRelay()},
		{name: relayExactly, sink: toKafka, runs: 2, confirms: true, prepare: needExactlyOnce, start: startExactlyOnce},
		{name: relayShards2, sink: toKafka, shards: 2, start: startShards(2)},
		{name: relayShards4, sink: toKafka, shards: 4, start: startShards(4)},
		{name: relayColumns, sink: toKafka, columns: true, confirms: true, prepare: needColumnLists, start: startRelay("CDC_RELAY_POSTGRES_PUBLICATION=" + listed)},
		{name: debezium, sink: toKafka, runs: 1, first: true, large: true, confirms: true, prepare: needDebezium, start: startDebezium(connect{})},
		{name: debeziumWarm, sink: toKafka, runs: 2, first: true, confirms: true, prepare: needDebezium, start: startDebezium(connect{warm: true})},
		{name: debeziumHeap, sink: toKafka, runs: 1, first: true, large: true, confirms: true, drains: true, prepare: needDebezium, start: startDebezium(connect{heap: "512m"})},
		{name: debeziumSoon, sink: toKafka, runs: 1, first: true, confirms: true, follows: true, prepare: needDebezium, start: startDebezium(connect{linger: "0", poll: "1"})},
		{name: polling, sink: toKafka, runs: 1, start: startPolling},
		{name: limitTLS, sink: toNothing, far: true, prepare: needBoth(needTool, needTLS), start: startRecvTLS},
		{name: relayTLS, sink: toKafka, far: true, confirms: true, prepare: needTLS, start: startTLS},
		{name: relayLink, sink: toKafka, far: true, confirms: true, prepare: needLinks, start: startLink(linkQuick)},
		{name: relayMillisecond, sink: toKafka, far: true, confirms: true, prepare: needLinks, start: startLink(linkMillisecond)},
		{name: relayAvro, sink: toKafka, encodes: true, confirms: true, start: startFormat(relayAvro)},
		{name: relayJSONSchema, sink: toKafka, encodes: true, confirms: true, start: startFormat(relayJSONSchema)},
		{name: relayProtobuf, sink: toKafka, encodes: true, confirms: true, start: startFormat(relayProtobuf)},
		{name: debeziumAvro, sink: toKafka, runs: 2, first: true, encodes: true, confirms: true, prepare: needConverter, start: startDebezium(connect{warm: true, avro: true})},
		{name: relayThree, sink: toThree, replicated: true, confirms: true, start: startRelay()},
		{name: debeziumThree, sink: toThree, runs: 2, first: true, replicated: true, confirms: true, prepare: needDebezium, start: startDebezium(connect{warm: true})},
		{name: copyOut, sink: toNothing, backfills: true, start: startCopy},
		{name: backfillAny, sink: toKafka, backfills: true, start: startBackfill()},
		{name: backfillOnce, sink: toKafka, backfills: true, prepare: needExactlyOnce, start: startBackfill("CDC_RELAY_RELAY_GUARANTEE=exactly_once")},
	}
	for _, variable := range os.Environ() {
		name, command, _ := strings.Cut(variable, "=")
		if name, ok := strings.CutPrefix(name, "CONTESTANT_"); ok && command != "" {
			all = append(all, contestant{name: name, sink: toKafka, runs: 2, large: true, foreign: true, start: startCommand(command)})
		}
	}
	return all
}

// taking are the contestants that the options leave, of those that keep says.
func (b *bench) taking(ctx context.Context, keep func(contestant) bool) []contestant {
	only, without := chosenNames(b.only), chosenNames(b.without)
	var found []contestant
	for _, c := range contestants() {
		if len(only) > 0 && !only[c.name] || without[c.name] || !keep(c) || b.missing[c.name] != "" {
			continue
		}
		_, err := b.brokers(ctx, c.sink)
		if err == nil && c.prepare != nil {
			err = c.prepare(ctx, b)
		}
		if err != nil {
			b.missing[c.name] = err.Error()
			fmt.Printf("   %s does not take part: %v\n", c.name, err)
			continue
		}
		found = append(found, c)
	}
	if len(found) == 0 {
		fmt.Println("   nobody takes part")
	}
	return found
}

func named(names ...string) func(contestant) bool {
	return func(c contestant) bool { return slices.Contains(names, c.name) }
}

// needTool finds pg_recvlogical.
func needTool(_ context.Context, b *bench) error {
	if findTool("pg_recvlogical", b.version) == "" {
		return errors.New("pg_recvlogical is not installed (package postgresql-client)")
	}
	return nil
}

func findTool(name, version string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, v := range []string{version, "18", "17", "16", "15", "14"} {
		path := filepath.Join("/usr/lib/postgresql", v, "bin", name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

// startRecv is the reference: a client of PostgreSQL's own that is always ready
// and throws everything away.
func startRecv(_ context.Context, b *bench, j job) (*running, error) { return recv(b, j, j.w.url()) }

func recv(b *bench, j job, url string) (*running, error) {
	p, err := launch(exec.Command(findTool("pg_recvlogical", b.version), "-d", url, "-S", j.slot, "--start", "-f", "/dev/null",
		"--endpos", j.w.end.String(), "-o", "proto_version=1", "-o", "publication_names="+publication, "--no-loop"))
	if err != nil {
		return nil, err
	}
	p.drain()
	return &running{pid: p.pid(), exited: p.done, finished: p.awaitEnd, stop: p.end, log: p.stderr}, nil
}

// relayEnv configures the relay.
func relayEnv(j job, more ...string) []string {
	brokers := "127.0.0.1:9" // the discarding one never asks
	if len(j.to.addrs) > 0 {
		brokers = strings.Join(j.to.addrs, ",")
	}
	return append([]string{
		"CDC_RELAY_POSTGRES_URL=" + j.w.url(),
		"CDC_RELAY_POSTGRES_SLOT=" + j.slot,
		"CDC_RELAY_POSTGRES_PUBLICATION=" + publication,
		"CDC_RELAY_OUTBOX_TABLE=public.outbox",
		"CDC_RELAY_KAFKA_BROKERS=" + brokers,
		"CDC_RELAY_LOG_LEVEL=warn",
	}, more...)
}

func startDiscard(_ context.Context, _ *bench, j job) (*running, error) {
	p, err := startRole("discard", relayEnv(j, "BENCH_ROWS="+strconv.Itoa(j.w.rows))...)
	if err != nil {
		return nil, err
	}
	said := make(chan error, 1)
	go func() {
		line, err := p.line()
		if err == nil && line != "verified" {
			err = fmt.Errorf("%w: it said %q", errUnverified, line)
		}
		said <- err
	}()
	return &running{pid: p.pid(), exited: p.done, stop: p.end, log: p.stderr, finished: func(ctx context.Context) error {
		select {
		case err := <-said:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}}, nil
}

// startRelay runs the binary.
func startRelay(env ...string) func(context.Context, *bench, job) (*running, error) {
	return func(_ context.Context, b *bench, j job) (*running, error) {
		port, err := sandbox.FreePort()
		if err != nil {
			return nil, err
		}
		cmd := exec.Command(b.binary, "run")
		cmd.Dir = b.dir
		listen := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		cmd.Env = append(os.Environ(), relayEnv(j, append(slices.Clone(env), "CDC_RELAY_HTTP_LISTEN="+listen)...)...)
		p, err := launch(cmd)
		if err != nil {
			return nil, err
		}
		p.drain()
		return &running{pid: p.pid(), exited: p.done, metrics: "http://" + listen + "/metrics", stop: p.end, log: p.stderr}, nil
	}
}

// needColumnLists refuses a server that has none.
func needColumnLists(_ context.Context, b *bench) error {
	if major, err := strconv.Atoi(b.version); err == nil && major < 15 {
		return fmt.Errorf("PostgreSQL %d has no column lists in publications", major)
	}
	return nil
}

// startShards runs the binary with n slots, all of them copies like the one of others.
func startShards(n int) func(context.Context, *bench, job) (*running, error) {
	return func(ctx context.Context, b *bench, j job) (*running, error) {
		j.slot += "s"
		var slots []string
		for i := range n {
			name := fmt.Sprintf("%s_%d_%d", j.slot, n, i)
			if _, err := j.w.conn.Exec(ctx, "SELECT pg_copy_logical_replication_slot($1, $2)", baseSlot+"_"+j.w.database, name); err != nil {
				return nil, err
			}
			slots = append(slots, name)
		}
		if err := j.begin(ctx); err != nil { // the slots are no part of the run
			return nil, err
		}
		r, err := startRelay("CDC_RELAY_POSTGRES_SHARDS="+strconv.Itoa(n))(ctx, b, j)
		if err != nil {
			return nil, err
		}
		stop := r.stop
		r.stop = func() error {
			failed := stop()
			for _, name := range slots {
				failed = errors.Join(failed, j.w.drop(ctx, name))
			}
			return failed
		}
		return r, nil
	}
}

// needExactlyOnce asks the binary whether it has that, and makes the topic that it
// keeps positions in.
func needExactlyOnce(ctx context.Context, b *bench) error {
	cmd := exec.CommandContext(ctx, b.binary, "config", "validate")
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), "CDC_RELAY_POSTGRES_URL=postgres://127.0.0.1:1/x", "CDC_RELAY_OUTBOX_TABLE=public.outbox",
		"CDC_RELAY_KAFKA_BROKERS=127.0.0.1:1", "CDC_RELAY_RELAY_GUARANTEE=exactly_once")
	if out, err := cmd.CombinedOutput(); err != nil {
		line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("the relay refuses guarantee exactly_once: %s", line)
	}
	to, err := b.brokers(ctx, toKafka)
	if err != nil {
		return err
	}
	_, err = topics.EnsureCheckpointTopic(ctx, broker.Connection{Brokers: to.addrs}, topics.Creation{}, relay.Config{}.WithDefaults().CheckpointTopic, false)
	return err
}

// startExactlyOnce runs the binary with Kafka transactions. Their markers take offsets
// too, so that it is through is told by what it confirmed to PostgreSQL.
func startExactlyOnce(ctx context.Context, b *bench, j job) (*running, error) {
	r, err := startRelay("CDC_RELAY_RELAY_GUARANTEE=exactly_once")(ctx, b, j)
	if err == nil && j.w.end != 0 {
		r.finished = func(ctx context.Context) error { return j.confirmed(ctx, r) }
	}
	return r, err
}

// confirmed returns once the server was told that all rows are delivered.
func (j job) confirmed(ctx context.Context, r *running) error {
	conn, err := pgx.Connect(ctx, j.w.url())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var through bool
		if err := conn.QueryRow(ctx, "SELECT confirmed_flush_lsn >= $2::text::pg_lsn FROM pg_replication_slots WHERE slot_name = $1", j.slot, j.w.end.String()).Scan(&through); err != nil {
			return err
		}
		if through {
			return nil
		}
		select {
		case <-tick.C:
		case <-r.exited:
			return fmt.Errorf("it ended before the backlog did: %s", r.log)
		case <-ctx.Done():
			return fmt.Errorf("%w; it said: %s", context.Cause(ctx), r.log)
		}
	}
}

// pollInterval is the usual choice; the latency of polling is half of it.
const pollInterval = time.Second

func startPolling(_ context.Context, b *bench, j job) (*running, error) {
	p, err := startRole("polling", "BENCH_POSTGRES_URL="+j.w.url(), "BENCH_KAFKA_BROKERS="+strings.Join(j.to.addrs, ","),
		"BENCH_POLL_ROWS="+strconv.Itoa(b.pollRows))
	if err != nil {
		return nil, err
	}
	p.drain()
	return &running{pid: p.pid(), exited: p.done, stop: p.end, log: p.stderr}, nil
}

// startCommand runs somebody else's relay. It is told where everything is by the
// environment, and is through when its records are there.
func startCommand(command string) func(context.Context, *bench, job) (*running, error) {
	return func(_ context.Context, b *bench, j job) (*running, error) {
		cmd := exec.Command("/bin/sh", "-c", command)
		cmd.Env = append(os.Environ(),
			"BENCH_POSTGRES_URL="+j.w.url(), "BENCH_SLOT="+j.slot, "BENCH_PUBLICATION="+publication, "BENCH_TABLE=public.outbox",
			"BENCH_KAFKA_BROKERS="+strings.Join(j.to.addrs, ","), "BENCH_TOPICS="+strings.Join(j.topics, ","))
		p, err := launch(cmd)
		if err != nil {
			return nil, err
		}
		p.drain()
		// With what status it ends when asked is its own business: a JVM says 143.
		return &running{pid: p.pid(), exited: p.done, stop: p.halt, log: p.stderr}, nil
	}
}

func needDebezium(ctx context.Context, b *bench) error {
	if b.jars == "" {
		return errNoKafka
	}
	return nil
}

// tuned is what an expert would set. docs/benchmarks.md lists it.
var tuned = map[string]string{
	"key.converter":                           "org.apache.kafka.connect.storage.StringConverter",
	"value.converter":                         "org.apache.kafka.connect.storage.StringConverter",
	"header.converter":                        "org.apache.kafka.connect.storage.StringConverter",
	"offset.flush.interval.ms":                "1000",
	"producer.acks":                           "all",
	"producer.enable.idempotence":             "true",
	"producer.linger.ms":                      "5",
	"producer.batch.size":                     "262144",
	"producer.buffer.memory":                  "134217728",
	"producer.compression.type":               "snappy",
	"producer.max.request.size":               "2097152",
	"connector.client.config.override.policy": "All",
}

// connect is how a worker differs from the tuned one.
type connect struct {
	warm   bool   // it has drained a backlog of another database before, so that its code is compiled
	heap   string // all that it may have; empty: 2g
	linger string // producer.linger.ms; empty: that of tuned
	poll   string // poll.interval.ms of the connector; empty: 5
	avro   bool   // values by the registry's converter, of the payload as a schema of its own
}

func (c connect) worker(b *bench) map[string]string {
	settings := maps.Clone(tuned)
	if c.avro {
		settings["plugin.path"] = b.converter
	}
	if c.linger != "" {
		settings["producer.linger.ms"] = c.linger
	}
	return settings
}

// jvm overrides what the sandbox sets for quick starts.
func (c connect) jvm() []string {
	heap := cmp.Or(c.heap, "2g")
	return []string{"-XX:TieredStopAtLevel=4", "-XX:-UseSerialGC", "-XX:+UseParallelGC", "-Xms" + heap, "-Xmx" + heap}
}

func (c connect) connector(b *bench, name string, w *workload, slot string) ([]byte, error) {
	at, err := url.Parse(w.url())
	if err != nil {
		return nil, err
	}
	config := map[string]string{
		"connector.class": "io.debezium.connector.postgresql.PostgresConnector", "tasks.max": "1", "plugin.name": "pgoutput",
		"database.hostname": at.Hostname(), "database.port": at.Port(), "database.user": at.User.Username(), "database.dbname": w.database,
		"database.password": "unused", "database.sslmode": "disable",
		"topic.prefix": name, "slot.name": slot, "publication.name": publication, "publication.autocreate.mode": "disabled",
		"table.include.list": "public.outbox", "snapshot.mode": "no_data", "skipped.operations": "u,d,t",
		"poll.interval.ms": cmp.Or(c.poll, "5"), "max.batch.size": "8192", "max.queue.size": "32768", "status.update.interval.ms": "1000",
		"tombstones.on.delete": "false",
		"transforms":           "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
		"transforms.outbox.table.field.event.key": "aggregate_id", "transforms.outbox.table.field.event.type": "event_type",
		"transforms.outbox.route.by.field": "aggregate_type", "transforms.outbox.route.topic.replacement": "${routedByValue}-events",
		"transforms.outbox.table.fields.additional.placement": "event_type:header:eventType",
	}
	if c.avro {
		maps.Copy(config, b.converting())
	}
	return json.Marshal(map[string]any{"name": name, "config": config})
}

// startDebezium starts a worker with one connector.
func startDebezium(c connect) func(context.Context, *bench, job) (*running, error) {
	return func(ctx context.Context, b *bench, j job) (*running, error) {
		d, err := sandbox.StartDebezium(ctx, sandbox.DebeziumOptions{Java: b.java, Jars: b.jars, Brokers: j.to.addrs, Worker: c.worker(b), JVM: c.jvm()})
		if err != nil {
			return nil, err
		}
		if c.warm {
			if err := b.warmUp(ctx, c, d, j); err != nil {
				return nil, errors.Join(fmt.Errorf("warm up: %w", err), d.Close())
			}
		}
		text, err := c.connector(b, "bench", j.w, j.slot)
		if err == nil {
			err = j.begin(ctx)
		}
		spent, _ := cpuTime(d.Pid())
		if err == nil {
			err = d.Post(ctx, text)
		}
		if err != nil {
			return nil, errors.Join(err, d.Close())
		}
		return &running{pid: d.Pid(), spent: spent, stop: d.Close, log: logOf(d.Log)}, nil
	}
}

type logOf func() string

func (l logOf) String() string { return l() }

const warmRows = 100_000

func (b *bench) warmUp(ctx context.Context, c connect, d *sandbox.Debezium, j job) error {
	w, err := b.fill(ctx, fmt.Sprintf("warm%d", time.Now().UnixMilli()%1_000_000), shape{rows: warmRows, perTxn: 10, payload: j.w.payload, topics: j.w.topics})
	if err != nil {
		return err
	}
	_, before, err := j.to.offsets(ctx, j.topics)
	if err != nil {
		return err
	}
	slot, err := w.slot(ctx)
	if err != nil {
		return err
	}
	text, err := c.connector(b, "warm", w, slot)
	if err != nil {
		return err
	}
	if err := d.Post(ctx, text); err != nil {
		return err
	}
	for {
		_, now, err := j.to.offsets(ctx, j.topics)
		if err != nil {
			return err
		}
		if now-before >= warmRows {
			break
		}
		if !pause(ctx, 100*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	if err := d.Delete(ctx, "warm"); err != nil {
		return err
	}
	return errors.Join(w.drop(ctx, slot), w.close(ctx))
}
