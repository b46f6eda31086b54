// Package integration proves end to end what users rely on, one file for each
// behaviour, with real servers on both sides.
package integration

import (
	"os"
	"strconv"
	"testing"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// lanes is how many tests run at a time: they mostly wait. What measures memory, or
// how long something takes, is not parallel and runs alone, before the others.
const lanes = "4"

func TestMain(m *testing.M) {
	harness.Parallel(lanes)
	harness.Main(m)
}

// onEach runs a test on every pair of server version and kind of broker, in the short form on half of them.
func onEach(t *testing.T, test func(t *testing.T, db *harness.Database, brokers *harness.Brokers)) {
	t.Helper()
	kinds := []string{"apache", "kfake"}
	for i, version := range harness.Versions() {
		for j, kind := range kinds {
			if harness.Left(i, j) {
				continue
			}
			t.Run("postgres"+version+"/"+kind, func(t *testing.T) {
				brokers := harness.Kafka
				if kind == "kfake" {
					brokers = func(t testing.TB) *harness.Brokers { return harness.Kfake(t, sandbox.KafkaOptions{}) }
				}
				test(t, harness.Postgres(t, version), brokers(t))
			})
		}
	}
}

// another is a database beside the one given, on the same server.
func another(t *testing.T, db *harness.Database) *harness.Database {
	t.Helper()
	return harness.Postgres(t, db.Major())
}

// outbox is our own table, set up, with its topic.
func outbox(t *testing.T, db *harness.Database, brokers *harness.Brokers, more ...string) (*relaytest.Pipeline, *relaytest.Workload) {
	t.Helper()
	p := relaytest.New(t, db, brokers, []string{"{table: public.outbox}"}, more...)
	p.Setup(t)
	w := p.NewWorkload(t, "outbox", harness.Unique(t, "order"))
	brokers.CreateTopic(t, w.Topic(), 3)
	return p, w
}

// scale is a number that the environment may raise to the figure of a long run.
func scale(t *testing.T, variable string, usual int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// kfakeDefault is one in-process broker as it comes.
var kfakeDefault = sandbox.KafkaOptions{}
