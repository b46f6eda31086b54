// Package harness gives tests real servers: a PostgreSQL database of their own
// and brokers with topics of their own.
//
// A server is started once for each test process and shared by its tests; it
// comes from an address in the environment, else a container engine, else
// installed programs or a download. What cannot be had is a skip that says what
// to install, and a failure where CDC_RELAY_REQUIRE is `all` or `servers`.
//
// With -short a test that needs a PostgreSQL, a real broker or Debezium is a skip, but
// where CDC_RELAY_REQUIRE asks for servers: a test that is required is never left out.
//
// The package imports no room, so that any package's tests may use it.
package harness

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
)

// Variables of the environment.
const (
	PostgresURLVariable  = "CDC_RELAY_TEST_POSTGRES_URL"      // a server with wal_level=logical, as a superuser
	KafkaBrokersVariable = "CDC_RELAY_TEST_KAFKA_BROKERS"     // comma-separated addresses of a real cluster
	KafkaVersionVariable = "CDC_RELAY_TEST_KAFKA_VERSION"     // of the Apache Kafka that Maven fetches
	RegistryURLVariable  = "CDC_RELAY_TEST_REGISTRY_URL"      // the API of a real schema registry
	VersionsVariable     = "CDC_RELAY_TEST_POSTGRES_VERSIONS" // majors that the integration tests run on
	ServersVariable      = "CDC_RELAY_TEST_SERVERS"           // containers: shared servers are containers, and never something else instead
	RequireVariable      = "CDC_RELAY_REQUIRE"                // servers: a missing server is a failure; all: a missing right too
)

// Main runs a package's tests and stops the servers they shared:
//
//	func TestMain(m *testing.M) { harness.Main(m) }
//
// A process that does not call it leaves nothing behind either; the servers then
// end with it by force.
func Main(m *testing.M) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(fewerCollections)
	}
	code := m.Run()
	if err := shared.close(); err != nil {
		fmt.Fprintln(os.Stderr, "clean up after the tests:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// fewerCollections lets the heap of a test process grow to five times of what lives. With 100 percent the
// collector takes most of the CPU of a process that has brokers in it. Programs that it starts are as always.
const fewerCollections = 400

// containersOnly says that a server that tests share has to be a container. One that a test
// stops, pauses or kills is a process in any case.
func containersOnly() bool { return os.Getenv(ServersVariable) == "containers" }

// Parallel is how many parallel tests of a package run at a time, unless the command
// line says it. For TestMain, before Main.
func Parallel(n string) {
	flag.Parse()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "test.parallel" })
	if !asked {
		_ = flag.Set("test.parallel", n) // every test binary has it
	}
}

// Left reports whether the short form leaves out one case of a test over several choices, given as
// the number of each choice. It keeps the cases whose sum is even: of two values each, every value
// with one of the other's.
func Left(numbers ...int) bool {
	sum := 0
	for _, n := range numbers {
		sum += n
	}
	return testing.Short() && sum%2 == 1
}

// AtExit has Main call a function after the tests.
func AtExit(do func() error) { shared.add(do) }

// registry holds what Main has to stop and remove.
type registry struct {
	mu      sync.Mutex
	closers []func() error
}

var shared registry

func (r *registry) add(closer func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closers = append(r.closers, closer)
}

func (r *registry) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, closer := range r.closers {
		errs = append(errs, closer())
	}
	r.closers = nil
	return errors.Join(errs...)
}

// Missing skips a test that lacks a server which the harness did not look for
// itself, or fails it where everything is required.
func Missing(t testing.TB, what string, err error, install string) {
	t.Helper()
	missing(t, what, err, install)
}

// missing skips, or fails where everything is required.
func missing(t testing.TB, what string, err error, install string) {
	t.Helper()
	skip(t, fmt.Sprintf("%s is missing: %v\nto run this test: %s", what, err, install), Required())
}

// NeedsServer skips a test in -short mode, unless servers are required. What gives
// servers calls it; a test that starts them by itself does, too.
func NeedsServer(t testing.TB, kind string) {
	t.Helper()
	if testing.Short() && !Required() {
		t.Skip("it needs " + kind + ", which -short leaves out")
	}
}

// Required says that a missing server or program is a failure.
func Required() bool { return slices.Contains([]string{"all", "servers"}, os.Getenv(RequireVariable)) }

// Forbidden skips a test that needs a right which this account does not have, or fails it
// where that is required too. Who calls it is root's test: `make test-root` has to name it.
func Forbidden(t testing.TB, what string, err error, how string) {
	t.Helper()
	skip(t, fmt.Sprintf("this account cannot %s: %v\nto run this test: %s", what, err, how), os.Getenv(RequireVariable) == "all")
}

// NotHere skips a test that this machine is no place for, or fails it where tests are
// required: CI leaves none out.
func NotHere(t testing.TB, reason string) {
	t.Helper()
	skip(t, reason, Required())
}

func skip(t testing.TB, message string, required bool) {
	t.Helper()
	if required {
		t.Fatalf("%s (required by %s=%s)", message, RequireVariable, os.Getenv(RequireVariable))
	}
	t.Skip(message)
}

// notice tells whoever waits for a slow start what it waits for.
type notice struct{}

func (notice) Write(p []byte) (int, error) { return os.Stderr.Write(p) }
