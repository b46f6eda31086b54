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
	"replication":    {"wording"},
	"router":         {"replication", "router/connect", "wording"},
	"router/connect": {},
	"sink":           {"router", "wording"},
	"sink/sinktest":  {"sink", "router"},
	"checkpoint":     {},
	"deadletter":     {"replication", "router", "sink"},
	"relay":          {"replication", "router", "sink", "checkpoint", "deadletter", "wording", "relay/status"},
	"relay/status":   {"replication", "router", "sink", "checkpoint", "deadletter", "wording"},
	"admin":          {"relay/status"},
	"metrics":        {"relay", "relay/status", "replication", "router", "sink"}, // the types in relay.Events
	"config":         {"relay", "admin", "replication", "router", "sink", "wording"},
	"importer":       {"router", "replication"}, // the list of options; names of tables and positions
	"migrations":     {},
	"takeover":       {},
	"sandbox":        {},
	"sandbox/ledger": {},
	"cmd/cdc-relay":  {"checkpoint", "config", "deadletter", "relay", "relay/status", "admin", "metrics", "importer", "migrations", "replication", "router", "sink", "takeover", "wording"},
	"demo":           {"config", "relay", "relay/status", "admin", "metrics", "migrations", "replication", "router", "sink", "sandbox", "sandbox/ledger"},
}

// owners are the only packages that may import what starts with the given path.
var owners = map[string][]string{
	"github.com/jackc/pglogrepl":                 {"replication", "checkpoint", "deadletter", "relay", "relay/status", "metrics", "admin", "router", "sink", "sink/sinktest", "demo", "takeover", "cmd/cdc-relay"}, // all but replication use its position type only
	"github.com/jackc/pgx":                       {"replication", "migrations", "sandbox", "demo", "cmd/cdc-relay"},
	"github.com/twmb/franz-go/pkg/kfake":         {"sandbox"},
	"github.com/twmb/franz-go":                   {"sink", "sandbox", "sandbox/ledger", "relay", "metrics", "cmd/cdc-relay", "demo"}, // relay, metrics and the programs pass a kgo.Hook on
	"github.com/prometheus":                      {"metrics"},
	"github.com/goccy/go-yaml":                   {"config", "importer"},
	"github.com/spf13/cobra":                     {"cmd/cdc-relay"},
	"github.com/ory/dockertest":                  {"sandbox"},
	"github.com/fergusstrange/embedded-postgres": {"sandbox"},
	"net/http": {"admin", "metrics", "cmd/cdc-relay", "demo", "sandbox", "sink"}, // sink asks a token endpoint
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
