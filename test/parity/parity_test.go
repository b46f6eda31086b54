package parity

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/parity/golden"
	"github.com/cdc-relay/cdc-relay/test/parity/stage"
)

const casesVariable = "PARITY_CASES"

// beforeTheSlot begins the names of cases about rows that were there before the slot: the
// relay reads none of these, so nothing of such a case can be compared.
const beforeTheSlot = "snapshot-"

// lanes is how many cases run at a time. They mostly wait for servers.
const lanes = 3

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "3")
	harness.Main(m)
}

func TestParity(t *testing.T) {
	dir := os.Getenv(casesVariable)
	if dir == "" {
		dir = "testdata"
	}
	cases, err := golden.LoadAll(dir)
	if err != nil {
		t.Fatal(err)
	}
	cases = slices.DeleteFunc(cases, func(c *golden.Case) bool { return strings.HasPrefix(c.Name, beforeTheSlot) })
	free := openLanes(t)
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			lane := <-free
			defer func() { free <- lane }()
			run(t, lane, c)
		})
	}
}

// openLanes starts the servers, all at once.
func openLanes(t *testing.T) chan *stage.Lane {
	t.Helper()
	harness.NeedsServer(t, "Apache Kafka")
	java, jars, err := harness.KafkaProgram(t.Context())
	if err != nil {
		harness.Missing(t, "Apache Kafka", err, "install Java 17 or newer and Maven")
	}
	free, failed := make(chan *stage.Lane, lanes), make(chan error, lanes)
	var group sync.WaitGroup
	for range lanes {
		group.Go(func() {
			servers, err := stage.Start(t.Context(), stage.ServerOptions{Java: java, Jars: jars, Log: os.Stderr})
			if err != nil {
				failed <- err
				return
			}
			harness.AtExit(servers.Close)
			free <- servers.Lane
		})
	}
	group.Wait()
	select {
	case err := <-failed:
		harness.Missing(t, "a PostgreSQL 15 or an Apache Kafka of one's own", err, "install the package postgresql-15, Java 17 or newer, and Maven")
	default:
	}
	return free
}

func run(t *testing.T, lane *stage.Lane, c *golden.Case) {
	ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Minute, errors.New("the case took too long"))
	defer cancel()
	var log bytes.Buffer
	out, err := Relay(ctx, lane, c, RelayWith{Log: &log})
	if err != nil {
		t.Fatalf("%v\n%s", err, &log)
	}
	if problem := Judge(c, out); problem != "" {
		t.Errorf("%s\n\t%s", problem, c.Subject)
		t.Logf("configuration:\n%s\nlog:\n%s", out.YAML, &log)
	}
}
