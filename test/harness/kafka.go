package harness

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/sandbox"
)

// Brokers are a cluster that a test may use.
type Brokers struct {
	Name   string // kfake or apache
	Addrs  []string
	Fake   *sandbox.Kafka  // nil for a real cluster
	Apache *sandbox.Apache // nil unless the harness started it
}

// EachBroker runs a test on in-process brokers and on a real Apache Kafka.
func EachBroker(t *testing.T, test func(t *testing.T, brokers *Brokers)) {
	t.Helper()
	t.Run("kfake", func(t *testing.T) { test(t, Kfake(t, sandbox.KafkaOptions{})) })
	t.Run("apache", func(t *testing.T) { test(t, Kafka(t)) })
}

// Kfake starts in-process brokers for one test.
func Kfake(t testing.TB, options sandbox.KafkaOptions) *Brokers {
	t.Helper()
	fake, err := sandbox.StartKafka(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fake.Close(); err != nil {
			t.Error(err)
		}
	})
	return &Brokers{Name: "kfake", Addrs: fake.Addrs(), Fake: fake}
}

var apache struct {
	once    sync.Once
	brokers *Brokers
	err     error
}

// Kafka gives a real Apache Kafka, shared by the tests of this process. Topics
// are to be named with Unique.
func Kafka(t testing.TB) *Brokers {
	t.Helper()
	NeedsServer(t, "Apache Kafka")
	apache.once.Do(func() { apache.brokers, apache.err = findKafka() })
	if apache.err != nil {
		missing(t, "Apache Kafka", apache.err,
			"install Java 17 or newer and Maven, or start a container engine, or set "+KafkaBrokersVariable+" to the addresses of a cluster")
	}
	return apache.brokers
}

func findKafka() (*Brokers, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if list := os.Getenv(KafkaBrokersVariable); list != "" {
		return &Brokers{Name: "apache", Addrs: strings.Split(list, ",")}, nil
	}
	var server *sandbox.Apache
	err := fmt.Errorf("%w of Apache Kafka %s", sandbox.ErrNoEngine, kafkaVersion()) // the image is of one version
	if kafkaVersion() == sandbox.ApacheVersion {
		server, err = sandbox.StartApacheContainer(ctx)
	}
	if err != nil {
		if containersOnly() {
			return nil, err
		}
		if !errors.Is(err, sandbox.ErrNoEngine) {
			fmt.Fprintf(notice{}, "Apache Kafka does not run in a container, programs are used: %v\n", err)
		}
		var local error
		if server, local = startApache(ctx); local != nil {
			return nil, errors.Join(err, local)
		}
	}
	shared.add(server.Close)
	brokers := &Brokers{Name: "apache", Addrs: []string{server.Addr()}, Apache: server}
	return brokers, brokers.awaitMember(ctx)
}

// awaitMember returns when a broker that has just started is a member of its cluster.
// It answers before, and until then nobody can make a topic.
func (b *Brokers) awaitMember(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Addrs...))
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		members, err := kadm.NewClient(client).ListBrokers(ctx)
		if err == nil && len(members) > 0 {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("wait for Kafka's broker to join: %w", errors.Join(context.Cause(ctx), err))
		}
	}
}

// OwnKafka starts a real broker for one test alone, which may restart and pause
// it, and give it listeners with TLS beside the plain one. It is a process on this
// machine: neither a cluster of the environment nor a container can be had that way.
func OwnKafka(t testing.TB, settings map[string]string, listeners ...sandbox.ApacheTLS) *Brokers {
	t.Helper()
	NeedsServer(t, "Apache Kafka")
	java, jars, err := apacheProgram(t.Context())
	if err != nil {
		missing(t, "Apache Kafka", err, "install Java 17 or newer and Maven")
	}
	server, err := sandbox.StartApache(t.Context(), sandbox.ApacheOptions{Java: java, Jars: jars, Settings: settings, TLS: listeners})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	brokers := &Brokers{Name: "apache", Addrs: []string{server.Addr()}, Apache: server}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := brokers.awaitMember(ctx); err != nil {
		t.Fatal(err)
	}
	return brokers
}

func startApache(ctx context.Context) (*sandbox.Apache, error) {
	java, jars, err := apacheProgram(ctx)
	if err != nil {
		return nil, err
	}
	return sandbox.StartApache(ctx, sandbox.ApacheOptions{Java: java, Jars: jars})
}

func apacheProgram(ctx context.Context) (java, jars string, err error) {
	if java, err = findJava(ctx); err != nil {
		return "", "", err
	}
	jars, err = fetchJars(ctx)
	return java, jars, err
}

var javaVersion = regexp.MustCompile(`version "(\d+)`)

func findJava(ctx context.Context) (string, error) {
	java := filepath.Join(os.Getenv("JAVA_HOME"), "bin", "java")
	if os.Getenv("JAVA_HOME") == "" {
		var err error
		if java, err = exec.LookPath("java"); err != nil {
			return "", fmt.Errorf("find Java: %w", err)
		}
	}
	out, err := exec.CommandContext(ctx, java, "-version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("run %s: %w", java, err)
	}
	match := javaVersion.FindSubmatch(out)
	if match == nil {
		return "", fmt.Errorf("run %s -version: no version in its answer", java)
	}
	if major, err := strconv.Atoi(string(match[1])); err != nil || major < 17 {
		return "", fmt.Errorf("%s is Java %s; 17 or newer is needed", java, match[1])
	}
	return java, nil
}

//go:embed kafka/pom.xml
var pom []byte

// kafkaVersion is the version of Apache Kafka that tests get.
func kafkaVersion() string { return cmp.Or(os.Getenv(KafkaVersionVariable), sandbox.ApacheVersion) }

// fetchJars has Maven put Kafka's jars into the cache, once for each version.
func fetchJars(ctx context.Context) (string, error) {
	version := kafkaVersion()
	dir, err := os.MkdirTemp("", "kafka-pom")
	if err != nil {
		return "", fmt.Errorf("fetch Kafka: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "pom.xml")
	if err := os.WriteFile(file, pom, 0o644); err != nil {
		return "", fmt.Errorf("fetch Kafka: %w", err)
	}
	return jarsOf(ctx, "kafka-"+version, file, "-Dkafka.version="+version)
}

// Admin is a client for topics and ACLs, closed with the test.
func (b *Brokers) Admin(t testing.TB) *kadm.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Addrs...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return kadm.NewClient(client)
}

// CreateTopic makes a topic, waits until its leaders serve it, and removes it when
// the test ends. Settings are pairs of name and value.
func (b *Brokers) CreateTopic(t testing.TB, topic string, partitions int32, settings ...string) {
	t.Helper()
	configs := map[string]*string{}
	for i := 0; i+1 < len(settings); i += 2 {
		configs[settings[i]] = &settings[i+1]
	}
	admin := b.Admin(t)
	response, err := admin.CreateTopic(t.Context(), partitions, 1, configs, topic)
	if err == nil {
		err = response.Err
	}
	if err != nil {
		t.Fatalf("create topic %s: %v", topic, err)
	}
	awaitLeaders(t, admin, topic, int(partitions))
	t.Cleanup(func() {
		if b.Fake == nil { // a broker of its own forgets by itself
			_, _ = admin.DeleteTopic(context.Background(), topic)
		}
	})
}

// awaitLeaders returns when a topic can be written to. Real brokers answer that it is
// made before they know of it themselves.
func awaitLeaders(t testing.TB, admin *kadm.Client, topic string, partitions int) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		ends, err := admin.ListEndOffsets(t.Context(), topic)
		if err == nil {
			err = ends.Error()
		}
		if err == nil && len(ends[topic]) == partitions {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("topic %s has %d of %d partitions: %v", topic, len(ends[topic]), partitions, err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// Read returns all committed records of topics, in the order of offsets in each partition. A relay that
// blocks with exactly_once may abort a transaction and send its rows again.
func (b *Brokers) Read(t testing.TB, topics ...string) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	records, err := sandbox.ReadCommitted(ctx, b.Addrs, topics)
	if err != nil {
		t.Fatal(err)
	}
	return records
}

// ReadUncommitted is Read with the records of aborted transactions and of open ones.
func (b *Brokers) ReadUncommitted(t testing.TB, topics ...string) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	records, err := sandbox.ReadTopics(ctx, b.Addrs, topics)
	if err != nil {
		t.Fatal(err)
	}
	return records
}
