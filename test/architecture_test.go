package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/cdc-relay/cdc-relay/"

// arrows are the packages of this module that a package may import. Data flows
// replication → router → sink; imports point the other way, and relay is the one
// joint.
var arrows = map[string][]string{
	"wording":        {},
	"fault":          {},

	"replication":          {"fault", "postgres", "postgres/catalog", "replication/pgoutput", "replication/wal", "wording"},
	"replication/wal":      {},
	"replication/pgoutput": {"fault", "replication/wal"},

	"replication/pgoutput/pgoutputtest": {},

	// replication imports these, not the other way round.
	"postgres":           {"fault", "replication/wal", "wording"},
	"postgres/catalog":   {"fault", "postgres", "replication/wal", "wording"},
	"postgres/provision": {"fault", "postgres", "postgres/catalog", "replication/wal", "wording"},
	"postgres/sample":    {"fault", "postgres", "postgres/catalog", "replication/wal"},
	"postgres/preflight": {"fault", "postgres", "postgres/catalog", "replication/wal", "wording"},
	"postgres/watch":     {"fault", "postgres", "postgres/catalog", "replication/wal"},

	"postgres/postgrestest":            {"fault", "postgres", "postgres/catalog", "replication/wal", "test/harness"},
	"postgres/preflight/preflighttest": {"postgres/preflight"},

	"router":         {"replication/wal", "router/connect", "wording"},
	"router/connect": {},
	"sink":           {"router"},
	"sink/auth":      {"sink"},
	"sink/broker":    {"sink", "sink/auth", "router"},
	"sink/topics":    {"sink", "sink/broker", "router", "wording"},
	"sink/kafka":     {"sink", "sink/broker", "sink/topics", "router"},
	"sink/kafkatx":   {"sink", "sink/broker", "sink/kafka", "sink/topics", "router"},
	"sink/sinktest":  {"sink", "router"},
	"checkpoint":     {},
	"deadletter":     {"router", "sink"},
	"relay":          {"fault", "postgres", "postgres/catalog", "postgres/watch", "replication", "replication/wal", "router", "sink", "checkpoint", "deadletter", "wording"},
	"admin":          {"relay"},
	"metrics":        {"relay", "replication/wal", "router", "sink"}, // the types in relay.Events
	"config":         {"relay", "admin", "postgres", "replication", "replication/wal", "router", "sink", "wording"},
	"importer":       {"router", "replication/wal"}, // the list of options; names of tables and positions
	"migrations":     {},
	"sandbox":        {},
	"sandbox/ledger": {},
	"cmd/cdc-relay":  {"checkpoint", "config", "deadletter", "relay", "admin", "metrics", "importer", "migrations", "fault", "postgres", "postgres/catalog", "postgres/preflight", "postgres/provision", "postgres/sample", "postgres/watch", "replication", "replication/wal", "router", "sink", "takeover", "wording"},
	"demo":           {"config", "relay", "admin", "metrics", "migrations", "postgres/provision", "replication/wal", "router", "sink", "sandbox", "sandbox/ledger"},
}

// owners are the only packages that may import what starts with the given path.
var owners = map[string][]string{
	"github.com/jackc/pglogrepl":                 {"fault", "replication", "replication/wal", "replication/pgoutput", "postgres", "postgres/catalog", "postgres/provision", "postgres/preflight", "postgres/watch", "postgres/postgrestest", "replication/pgoutput/pgoutputtest", "checkpoint", "deadletter", "relay", "metrics", "admin", "router", "sink", "sink/sinktest", "demo", "takeover", "cmd/cdc-relay"}, // all but replication and postgres use its position type only
	"github.com/jackc/pgx":                       {"replication", "postgres", "postgres/catalog", "postgres/provision", "postgres/sample", "postgres/preflight", "postgres/watch", "postgres/postgrestest", "migrations", "sandbox", "demo", "cmd/cdc-relay"},
	"github.com/twmb/franz-go/pkg/kfake":         {"sandbox"},
	"github.com/twmb/franz-go":                   {"sink/auth", "sink/broker", "sink/topics", "sink/kafka", "sink/kafkatx", "sandbox", "sandbox/ledger", "relay", "metrics", "cmd/cdc-relay", "demo"}, // relay, metrics and the programs pass a kgo.Hook on
	"github.com/prometheus":                      {"metrics"},
	"github.com/goccy/go-yaml":                   {"config", "debezium/importer"},
	"github.com/spf13/cobra":                     {"cmd/cdc-relay"},
	"github.com/ory/dockertest":                  {"sandbox"},
	"github.com/fergusstrange/embedded-postgres": {"sandbox"},
	"net/http": {"admin", "metrics", "cmd/cdc-relay", "demo", "sandbox", "sink/auth"}, // auth asks a token endpoint
}

// unshipped is what the binary must not be linked with.
var unshipped = []string{
	"testing", "testing/", module + "sandbox", module + "test", module + "demo",
	"github.com/twmb/franz-go/pkg/kfake", "github.com/ory/dockertest", "github.com/stretchr", "github.com/fergusstrange", "github.com/lib/pq",
}

type listed struct {
	ImportPath string
	Imports    []string
}

func list(t *testing.T, args ...string) []listed {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports"}, args...)...)
	cmd.Dir = ".."
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &problems)
	}
	var packages []listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

func room(path string) string { return strings.TrimPrefix(path, module) }

func inTest(path string) bool {
	return path == module+"test" || strings.HasPrefix(path, module+"test/")
}

func TestArchitecture_ImportsFollowTheArrows(t *testing.T) {
	for _, p := range list(t, "./...") {
		if inTest(p.ImportPath) {
			continue
		}
		allowed, known := arrows[room(p.ImportPath)]
		if !known {
			t.Errorf("%s is not in the list of packages: add it, and what it may import", p.ImportPath)
			continue
		}
		for _, path := range p.Imports {
			if strings.HasPrefix(path, module) && !slices.Contains(allowed, room(path)) {
				t.Errorf("%s imports %s, which the arrows do not allow", room(p.ImportPath), room(path))
			}
		}
	}
}

// TestArchitecture_DebeziumCanBeDeleted: who imports it is the key in config and the
// commands. A row of a mapping without it does not pass its code.
func TestArchitecture_DebeziumCanBeDeleted(t *testing.T) {
	for name, allowed := range arrows {
		if name == "config" || name == "cmd/cdc-relay" || name == "debezium" || strings.HasPrefix(name, "debezium/") {
			continue
		}
		for _, path := range allowed {
			if path == "debezium" || strings.HasPrefix(path, "debezium/") {
				t.Errorf("%s may import %s", name, path)
			}
		}
	}
}

func TestArchitecture_LibrariesHaveOwners(t *testing.T) {
	for _, p := range list(t, "./...") {
		if inTest(p.ImportPath) {
			continue
		}
		for _, path := range p.Imports {
			for library, allowed := range owners {
				if (path == library || strings.HasPrefix(path, library+"/")) && !slices.Contains(allowed, room(p.ImportPath)) {
					t.Errorf("%s imports %s, which only %s may", room(p.ImportPath), path, strings.Join(allowed, ", "))
				}
			}
		}
	}
}

func TestArchitecture_NothingOfTheTestsIsShipped(t *testing.T) {
	for _, p := range list(t, "-deps", "./cmd/cdc-relay") {
		for _, path := range unshipped {
			if p.ImportPath == path || strings.HasPrefix(p.ImportPath, strings.TrimSuffix(path, "/")+"/") {
				t.Errorf("the binary is linked with %s", p.ImportPath)
			}
		}
	}
}
