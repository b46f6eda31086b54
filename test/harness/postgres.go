package harness

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/sandbox"
)

// Database is a database of one test.
type Database struct {
	Server  *sandbox.Postgres // shared with other tests; see Server for one that may be stopped
	Name    string
	URL     string
	Version string // as the server says it, such as "18.3"
}

// URLWith is URL with parameters, instead of those of the same name that it has: where the
// server is in a container, it has some.
func (d *Database) URLWith(t testing.TB, parameters url.Values) string {
	t.Helper()
	address, err := url.Parse(d.URL)
	if err != nil {
		t.Fatal(err)
	}
	query := address.Query()
	maps.Copy(query, parameters)
	address.RawQuery = query.Encode()
	return address.String()
}

// Versions are the majors that integration tests run on.
func Versions() []string {
	if list := os.Getenv(VersionsVariable); list != "" {
		return strings.Split(list, ",")
	}
	return []string{"15", "18"}
}

// VersionsFor are those of Versions that a test runs on: all, in the short form one of them, by the
// test's name. Tests over several choices take Versions and leave cases out with Left.
func VersionsFor(t testing.TB) []string {
	versions := Versions()
	if !testing.Short() {
		return versions
	}
	name := fnv.New32a()
	_, _ = name.Write([]byte(t.Name()))
	i := int(name.Sum32() % uint32(len(versions))) //nolint:gosec // a few
	return versions[i : i+1]
}

// EachPostgres runs a test on every version of VersionsFor.
func EachPostgres(t *testing.T, test func(t *testing.T, db *Database)) {
	t.Helper()
	for _, version := range VersionsFor(t) {
		t.Run("postgres"+version, func(t *testing.T) { test(t, Postgres(t, version)) })
	}
}

// servers are the shared ones, by major; "" is any.
var servers = struct {
	mu      sync.Mutex
	running map[string]*server
}{running: map[string]*server{}}

type server struct {
	once    sync.Once
	server  *sandbox.Postgres
	version string
	err     error
}

// Postgres gives a database of its own on a shared server. At most one version is
// given, a major such as "18"; none takes any. The database and its slots go when
// the test ends.
func Postgres(t testing.TB, version ...string) *Database {
	t.Helper()
	NeedsServer(t, "PostgreSQL")
	major := strings.Join(version, "")
	s, err := sharedServer(major)
	if err != nil {
		missing(t, strings.TrimSpace("PostgreSQL "+major), err,
			"install the package postgresql, or start a container engine, or set "+PostgresURLVariable+" to a superuser's address")
	}
	return createDatabase(t, s.server, s.version)
}

func sharedServer(major string) (*server, error) {
	servers.mu.Lock()
	s := servers.running[major]
	if s == nil {
		s = &server{}
		servers.running[major] = s
	}
	servers.mu.Unlock()
	s.once.Do(func() { s.server, s.version, s.err = startServer(major) })
	return s, s.err
}

func startServer(major string) (*sandbox.Postgres, string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if address := os.Getenv(PostgresURLVariable); address != "" {
		server, err := sandbox.StartPostgres(ctx, sandbox.PostgresOptions{URL: address})
		if err != nil {
			return nil, "", err
		}
		version, err := server.Version(ctx)
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", PostgresURLVariable, err)
		}
		if major == "" || strings.HasPrefix(version, major+".") {
			return server, version, nil
		}
	}
	sources := []sandbox.Source{sandbox.Container, sandbox.Local, sandbox.Download}
	if containersOnly() {
		sources = sources[:1]
	}
	server, err := sandbox.StartPostgres(ctx, sandbox.PostgresOptions{
		Version:  major,
		Sources:  sources,
		Settings: map[string]string{"max_replication_slots": "50", "max_wal_senders": "50", "max_connections": "200"},
		Log:      notice{},
	})
	if err != nil {
		return nil, "", err
	}
	shared.add(server.Close)
	version, err := server.Version(ctx)
	return server, version, err
}

// OwnPostgres starts a server for one test alone, which may stop, kill and pause
// it. It is a process on this machine, never a container.
func OwnPostgres(t testing.TB, options sandbox.PostgresOptions) *Database {
	t.Helper()
	NeedsServer(t, "PostgreSQL")
	options.Sources = []sandbox.Source{sandbox.Local, sandbox.Download}
	options.Log = notice{}
	server, err := sandbox.StartPostgres(t.Context(), options)
	if err != nil {
		missing(t, strings.TrimSpace("PostgreSQL "+options.Version), err, "install the package postgresql")
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	version, err := server.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return createDatabase(t, server, version)
}

// CopyDisk copies the files of a test's own server, which it stops meanwhile. putBack replaces them by
// the copy: the server is as it was, and on the same timeline.
func (d *Database) CopyDisk(t testing.TB) (putBack func()) {
	t.Helper()
	data := filepath.Join(d.Server.Dir(), "data")
	stopped := func(do func() error) {
		t.Helper()
		err := d.Server.Stop(t.Context(), sandbox.Fast)
		if err == nil {
			err = do()
		}
		if err == nil {
			err = d.Server.Start(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	copied := func(from, to string) error {
		out, err := exec.CommandContext(t.Context(), "cp", "-a", from, to).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
		return err
	}
	stopped(func() error { return copied(data, data+"-copy") })
	return func() {
		t.Helper()
		stopped(func() error { return errors.Join(os.RemoveAll(data), copied(data+"-copy", data)) })
	}
}

var counter atomic.Int64

// Unique is a name that no other test of any process has: at most 40 letters,
// digits and underscores.
func Unique(t testing.TB, prefix string) string {
	t.Helper()
	name := strings.ToLower(notWord.ReplaceAllString(prefix, "_"))
	return fmt.Sprintf("%.20s_%d_%d", name, os.Getpid(), counter.Add(1))
}

var notWord = regexp.MustCompile(`[^a-zA-Z0-9]+`)

func createDatabase(t testing.TB, server *sandbox.Postgres, version string) *Database {
	t.Helper()
	db := &Database{Server: server, Name: Unique(t, "test"), Version: version}
	db.URL = server.URL(db.Name)
	admin(t, server, "CREATE DATABASE "+db.Name)
	t.Cleanup(func() {
		if err := db.drop(); err != nil {
			t.Errorf("drop database: %v", err)
		}
	})
	return db
}

func admin(t testing.TB, server *sandbox.Postgres, sql string) {
	t.Helper()
	conn, giveBack, err := borrow(t.Context(), server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer giveBack()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// drop ends whoever is connected and drops slots and database. A server that the
// test stopped for good has nothing to drop.
func (db *Database) drop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	closeIdle(ctx, db.Name)
	conn, giveBack, err := borrow(ctx, db.Server.URL("postgres"))
	if err != nil {
		if db.Server.Ours() {
			return nil
		}
		return err
	}
	defer giveBack()
	for {
		_, err := conn.Exec(ctx, `
			SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = $1 AND active_pid IS NOT NULL`, db.Name)
		if err == nil {
			_, err = conn.Exec(ctx, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = $1`, db.Name)
		}
		if err == nil {
			_, err = conn.Exec(ctx, "DROP DATABASE IF EXISTS "+db.Name+" WITH (FORCE)")
		}
		if err == nil || ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		<-time.After(20 * time.Millisecond) // a terminated backend takes a moment to let go of its slot
	}
}

// Connect opens a connection that closes with the test.
func (db *Database) Connect(t testing.TB) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func firstLine(sql string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(sql), "\n")
	return line
}

// Major is the server's major version, such as "18".
func (db *Database) Major() string {
	major, _, _ := strings.Cut(db.Version, ".")
	return major
}
