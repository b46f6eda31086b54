package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgresOptions says which server to start and how.
type PostgresOptions struct {
	// Version is a major version such as "18". Empty takes the newest one that is
	// installed, and 18 where one has to be downloaded.
	Version string

	// URL is a running server, used as it is. Nothing is started or stopped.
	URL string

	// Binaries is the folder of initdb and postgres. Empty looks for them.
	Binaries string

	// Sources is where a server may come from, in order. Defaults to local
	// binaries, a container, a download.
	Sources []Source

	// Settings are server parameters beside those that the sandbox sets.
	Settings map[string]string

	// Durable keeps fsync on. Off, a server survives its own crash but not the
	// machine's, and starts and commits faster.
	Durable bool

	// Password, when set, is demanded of every connection by SCRAM-SHA-256.
	Password string

	// CertFile and KeyFile turn TLS on. They are copied, so that the server's
	// account can read them.
	CertFile, KeyFile string

	// Log takes messages for the user: what is downloaded, and how large it is.
	// ServerLog takes the server's log. Both may be nil.
	Log, ServerLog io.Writer
}

// StopMode is how a server is asked to stop.
type StopMode syscall.Signal

// The three shutdowns of PostgreSQL.
const (
	Smart     = StopMode(syscall.SIGTERM) // waits for clients
	Fast      = StopMode(syscall.SIGINT)  // ends clients, writes a checkpoint, waits for WAL senders
	Immediate = StopMode(syscall.SIGQUIT) // recovers at the next start
)

// Postgres is one server. Its methods may be called from any goroutine, one at a
// time.
type Postgres struct {
	options   PostgresOptions
	given     string // URL of a server that is not ours
	container *container
	binaries  string
	dir       string
	port      int
	run       *runner
	out       *tail

	mu      sync.Mutex
	process *process
	paused  []int
}

// StartPostgres finds a server by the options and returns once it answers
// queries. ctx bounds the start only. The caller calls Close.
func StartPostgres(ctx context.Context, options PostgresOptions) (*Postgres, error) {
	if options.URL != "" {
		return &Postgres{options: options, given: options.URL}, nil
	}
	found, err := findPostgres(ctx, options)
	if err != nil {
		return nil, err
	}
	if found.container != nil {
		return &Postgres{options: options, given: found.container.url, container: found.container}, nil
	}
	p, err := initPostgres(ctx, options, found.binaries)
	if err != nil {
		return nil, err
	}
	if err := p.startOnFreePort(ctx); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// initPostgres makes the directory with a cluster in it.
func initPostgres(ctx context.Context, options PostgresOptions, binaries string) (*Postgres, error) {
	run, err := newRunner()
	if err != nil {
		return nil, err
	}
	dir, err := run.makeDir("pg")
	if err != nil {
		return nil, err
	}
	p := &Postgres{options: options, binaries: binaries, dir: dir, run: run, out: &tail{to: options.ServerLog}}
	if err := p.makeCluster(ctx); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	if err := p.copyCertificate(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *Postgres) makeCluster(ctx context.Context) error {
	args := []string{"-U", "postgres", "-E", "UTF8", "--no-locale", "--no-sync", "-A"}
	if p.options.Password != "" {
		file := filepath.Join(p.dir, "password")
		if err := p.run.writeFile(file, []byte(p.options.Password)); err != nil {
			return err
		}
		return p.run.initdb(ctx, p.binaries, p.data(), append(args, "scram-sha-256", "--pwfile", file))
	}
	args = append(args, "trust")
	if folder := os.Getenv(TemplatesVariable); folder != "" {
		return p.run.copyCluster(ctx, folder, p.binaries, p.data(), args)
	}
	return p.run.initdb(ctx, p.binaries, p.data(), args)
}

func (r *runner) initdb(ctx context.Context, binaries, data string, args []string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(binaries, "initdb"), append([]string{"-D", data}, args...)...)
	r.prepare(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run initdb of %s: %w\n%s", binaries, err, bytes.TrimSpace(out))
	}
	return nil
}

func (p *Postgres) copyCertificate() error {
	if p.options.CertFile == "" {
		return nil
	}
	for name, from := range map[string]string{"server.crt": p.options.CertFile, "server.key": p.options.KeyFile} {
		content, err := os.ReadFile(from)
		if err != nil {
			return fmt.Errorf("copy certificate: %w", err)
		}
		if err := p.run.writeFile(filepath.Join(p.data(), name), content); err != nil {
			return err
		}
	}
	return nil
}

// startOnFreePort tries again with another port when somebody took the one that
// was free a moment ago.
func (p *Postgres) startOnFreePort(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		port, err := FreePort()
		if err != nil {
			return err
		}
		p.port = port
		err = p.Start(ctx)
		if err == nil || attempt == 3 || !strings.Contains(p.out.String(), "could not bind") {
			return err
		}
		p.out.reset()
	}
}

// settings are the command line of the server. Sockets are off where the path
// would exceed the 107 bytes that the kernel allows.
func (p *Postgres) settings() map[string]string {
	all := map[string]string{
		"listen_addresses":           "127.0.0.1",
		"port":                       strconv.Itoa(p.port),
		"unix_socket_directories":    p.socketDir(),
		"wal_level":                  "logical",
		"max_replication_slots":      "20",
		"max_wal_senders":            "20",
		"max_connections":            "100",
		"dynamic_shared_memory_type": "mmap", // segments in the data directory, so they go with it
		"logging_collector":          "off",
		"log_destination":            "stderr",
	}
	if !p.options.Durable {
		all["fsync"], all["full_page_writes"] = "off", "off"
	}
	if p.options.CertFile != "" {
		all["ssl"] = "on"
	}
	maps.Copy(all, p.options.Settings)
	return all
}

func (p *Postgres) socketDir() string {
	if len(p.dir) > 80 {
		return ""
	}
	return p.dir
}

// SocketDir is the folder of the server's socket; empty when it has none.
func (p *Postgres) SocketDir() string {
	if p.given != "" {
		return ""
	}
	return p.socketDir()
}

func (p *Postgres) data() string { return filepath.Join(p.dir, "data") }

// Start starts a stopped or killed server on its old port.
func (p *Postgres) Start(ctx context.Context) error {
	if p.given != "" {
		return errors.New("start PostgreSQL: the server was given by address")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process != nil {
		return errors.New("start PostgreSQL: it is running")
	}
	args := []string{"-D", p.data()}
	settings := p.settings()
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	// After a crash the old backends may hold the shared memory for a moment, and
	// the new postmaster refuses to start until they noticed.
	for deadline := time.Now().Add(time.Minute); ; {
		err := p.launch(ctx, args)
		if err == nil || time.Now().After(deadline) || !strings.Contains(p.out.String(), "pre-existing shared memory") {
			return err
		}
		p.out.reset()
		pause(ctx, 100*time.Millisecond)
	}
}

func (p *Postgres) launch(ctx context.Context, args []string) error {
	cmd := exec.Command(filepath.Join(p.binaries, "postgres"), args...)
	cmd.Stdout, cmd.Stderr = p.out, p.out
	process, err := p.run.start(cmd, p.dir)
	if err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := process.await(ctx, "PostgreSQL", 15*time.Millisecond, p.out, p.ping); err != nil {
		select {
		case <-process.done:
		default:
			process.kill()
		}
		return err
	}
	p.process = process
	return nil
}

func (p *Postgres) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return conn.Ping(ctx)
}

// Stop ends the server and waits until it has gone. ctx bounds the wait; the
// server goes on stopping after that.
func (p *Postgres) Stop(ctx context.Context, mode StopMode) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process == nil {
		return errors.New("stop PostgreSQL: it is not running here")
	}
	p.resume()
	if err := p.process.signal(syscall.Signal(mode)); err != nil {
		return fmt.Errorf("stop PostgreSQL: %w", err)
	}
	select {
	case <-p.process.done:
		p.process = nil
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop PostgreSQL: %w", context.Cause(ctx))
	}
}

// Restart stops the server by mode and starts it on the same port.
func (p *Postgres) Restart(ctx context.Context, mode StopMode) error {
	if err := p.Stop(ctx, mode); err != nil {
		return err
	}
	return p.Start(ctx)
}

// Kill ends every process of the server at once, as a power failure would.
func (p *Postgres) Kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process == nil {
		return errors.New("kill PostgreSQL: it is not running here")
	}
	pids := p.process.family()
	p.process.kill()
	signalAll(pids, syscall.SIGKILL)
	<-p.process.done
	p.process, p.paused = nil, nil
	return nil
}

// Pause freezes every process of the server: connections stay open and nobody
// answers, as behind a dead network. Continue thaws them.
func (p *Postgres) Pause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process == nil {
		return errors.New("pause PostgreSQL: it is not running here")
	}
	p.paused = p.process.family()
	signalAll(p.paused, syscall.SIGSTOP)
	return nil
}

// Continue ends a Pause.
func (p *Postgres) Continue() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resume()
}

func (p *Postgres) resume() {
	signalAll(p.paused, syscall.SIGCONT)
	p.paused = nil
}

// URL is the address of a database, as its owner. It does without TLS where the server has none: clients
// ask a server on loopback for it by default, and begin anew with another connection.
func (p *Postgres) URL(database string) string {
	if p.given != "" {
		return withDatabase(p.given, database)
	}
	user := url.User("postgres")
	if p.options.Password != "" {
		user = url.UserPassword("postgres", p.options.Password)
	}
	at := url.URL{Scheme: "postgres", User: user, Host: p.Addr(), Path: "/" + database}
	if p.options.CertFile == "" {
		at.RawQuery = "sslmode=disable"
	}
	return at.String()
}

// withDatabase replaces the database of an address in either of libpq's forms.
func withDatabase(address, database string) string {
	if at, err := url.Parse(address); err == nil && at.Scheme != "" {
		at.Path = "/" + database
		return at.String()
	}
	return address + " dbname=" + database
}

// Addr is host:port of the server.
func (p *Postgres) Addr() string {
	if p.given == "" {
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port))
	}
	config, err := pgx.ParseConfig(p.given)
	if err != nil {
		return ""
	}
	return net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))
}

// Version is what the server says of itself, such as "18.3".
func (p *Postgres) Version(ctx context.Context) (string, error) {
	conn, err := pgx.Connect(ctx, p.URL("postgres"))
	if err != nil {
		return "", fmt.Errorf("ask for the version: %w", err)
	}
	defer conn.Close(ctx)
	version := conn.PgConn().ParameterStatus("server_version")
	version, _, _ = strings.Cut(version, " ")
	return version, nil
}

// Dir is the server's directory; empty for a server that was given by address or
// runs in a container.
func (p *Postgres) Dir() string { return p.dir }

// Ours reports whether the server was started here as a process, so that it can be
// stopped, killed and paused.
func (p *Postgres) Ours() bool { return p.given == "" }

// Origin says in a few words where the server came from.
func (p *Postgres) Origin() string {
	switch {
	case p.container != nil:
		return "container"
	case p.given != "":
		return "given address"
	default:
		return p.binaries
	}
}

// Log is the end of the server's log.
func (p *Postgres) Log() string {
	if p.out == nil {
		return ""
	}
	return p.out.String()
}

// Close stops the server and removes its directory. It may be called again.
func (p *Postgres) Close() error {
	if p.container != nil {
		return p.container.close()
	}
	if p.given != "" {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resume()
	if p.process != nil {
		p.process.end(syscall.SIGQUIT, 5*time.Second)
		p.process = nil
	}
	return p.run.removeDir(p.dir)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
