package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// DebeziumVersion is the connector that FetchDebezium brings.
const DebeziumVersion = "3.6.1.Final"

// DebeziumOptions says how to run a Kafka Connect worker with Debezium.
type DebeziumOptions struct {
	Java    string   // the program; at least Java 17. Empty takes the newest that FindJava finds
	Jars    string   // folder of jars. Empty asks FetchDebezium
	Brokers []string // that it writes to

	// Worker are properties of the worker beside the sandbox's own; they win.
	Worker map[string]string

	// JVM are options of the Java machine behind the sandbox's own, such as
	// -Xmx2g or -Dorg.slf4j.simpleLogger.defaultLogLevel=info.
	JVM []string

	// Distributed keeps offsets, connectors and states in topics named after
	// Group, instead of offsets in a file and nothing else.
	Distributed bool
	Group       string // of a distributed worker; defaults to "connect"

	Log io.Writer // everything that it logs; may be nil
}

// Debezium is one Kafka Connect worker. It may be stopped, killed and started
// again; its offsets stay until Close. Its methods may be called from any
// goroutine, one at a time.
type Debezium struct {
	options DebeziumOptions
	dir     string
	port    int
	out     *tail

	mu      sync.Mutex
	process *process
}

// StartDebezium returns once the worker answers. It has no connector yet: see
// Post. The caller calls Close.
func StartDebezium(ctx context.Context, options DebeziumOptions) (*Debezium, error) {
	var err error
	if options.Java == "" {
		if options.Java, _, err = FindJava(ctx); err != nil {
			return nil, err
		}
	}
	if options.Jars == "" {
		if options.Jars, err = FetchDebezium(ctx, options.Log); err != nil {
			return nil, err
		}
	}
	if options.Group == "" {
		options.Group = "connect"
	}
	dir, err := TempDir("debezium")
	if err != nil {
		return nil, err
	}
	d := &Debezium{options: options, dir: dir, out: &tail{to: options.Log}}
	if d.port, err = FreePort(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	if err := d.Start(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// OffsetFile is where a standalone worker keeps its offsets.
func (d *Debezium) OffsetFile() string { return filepath.Join(d.dir, "offsets") }

// URL is the worker's address.
func (d *Debezium) URL() string {
	return "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(d.port))
}

// Pid is the worker's process; zero while it does not run.
func (d *Debezium) Pid() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.process == nil {
		return 0
	}
	return d.process.cmd.Process.Pid
}

func (d *Debezium) properties() map[string]string {
	const converter = "org.apache.kafka.connect.json.JsonConverter"
	all := map[string]string{
		"bootstrap.servers":                       strings.Join(d.options.Brokers, ","),
		"key.converter":                           converter,
		"value.converter":                         converter,
		"offset.flush.interval.ms":                "1000",
		"offset.flush.timeout.ms":                 "60000", // of a busy machine: a task that is given up stores
		"task.shutdown.graceful.timeout.ms":       "60000", // no position, and sends again what it has sent
		"listeners":                               d.URL(),
		"plugin.discovery":                        "only_scan",
		"connector.client.config.override.policy": "All",
	}
	if d.options.Distributed {
		all["group.id"] = d.options.Group
		for _, kind := range []string{"offset", "config", "status"} {
			all[kind+".storage.topic"] = d.options.Group + "-" + kind + "s"
			all[kind+".storage.replication.factor"] = "1"
		}
	} else {
		all["offset.storage.file.filename"] = d.OffsetFile()
	}
	maps.Copy(all, d.options.Worker)
	return all
}

// Start starts a worker that was stopped or killed. A standalone worker has
// forgotten its connectors by then; their offsets are there.
func (d *Debezium) Start(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.process != nil {
		return errors.New("start Debezium: it is running")
	}
	var text strings.Builder
	properties := d.properties()
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		fmt.Fprintf(&text, "%s=%s\n", name, properties[name])
	}
	file := filepath.Join(d.dir, "worker.properties")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		return fmt.Errorf("start Debezium: %w", err)
	}
	process, err := startProcess(d.command(file), d.dir)
	if err != nil {
		return fmt.Errorf("start Debezium: %w", err)
	}
	return d.awaitAnswer(ctx, process)
}

func (d *Debezium) command(properties string) *exec.Cmd {
	class := "ConnectStandalone"
	if d.options.Distributed {
		class = "ConnectDistributed"
	}
	args := slices.Concat(quick, []string{
		"-Xmx768m", "-Duser.timezone=UTC", "-Dfile.encoding=UTF-8",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
	}, d.options.JVM, []string{"-cp", filepath.Join(d.options.Jars, "*"), "org.apache.kafka.connect.cli." + class, properties})
	cmd := exec.Command(d.options.Java, args...)
	cmd.Dir = d.dir
	cmd.Stdout, cmd.Stderr = d.out, d.out
	return cmd
}

func (d *Debezium) awaitAnswer(ctx context.Context, process *process) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := process.await(ctx, "Debezium", 100*time.Millisecond, d.out, func(ctx context.Context) error { return d.call(ctx, "GET", "/", nil, nil) }); err != nil {
		select {
		case <-process.done:
		default:
			process.kill()
		}
		return err
	}
	d.process = process
	return nil
}

// ErrKilled is what Debezium.Stop returns for a worker that did not end in time. It has gone by
// then, as after Kill.
var ErrKilled = errors.New("was killed")

// Stop waits so long for the beginning of the worker's threads in its log, then so long for the rest,
// and keeps so much of it.
const (
	dumpBegins = 30 * time.Second
	dumpGrace  = 2 * time.Second
	dumpSize   = 128 << 10
)

// Stop ends the worker by SIGTERM, which lets it write its offsets, and waits until it has gone.
// After the grace it is killed: the error is ErrKilled then, and says what its threads waited for.
// That is seldom the fault of whoever asked: Kafka Connect gives its HTTP server a minute for a
// request that it still answers, its herder half a minute, and each client that waits for brokers
// its own time.
func (d *Debezium) Stop(grace time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.process == nil {
		return errors.New("stop Debezium: it is not running")
	}
	stopped := d.process
	d.process = nil
	_ = stopped.signal(syscall.SIGTERM)
	select {
	case <-stopped.done:
		return nil
	case <-time.After(grace):
	}
	d.out.reset()
	d.out.keep(dumpSize)
	defer d.out.keep(0)
	_ = stopped.signal(syscall.SIGQUIT) // has Java write its threads
	begins := time.After(dumpBegins)
	for rest := (<-chan time.Time)(nil); ; {
		if rest == nil && strings.Contains(d.out.String(), "Full thread dump") {
			rest = time.After(dumpGrace)
		}
		select {
		case <-stopped.done:
		case <-begins:
		case <-rest:
		case <-time.After(20 * time.Millisecond):
			continue
		}
		break
	}
	stopped.kill()
	return fmt.Errorf("stop Debezium: it did not end within %s and %w; its threads:\n%s", grace, ErrKilled, d.out)
}

// Kill ends the worker by SIGKILL.
func (d *Debezium) Kill() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.process == nil {
		return errors.New("kill Debezium: it is not running")
	}
	d.process.kill()
	d.process = nil
	return nil
}

// Configure changes properties of the worker; they hold from the next Start on.
func (d *Debezium) Configure(worker map[string]string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.options.Worker = worker
}

// Log is the end of the worker's log.
func (d *Debezium) Log() string { return d.out.String() }

// Close kills the worker and removes its directory. It may be called again.
func (d *Debezium) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.process != nil {
		d.process.kill()
		d.process = nil
	}
	return os.RemoveAll(d.dir)
}
