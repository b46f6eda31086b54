package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/sandbox"
)

// bench is what the suites share.
type bench struct {
	options
	dir    string
	binary string // the relay
	pg     *sandbox.Postgres
	ways   ways

	cluster map[string]*cluster // by kind of sink
	apache  *sandbox.Apache
	java    string
	major   int // of Java
	jars    string

	converter string            // plugin.path of Debezium's contestant with a registry
	registry  *sandbox.Registry // its own

	warmed   map[string]bool // by contestant: its drains have warmed the broker
	followed bool            // somebody's small records have passed through the broker for a while

	results *Results
	slots   int               // that were made so far
	missing map[string]string // contestant → why
	lacking map[string]error  // kind of sink → why it did not start
}

// cluster is somewhere to write to.
type cluster struct {
	addrs  []string
	pid    int   // 0 where it does not run here as a process, or as several
	copies int16 // of each record; 0 is one
	client *kgo.Client
	admin  *kadm.Client
	stop   func() error
}

// The kinds of sink.
const (
	toNothing = "none"
	toKfake   = "kfake"
	toKafka   = "kafka"
	toThree   = "kafka-3" // three brokers, each record acknowledged by two of three replicas at least
)

var errNoKafka = errors.New("there is no Apache Kafka here")

func (b *bench) startServers(ctx context.Context) error {
	var err error
	if b.ways, err = newWays(b.dir); err != nil {
		return err
	}
	b.pg, err = sandbox.StartPostgres(ctx, sandbox.PostgresOptions{Version: b.version, Log: os.Stderr, CertFile: b.ways.cert, KeyFile: b.ways.key, Settings: map[string]string{
		"max_wal_size": "32GB", "checkpoint_timeout": "1h", "shared_buffers": "512MB", "max_replication_slots": "40", "max_wal_senders": "20",
		"logical_decoding_work_mem": "64MB",
	}})
	if err != nil {
		return err
	}
	b.cluster = map[string]*cluster{}
	return nil
}

func (b *bench) stopServers() {
	for _, c := range b.cluster {
		c.client.Close()
		_ = c.stop()
	}
	if b.registry != nil {
		_ = b.registry.Close()
	}
	_ = b.pg.Close()
	b.ways.close()
}

// brokers gives a cluster of a kind, started at its first use.
func (b *bench) brokers(ctx context.Context, kind string) (*cluster, error) {
	if c := b.cluster[kind]; c != nil {
		return c, nil
	}
	if err := b.lacking[kind]; err != nil {
		return nil, err
	}
	c, err := b.startBrokers(ctx, kind)
	if err != nil && ctx.Err() == nil {
		b.lacking[kind] = err
	}
	return c, err
}

func (b *bench) startBrokers(ctx context.Context, kind string) (*cluster, error) {
	var c *cluster
	var err error
	switch kind {
	case toKfake:
		c, err = startKfake(ctx)
	case toKafka:
		c, err = b.startKafka(ctx)
	case toThree:
		c, err = b.startThree(ctx)
	default:
		return &cluster{}, nil
	}
	if err != nil {
		return nil, err
	}
	c.client, err = kgo.NewClient(kgo.SeedBrokers(c.addrs...))
	if err != nil {
		return nil, errors.Join(err, c.stop())
	}
	c.admin = kadm.NewClient(c.client)
	if err := c.warm(ctx, min(warmRecords, b.rows)); err != nil {
		c.client.Close()
		return nil, errors.Join(fmt.Errorf("warm the brokers: %w", err), c.stop())
	}
	b.cluster[kind] = c
	return c, nil
}

// The brokers are warmed in rounds, until two of them in succession cost hardly less
// than the cheapest before.
const (
	warmRecords = 500_000
	warmRounds  = 20
)

// warm has the brokers take records like those of the workload, over as many
// partitions; few where the backlog has few. A broker that has just started compiles its own code while it works, for
// a minute or so: whoever came first would pay for that, several times over.
func (c *cluster) warm(ctx context.Context, records int) error {
	topics := []string{"warm-up-0", "warm-up-1", "warm-up-2", "warm-up-3"}
	if err := c.topics(ctx, topics, 4); err != nil {
		return err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(c.addrs...), kgo.ProducerBatchCompression(kgo.Lz4Compression()), kgo.ProducerLinger(10*time.Millisecond))
	if err != nil {
		return err
	}
	defer client.Close()
	values := make([][]byte, keys)
	for i := range values {
		values[i] = []byte(order(int64(i)))
	}
	var best time.Duration
	for round, in := 0, 0; round < warmRounds && in < 2; round++ {
		spent, err := c.warmOnce(ctx, client, topics, values, records)
		if err != nil {
			return err
		}
		if spent == 0 { // nothing tells it here
			break
		}
		in++
		if best == 0 || spent < best*95/100 {
			best, in = spent, 0
		}
	}
	_, err = c.admin.DeleteTopics(ctx, topics...)
	return err
}

// warmOnce produces one round and returns the CPU time that it took the brokers.
func (c *cluster) warmOnce(ctx context.Context, client *kgo.Client, topics []string, values [][]byte, records int) (time.Duration, error) {
	began, _ := cpuTime(c.pid)
	for i := range records {
		client.Produce(ctx, &kgo.Record{
			Topic: topics[i%len(topics)], Key: strconv.AppendInt(nil, int64(i%keys), 10), Value: values[i%keys],
			Headers: []kgo.RecordHeader{{Key: "id", Value: strconv.AppendInt(nil, int64(i), 10)}, {Key: "eventType", Value: []byte("Changed")}},
		}, nil)
	}
	if err := client.Flush(ctx); err != nil {
		return 0, err
	}
	ended, _ := cpuTime(c.pid)
	return ended - began, nil
}

// findKafka finds what Kafka and Debezium run with.
func (b *bench) findKafka(ctx context.Context) error {
	var err error
	if b.java, b.major, err = sandbox.FindJava(ctx); err != nil {
		return fmt.Errorf("%w: %w", errNoKafka, err)
	}
	if b.jars, err = sandbox.FetchDebezium(ctx, os.Stderr); err != nil {
		return fmt.Errorf("%w: %w", errNoKafka, err)
	}
	return nil
}

func (b *bench) startKafka(ctx context.Context) (*cluster, error) {
	if err := b.findKafka(ctx); err != nil {
		return nil, err
	}
	var err error
	// The sandbox's own settings are for quick starts: no second compiler, a small
	// heap. A benchmark's broker is one that somebody would run, unless -tier says else. With
	// its default of 1 GB it stands still each 5 s for 12 to 60 ms, to collect, which is
	// everybody's p99.
	b.apache, err = sandbox.StartApache(ctx, sandbox.ApacheOptions{Java: b.java, Jars: b.jars, TLS: b.ways.listeners(), Links: b.ways.links,
		JVM: []string{"-XX:TieredStopAtLevel=" + strconv.Itoa(b.tier), "-Xms4g", "-Xmx4g"}, Settings: map[string]string{"log.retention.check.interval.ms": "3600000"}})
	if err != nil {
		return nil, err
	}
	return &cluster{addrs: []string{b.apache.Addr()}, pid: b.apache.Pid(), stop: b.apache.Close}, nil
}

// startKfake starts in-process brokers in a process of their own, so that their
// memory and time are not the relay's.
func startKfake(context.Context) (*cluster, error) {
	p, err := startRole("brokers")
	if err != nil {
		return nil, err
	}
	line, err := p.line()
	if err != nil {
		return nil, errors.Join(err, p.end())
	}
	return &cluster{addrs: strings.Split(line, ","), pid: p.pid(), stop: p.end}, nil
}

// topics makes those that are missing, and returns when all are ready.
func (c *cluster) topics(ctx context.Context, names []string, partitions int32) error {
	if c.admin == nil {
		return nil
	}
	made, err := c.admin.CreateTopics(ctx, partitions, max(c.copies, 1), nil, names...)
	if err != nil {
		return err
	}
	for _, t := range made {
		if t.Err != nil && !strings.Contains(t.Err.Error(), "TOPIC_ALREADY_EXISTS") {
			return fmt.Errorf("make topic %s: %w", t.Topic, t.Err)
		}
	}
	return c.awaitLeaders(ctx, names)
}

// awaitLeaders returns once every partition of topics answers: thousands of new ones
// take a broker seconds, which are no part of a run.
func (c *cluster) awaitLeaders(ctx context.Context, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		_, _, err := c.offsets(ctx, names)
		if err == nil {
			return nil
		}
		if !pause(ctx, 200*time.Millisecond) {
			return fmt.Errorf("wait for the leaders of %d topics: %w", len(names), err)
		}
	}
}

// offsets are the ends of topics.
func (c *cluster) offsets(ctx context.Context, names []string) (kadm.ListedOffsets, int64, error) {
	ends, err := c.admin.ListEndOffsets(ctx, names...)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, 0, err
	}
	var sum int64
	ends.Each(func(o kadm.ListedOffset) { sum += o.Offset })
	return ends, sum, nil
}

// enter notes what everything ran on.
func (b *bench) enter() {
	b.results.Machine = machine()
	b.results.Versions = map[string]string{"Go": runtime.Version()}
	if v, err := b.pg.Version(context.Background()); err == nil {
		b.results.Versions["PostgreSQL"] = v
	}
	if out, err := exec.Command(b.binary, "version").Output(); err == nil {
		line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		b.results.Versions["cdc-relay"] = line
	}
	if size, err := os.Stat(b.binary); err == nil {
		b.results.Versions["relay binary"] = fmt.Sprintf("%.1f MB", float64(size.Size())/1e6)
	}
	fmt.Printf("%s; PostgreSQL %s\n", b.results.Machine, b.results.Versions["PostgreSQL"])
}

// leave notes what took part and what did not.
func (b *bench) leave() {
	if b.apache != nil {
		b.results.Versions["Apache Kafka"] = sandbox.ApacheVersion
		b.results.Versions["Debezium"] = sandbox.DebeziumVersion
		b.results.Versions["Java"] = strconv.Itoa(b.major)
	}
	if b.registry != nil {
		b.results.Versions["Apicurio"] = sandbox.RegistryVersion + ", its converter " + sandbox.ConverterVersion
	}
	b.results.Missing = b.missing
}

// refuse explains why a contestant has no figure in a suite; it takes part in none after it.
func (b *bench) refuse(suite string, c contestant, err error) {
	fmt.Printf("   %-18s no figure: %v\n", c.name, err)
	b.missing[c.name] = suite + ": " + err.Error()
}
