//go:build engine

package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

func TestMain(m *testing.M) {
	if os.Getenv("CDC_RELAY_ENGINE_RUNNING") == "" {
		fmt.Fprintln(os.Stderr, "run these tests by `make engine-test`: they need an engine and its images")
		os.Exit(1)
	}
	harness.Main(m)
}

const root = "../.."

// image is what the tests build from the Dockerfile.
const image = "cdc-relay:test"

// try runs docker's client and returns all it said.
func try(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "DOCKER_BUILDKIT=1", "BUILDKIT_PROGRESS=plain")
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return out.String() + problems.String(), fmt.Errorf("docker %s: %w\n%s%s", strings.Join(args, " "), err, &out, &problems)
	}
	return strings.TrimSpace(out.String()), nil
}

// docker is try for what has to work; the answer has no errors in it.
func docker(t testing.TB, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 15*time.Minute)
	defer cancel()
	out, err := try(ctx, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// remove is for the end of a test, where what is gone is good.
func remove(args ...string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, _ = try(ctx, args...)
}

var built sync.Once

// build makes the image from the Dockerfile as it is, once.
func build(t testing.TB) {
	t.Helper()
	built.Do(func() {
		start := time.Now()
		docker(t, "build", "-q", "-t", image, ".")
		t.Logf("docker build: %.1f s", time.Since(start).Seconds())
	})
}

// world is a network with PostgreSQL and one broker, which answer on loopback too.
type world struct {
	name    string // of the network, and before all names in it
	db      *harness.Database
	brokers *harness.Brokers
}

func (w *world) container(name string) string { return w.name + "-" + name }

func newWorld(t testing.TB) *world {
	t.Helper()
	w := emptyWorld(t)
	port, err := sandbox.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	outside := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	w.run(t, "kafka", append([]string{"--network-alias", "kafka", "-p", outside + ":9092"}, variables(map[string]string{
		"KAFKA_NODE_ID": "1", "KAFKA_PROCESS_ROLES": "broker,controller",
		"KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:19093", "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
		"KAFKA_LISTENERS":                      "PLAINTEXT://:19092,CONTROLLER://:19093,HOST://:9092",
		"KAFKA_ADVERTISED_LISTENERS":           "PLAINTEXT://kafka:19092,HOST://" + outside,
		"KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,HOST:PLAINTEXT",
		"KAFKA_INTER_BROKER_LISTENER_NAME":     "PLAINTEXT", "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
		"KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1", "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
		"KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0", "KAFKA_LOG_DIRS": "/tmp/kraft-combined-logs",
	})...), "apache/kafka:"+sandbox.ApacheVersion)
	w.brokers = &harness.Brokers{Name: "apache", Addrs: []string{outside}}
	w.awaitBrokers(t, 1)
	return w
}

// emptyWorld is a network with PostgreSQL alone.
func emptyWorld(t testing.TB) *world {
	t.Helper()
	w := &world{name: strings.ReplaceAll(harness.Unique(t, "cdc"), "_", "-")}
	docker(t, "network", "create", w.name)
	t.Cleanup(func() { remove("network", "rm", w.name) })
	w.run(t, "postgres", []string{"--network-alias", "postgres", "-p", "127.0.0.1::5432", "-e", "POSTGRES_DB=shop", "-e", "POSTGRES_HOST_AUTH_METHOD=trust"},
		"postgres:18", "postgres", "-c", "wal_level=logical", "-c", "max_wal_size=4GB", "-c", "max_replication_slots=20", "-c", "max_wal_senders=20")
	w.db = &harness.Database{Name: "shop", URL: "postgres://postgres@" + w.published(t, "postgres", "5432") + "/shop?sslmode=disable"}
	relaytest.Eventually(t, "PostgreSQL answers", func() (bool, string) {
		conn, err := pgx.Connect(t.Context(), w.db.URL)
		if err != nil {
			return false, err.Error()
		}
		return conn.Close(t.Context()) == nil, ""
	})
	return w
}

// awaitBrokers waits until so many brokers are members of the cluster.
func (w *world) awaitBrokers(t testing.TB, n int) {
	t.Helper()
	admin := w.brokers.Admin(t)
	relaytest.Eventually(t, fmt.Sprintf("%d brokers answer", n), func() (bool, string) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		brokers, err := admin.ListBrokers(ctx)
		return err == nil && len(brokers) == n, fmt.Sprint(len(brokers), err)
	})
}

func variables(values map[string]string) (args []string) {
	for name, value := range values {
		args = append(args, "-e", name+"="+value)
	}
	return args
}

// run starts a container that the test removes.
func (w *world) run(t testing.TB, name string, options []string, command ...string) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := exec.Command("docker", "logs", "--tail", "60", w.container(name)).CombinedOutput()
			t.Logf("%s said:\n%s", name, out)
		}
		remove("rm", "-fv", w.container(name))
	})
	docker(t, append(append([]string{"run", "-d", "--name", w.container(name), "--network", w.name}, options...), command...)...)
}

// published is where a port of a container answers on this machine.
func (w *world) published(t testing.TB, name, port string) string {
	t.Helper()
	address, _, _ := strings.Cut(docker(t, "port", w.container(name), port), "\n")
	return address
}

// environment is the configuration of a relay in this world.
func (w *world) environment() []string {
	return variables(map[string]string{
		"CDC_RELAY_POSTGRES_URL":                "postgres://postgres@postgres:5432/shop?sslmode=disable",
		"CDC_RELAY_KAFKA_BROKERS":               "kafka:19092",
		"CDC_RELAY_KAFKA_CREATE_TOPICS_ENABLED": "true",
		"CDC_RELAY_OUTBOX_TABLE":                "public.outbox",
		"CDC_RELAY_HTTP_LISTEN":                 "0.0.0.0:8080",
		"CDC_RELAY_LOG_LEVEL":                   "debug",
		"CDC_RELAY_LOG_FORMAT":                  "json",
	})
}

// confined are the options under which the image has to work.
func confined(memory string) []string {
	return []string{"--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges:true", "--memory", memory, "--memory-swap", memory}
}

// setup runs the verb setup in a container of its own.
func (w *world) setup(t testing.TB, args ...string) {
	t.Helper()
	command := append([]string{"run", "--rm", "--network", w.name}, confined("64m")...)
	command = append(append(command, w.environment()...), image, "setup", "--create-table")
	docker(t, append(command, args...)...)
}

// workload writes to the table outbox and knows what it committed.
func (w *world) workload(t testing.TB, aggregate string) *relaytest.Workload {
	t.Helper()
	p := &relaytest.Pipeline{DB: w.db, Brokers: w.brokers}
	return p.NewWorkload(t, "public.outbox", aggregate)
}

// caughtUp waits until every slot is past what is in the WAL now. It asks the server: a relay
// whose network was cut does not know what is there.
func (w *world) caughtUp(t testing.TB) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), w.db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	var end string
	if err := conn.QueryRow(t.Context(), "SELECT pg_current_wal_lsn()::text").Scan(&end); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(8 * time.Minute); ; {
		var behind int64
		if err := conn.QueryRow(t.Context(), "SELECT coalesce(max($1::pg_lsn - confirmed_flush_lsn), 1)::bigint FROM pg_replication_slots", end).Scan(&behind); err != nil {
			t.Fatal(err)
		}
		if behind <= 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the slots are %d bytes behind %s", behind, end)
		}
		<-time.After(100 * time.Millisecond)
	}
}

// awaitLog waits for a relay to say something.
func (w *world) awaitLog(t testing.TB, name, text string) {
	t.Helper()
	relaytest.Eventually(t, name+" says "+text, func() (bool, string) {
		out, _ := exec.Command("docker", "logs", w.container(name)).CombinedOutput()
		return bytes.Contains(out, []byte(text)), tail(out)
	})
}

func tail(out []byte) string { return string(out[max(0, len(out)-2000):]) }

// state is what the engine knows of a container.
type state struct {
	State struct {
		Status    string
		Pid       int
		ExitCode  int
		OOMKilled bool
		Health    struct{ Status string }
	}
	RestartCount int
}

func (w *world) inspect(t testing.TB, name string) state {
	t.Helper()
	var s state
	if err := json.Unmarshal([]byte(docker(t, "inspect", "--format", "{{json .}}", w.container(name))), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func (w *world) awaitHealth(t testing.TB, name, health string) {
	t.Helper()
	relaytest.Eventually(t, name+" is "+health, func() (bool, string) {
		s := w.inspect(t, name)
		return s.State.Health.Status == health, fmt.Sprintf("%+v", s)
	})
}

// process is one fact of the status of a container's first process.
func (w *world) process(t testing.TB, name, fact string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(w.inspect(t, name).State.Pid), "status"))
	if errors.Is(err, os.ErrNotExist) {
		harness.NotHere(t, "the engine's processes are not this machine's")
	}
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if value, found := strings.CutPrefix(line, fact+":"); found {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("the status has no %s", fact)
	return ""
}

func newKey() uuid.UUID { return uuid.New() }
