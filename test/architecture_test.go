package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/cdc-relay/cdc-relay/"

// arrows are the packages of this module that a package may import. Data flows
// replication → router → sink; imports point the other way, and relay is the one
// joint.
var arrows = map[string][]string{
	// Leaves.
	"wording":    {},
	"fault":      {"advice", "replication/wal"}, // positions
	"checkpoint": {"replication/wal"},

	"checkpoint/stored": {"replication/wal"},

	"migrations": {},
	"proof":      {"checkpoint/stored", "fault", "replication/wal"},
	"peer":       {},
	"tracing":    {},
	"advice":     {},
	"loopback":   {},
	"figures":    {},
	"ways":       {},
	"docs":       {"wording"}, // the runbook, embedded
	"frame":      {"relay/status", "ways", "wording"},
	"selection":  {"advice", "replication/wal"},

	"replication":          {"fault", "postgres", "postgres/catalog", "replication/pgoutput", "replication/socket", "replication/wal"},
	"replication/socket":   {},
	"replication/wal":      {},
	"replication/pgoutput": {"fault", "replication/wal"},

	"replication/pgoutput/pgoutputtest": {"replication/wal"},
	"replication/wal/waltest":           {"replication/wal"},

	// replication imports these, not the other way round.
	"postgres":            {"fault", "peer", "replication/wal", "wording"},
	"postgres/incomplete": {"fault", "postgres"},
	"postgres/catalog":    {"fault", "postgres", "postgres/incomplete", "replication/wal", "wording"},
	"postgres/provision":  {"fault", "postgres", "postgres/catalog", "postgres/incomplete", "replication/wal", "wording"},
	"postgres/teardown":   {"fault", "postgres", "postgres/catalog", "postgres/incomplete", "postgres/provision", "wording"},
	"postgres/sample":     {"fault", "postgres", "postgres/catalog", "replication/wal"},
	"postgres/preflight":  {"advice", "fault", "postgres", "postgres/catalog", "replication/wal", "wording"},
	"postgres/watch":      {"fault", "postgres", "postgres/catalog", "replication/wal"},

	"postgres/snapshot":    {"fault", "postgres", "postgres/catalog", "postgres/incomplete", "replication/wal"},
	"postgres/maintenance": {"fault", "postgres", "postgres/catalog", "proof", "replication/wal"},

	"postgres/postgrestest":            {"fault", "postgres", "postgres/catalog", "replication/wal", "test/harness"},
	"postgres/preflight/preflighttest": {"advice", "postgres/preflight"},

	"router":                   {"advice", "fault", "replication/wal", "router/column", "router/format", "router/jsontext", "router/preset", "router/record", "router/schemas", "router/template", "tracing", "wording"},
	"router/record":            {"fault", "replication/wal", "tracing"},
	"router/record/recordtest": {"router/record"},
	"router/jsontext":          {},
	"router/column":            {"advice", "fault", "replication/wal", "router/jsontext", "router/record", "wording"},
	"router/template":          {"replication/wal", "router/column", "router/jsontext", "router/record"},
	"router/format":            {"fault", "replication/wal", "router/column", "router/jsontext", "router/record"},
	"router/encode":            {"advice", "router/encode/avro", "router/encode/protobuf", "router/encode/tape"},
	"router/encode/tape":       {"router/jsontext"},
	"router/encode/avro":       {"advice", "router/encode/tape"},
	"router/encode/protobuf":   {"advice", "router/encode/tape"},
	"router/resolve":           {"replication/wal", "router", "router/record", "router/schemas"},
	"router/schemas":           {"advice", "fault", "replication/wal", "router/column", "router/encode", "router/record", "router/template"},
	"registry":                 {"fault", "loopback", "router/encode"},
	"router/preset":            {"advice", "replication/wal", "router/column", "router/format", "router/record"},

	// Nothing but config and the program may import these: see TestArchitecture_DebeziumCanBeDeleted.
	"debezium":                   {"debezium/connect", "debezium/connect/codec", "debezium/connect/converter", "debezium/javaregex", "debezium/options", "debezium/transform", "fault", "replication/wal", "router", "router/column", "router/format", "router/preset", "router/record"},
	"debezium/transform":         {"debezium/connect", "debezium/connect/expand", "debezium/javaregex", "debezium/options", "fault", "replication/wal", "router/column", "router/record"},
	"debezium/options":           {},
	"debezium/javaregex":         {},
	"debezium/connect":           {"debezium/connect/java"},
	"debezium/connect/codec":     {"debezium/connect", "debezium/connect/java"},
	"debezium/connect/converter": {"debezium/connect", "debezium/connect/java"},
	"debezium/connect/expand":    {"debezium/connect", "debezium/connect/java"},
	"debezium/connect/java":      {},
	"debezium/importer":          {"debezium/javaregex", "debezium/options", "replication/wal"}, // names of tables and positions
	"debezium/takeover":          {"advice", "config", "debezium", "debezium/importer", "debezium/options", "fault", "postgres", "postgres/preflight", "postgres/watch", "relay", "relay/checkpoints", "relay/status", "replication", "replication/wal", "router", "sink", "sink/broker", "sink/topics", "wording"},

	"sink":          {"advice", "fault", "router/record"},
	"sink/auth":     {"fault", "loopback", "sink"},
	"sink/broker":   {"advice", "fault", "peer", "router/record", "sink", "sink/auth"},
	"sink/letters":  {"advice", "fault", "sink", "sink/broker"},
	"sink/offsets":  {},
	"sink/topics":   {"advice", "fault", "router/record", "sink", "sink/broker", "sink/letters", "sink/offsets", "wording"},
	"sink/producer": {"fault", "router/record", "sink", "sink/broker", "sink/letters", "sink/topics"},
	"sink/kafka":    {"fault", "router/record", "sink", "sink/broker", "sink/producer", "sink/topics"},
	"sink/kafkatx":  {"advice", "fault", "router/record", "sink", "sink/broker", "sink/producer", "sink/topics"},
	"sink/sinktest": {"fault", "replication/wal", "router/record", "sink"},

	"deadletter":         {"fault", "replication/wal", "router", "router/encode", "router/record", "sink", "sink/broker", "sink/topics", "wording"},
	"deadletter/waiting": {"deadletter", "replication/wal", "router", "router/record", "sink/broker", "sink/topics"},
	"deadletter/restore": {"advice", "config", "deadletter", "fault", "postgres", "postgres/catalog", "postgres/sample", "postgres/watch", "relay", "replication/wal", "router", "router/encode", "router/record", "router/resolve", "router/schemas", "sink/kafka", "wording"},
	"relay":              {"checkpoint", "checkpoint/stored", "deadletter", "fault", "postgres", "postgres/catalog", "postgres/watch", "relay/delivery", "relay/ending", "relay/promise", "relay/rejected", "relay/resume", "relay/retry", "relay/schemas", "relay/status", "replication", "replication/pgoutput", "replication/wal", "router", "router/record", "sink", "sink/kafka", "sink/kafkatx", "sink/producer", "sink/topics"},
	"relay/checkpoints":  {"checkpoint/stored", "postgres", "postgres/watch", "relay", "sink", "sink/kafkatx", "sink/topics"},
	"relay/delivery":     {"checkpoint", "checkpoint/stored", "deadletter", "fault", "postgres", "relay/ending", "relay/rejected", "relay/resume", "relay/retry", "relay/schemas", "relay/status", "relay/traces", "replication/wal", "router", "router/record", "router/schemas", "sink", "tracing"},
	"relay/ending":       {"fault", "postgres", "relay/rejected", "relay/status", "replication/wal", "sink"},
	"relay/traces":       {"deadletter", "replication/wal", "router/record", "sink", "tracing"},
	"tracing/export":     {"tracing"},
	"relay/schemas":      {"fault", "relay/ending", "relay/retry", "router/schemas"},
	"relay/retry":        {"replication/wal"},
	"relay/rejected":     {"deadletter", "fault", "relay/status", "replication/wal", "router/record", "sink", "sink/topics"},
	"relay/shards":       {"relay", "relay/status", "replication/wal", "router"},
	"relay/promise":      {"checkpoint/stored", "relay/resume", "replication/wal", "sink"},
	"relay/resume":       {"checkpoint/stored", "fault", "replication/wal", "sink"},
	"relay/status":       {"checkpoint", "fault", "postgres", "postgres/watch", "replication/wal", "router/record", "sink", "wording"},
	"admin":              {"docs", "fault", "figures", "loopback", "relay/status", "tail", "ways"},
	"tail":               {"replication/wal", "router/record"},
	"metrics":            {"fault", "figures", "relay", "relay/delivery", "relay/status", "replication/wal", "router/record", "sink", "tracing"}, // the types in relay.Events
	"config/document":    {},
	"config":             {"admin", "advice", "config/document", "debezium", "loopback", "marks", "postgres", "registry", "relay", "relay/shards", "replication", "replication/wal", "retention", "retention/export", "router", "router/encode", "router/format", "router/record", "router/schemas", "sink/auth", "sink/broker", "sink/producer", "sink/topics", "tracing", "tracing/export", "upkeep", "wording"},
	"marks":              {"deadletter", "deadletter/waiting", "fault", "postgres", "postgres/maintenance", "proof", "replication/wal", "upkeep", "upkeep/records", "wording"},
	"upkeep":             {"advice", "fault", "postgres", "postgres/maintenance", "postgres/sample", "proof", "relay", "relay/status", "replication/wal", "router", "router/record", "sink", "upkeep/records", "wording"},
	"upkeep/records":     {"advice", "checkpoint/stored", "deadletter", "deadletter/waiting", "fault", "postgres/catalog", "postgres/watch", "proof", "relay", "replication/wal", "router/record", "sink", "sink/letters", "sink/topics", "wording"},
	"retention":          {"fault", "postgres", "postgres/maintenance", "proof", "replication/wal", "retention/export", "upkeep", "wording"},
	"retention/export":   {},

	"deadletter/overtaken": {"deadletter", "fault", "postgres/catalog", "relay", "replication/wal", "sink", "sink/topics", "wording"},

	"check": {"advice", "checkpoint/stored", "config", "deadletter/overtaken", "explain", "fault", "marks", "postgres", "postgres/catalog", "postgres/preflight", "postgres/sample", "postgres/watch", "relay", "relay/checkpoints", "relay/status", "replication/wal", "retention", "router", "router/record", "router/resolve", "router/schemas", "sink/broker", "sink/topics", "upkeep", "wording"},

	"explain": {"advice", "config", "fault", "postgres/catalog", "postgres/sample", "postgres/snapshot", "relay", "replication/wal", "router", "router/column", "router/format", "router/record", "router/resolve", "router/schemas", "wording"},

	"setup": {"advice", "checkpoint/stored", "config", "deadletter", "deadletter/waiting", "fault", "marks", "migrations", "postgres", "postgres/catalog", "postgres/provision", "postgres/watch", "registry", "relay", "relay/checkpoints", "relay/promise", "replication/wal", "retention", "router", "router/schemas", "sink", "sink/broker", "sink/letters", "sink/topics", "wording"},

	"backfill/buckets":  {"replication/wal"},
	"backfill/progress": {"advice", "backfill/buckets", "replication/wal", "wording"},
	"backfill/handover": {"backfill/progress", "checkpoint/stored", "fault", "postgres", "postgres/catalog", "postgres/provision", "postgres/snapshot", "relay", "relay/checkpoints", "relay/promise", "replication", "replication/wal", "sink/topics"},
	"backfill":          {"advice", "backfill/buckets", "backfill/handover", "backfill/progress", "checkpoint/stored", "deadletter", "deadletter/waiting", "fault", "postgres", "postgres/catalog", "postgres/provision", "postgres/snapshot", "relay", "relay/checkpoints", "relay/rejected", "relay/resume", "relay/status", "replication", "replication/wal", "router", "router/record", "router/resolve", "router/schemas", "selection", "setup", "sink", "sink/broker", "sink/kafka", "sink/kafkatx", "sink/topics", "wording"},

	"cutover": {"advice", "backfill", "backfill/handover", "backfill/progress", "fault", "postgres", "postgres/catalog", "postgres/provision", "postgres/snapshot", "relay", "relay/shards", "replication/wal", "router/record", "router/resolve", "setup", "sink/topics", "wording"},

	"audit/match": {"router/record"},
	"audit":       {"advice", "audit/match", "checkpoint/stored", "deadletter", "deadletter/waiting", "fault", "postgres", "postgres/maintenance", "postgres/snapshot", "proof", "relay", "relay/checkpoints", "replication/wal", "router", "router/record", "router/resolve", "selection", "sink", "sink/topics", "wording"},

	"cmd/cdc-relay": {"admin", "advice", "audit", "backfill", "check", "config", "cutover", "deadletter", "deadletter/overtaken", "deadletter/restore", "debezium/importer", "debezium/takeover", "explain", "fault", "figures", "frame", "marks", "metrics", "migrations", "postgres", "postgres/catalog", "postgres/provision", "postgres/teardown", "postgres/watch", "relay", "relay/shards", "relay/status", "replication/wal", "retention", "router/record", "selection", "setup", "sink", "sink/broker", "sink/letters", "tail", "tracing", "tracing/export", "upkeep", "ways", "wording"},

	"deploy/release/ociarchive": {},

	"relay/status/statustest": {"relay/status"},

	"sandbox":         {},
	"sandbox/ledger":  {},
	"sandbox/objects": {},
	"demo/record":     {},
	"demo":            {"admin", "advice", "audit", "check", "config", "explain", "frame", "metrics", "migrations", "postgres", "postgres/provision", "relay", "relay/status", "replication/wal", "sandbox", "sandbox/ledger", "ways"},
}

// owners are the only packages that may import what starts with the given path.
var owners = map[string][]string{
	"github.com/jackc/pglogrepl":                 {"postgres", "postgres/postgrestest", "replication"},
	"github.com/jackc/pgx":                       {"debezium/takeover", "demo", "migrations", "postgres", "postgres/catalog", "postgres/postgrestest", "postgres/preflight", "postgres/provision", "postgres/sample", "postgres/snapshot", "postgres/watch", "replication", "sandbox"},
	"github.com/twmb/franz-go/pkg/kfake":         {"sandbox"},
	"github.com/twmb/franz-go":                   {"sink/auth", "sink/broker", "sink/letters", "sink/offsets", "sink/topics", "sink/producer", "sink/kafka", "sink/kafkatx", "sandbox", "sandbox/ledger", "registry", "relay", "relay/shards", "metrics", "cutover", "check", "cmd/cdc-relay", "demo"}, // relay, metrics and the programs pass a kgo.Hook on
	"github.com/twmb/franz-go/pkg/sr":            {"registry"},
	"github.com/prometheus":                      {"metrics"},
	"github.com/goccy/go-yaml":                   {"config/document", "debezium/importer"},
	"github.com/spf13/cobra":                     {"cmd/cdc-relay"},
	"github.com/ory/dockertest":                  {"sandbox"},
	"github.com/fergusstrange/embedded-postgres": {"sandbox"},
	"go.opentelemetry.io":                        {"tracing"},
	"google.golang.org/protobuf":                 {"tracing", "router/encode/protobuf"}, // of which the latter has the wire format
	"github.com/santhosh-tekuri/jsonschema":      {"router/encode"},
	"net/http":                                   {"admin", "metrics", "cmd/cdc-relay", "demo", "registry", "retention/export", "sandbox", "sandbox/objects", "sink/auth", "tracing/export"}, // auth asks a token endpoint, an export watches the connections of the client for S3
}

// never are packages that nothing of the binary may import: with html/template reachable the
// linker keeps every unused method, which takes 5 MB; a profile of a running relay holds rows;
// the exporters of gRPC take 9 MB.
var never = []string{"html/template", "net/http/pprof", "google.golang.org/grpc"}

func TestArchitecture_NothingLargeOrIndiscreetIsLinked(t *testing.T) {
	for _, p := range list(t, "-deps", "./cmd/cdc-relay") {
		for _, path := range never {
			if p.ImportPath == path || strings.HasPrefix(p.ImportPath, path+"/") {
				t.Errorf("the binary is linked with %s", p.ImportPath)
			}
		}
		if strings.HasPrefix(p.ImportPath, module) && slices.Contains(p.Imports, "text/template") {
			t.Errorf("%s imports text/template, by which methods are found by name", p.ImportPath)
		}
	}
}

// unshipped is what the binary must not be linked with.
var unshipped = []string{
	"testing", "testing/", module + "sandbox", module + "test", module + "demo",
	"github.com/twmb/franz-go/pkg/kfake", "github.com/twmb/avro", "github.com/ory/dockertest", "github.com/stretchr", "github.com/fergusstrange", "github.com/lib/pq",
}

type listed struct {
	ImportPath string
	Imports    []string
	Deps       []string // with what those import in turn
}

// listings are the answers of list: several tests ask the same.
var listings = map[string][]listed{}

func list(t *testing.T, args ...string) []listed {
	t.Helper()
	key := strings.Join(args, " ")
	if listings[key] == nil {
		listings[key] = runList(t, args)
	}
	return listings[key]
}

func runList(t *testing.T, args []string) []listed {
	t.Helper()
	command := []string{"list"}
	if args[0] == "-C" { // which comes before every other flag
		command, args = append(command, args[:2]...), args[2:]
	}
	cmd := exec.Command("go", slices.Concat(command, []string{"-json=ImportPath,Imports,Deps"}, args)...)
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

// pure are the packages that open no connection: values in, values out. A folder stands
// for all below it.
var pure = []string{"figures", "ways", "docs", "audit/match", "backfill/buckets", "backfill/progress", "checkpoint", "config/document", "proof", "relay/resume", "relay/retry", "replication/wal", "replication/pgoutput", "selection", "router", "debezium/transform", "debezium/connect", "debezium/options", "debezium/javaregex"}

func TestArchitecture_PurePackagesLinkNoSocket(t *testing.T) {
	found := map[string]bool{}
	for _, p := range list(t, "./...") {
		for _, name := range pure {
			if own := room(p.ImportPath); own != name && !strings.HasPrefix(own, name+"/") {
				continue
			}
			found[name] = true
			for _, path := range []string{"net", "net/http", "github.com/jackc/pgx/v5/pgconn", "github.com/twmb/franz-go/pkg/kgo"} {
				if slices.Contains(p.Deps, path) {
					t.Errorf("%s is linked with %s", room(p.ImportPath), path)
				}
			}
		}
	}
	for _, name := range pure {
		if !found[name] {
			t.Errorf("there is no package in %s", name)
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

// nested are the modules that services require, with what each requires itself.
var nested = map[string][]string{
	"outbox": {"github.com/jackc/pgx/v5"},
	"inbox":  {"github.com/jackc/pgx/v5", "github.com/twmb/franz-go", "github.com/twmb/franz-go/pkg/kmsg"},
}

// nestedImports are the libraries of the nested modules' packages; a package that is not here has
// the standard library alone.
var nestedImports = map[string][]string{
	"outbox/pgxoutbox": {"github.com/jackc/pgx/"},
	"inbox/pgxinbox":   {"github.com/jackc/pgx/"},
	"inbox/kafkainbox": {"github.com/jackc/pgx/", "github.com/twmb/franz-go/"},
}

// TestArchitecture_NestedModulesStandAlone: a service that writes events requires a driver and
// nothing of the relay, one that consumes them a client of Kafka too, and the relay does not
// require what services do.
func TestArchitecture_NestedModulesStandAlone(t *testing.T) {
	for folder, allowed := range nested {
		path := folder + "/go.mod"
		direct := 0
		for line := range strings.Lines(read(t, path)) {
			line = strings.TrimSpace(strings.TrimPrefix(line, "require "))
			required, version, _ := strings.Cut(line, " ")
			switch {
			case strings.HasPrefix(line, "replace"):
				t.Errorf("%s has %q, which nobody who requires the module gets", path, line)
			case !strings.HasPrefix(version, "v") || strings.HasSuffix(line, "// indirect"):
			case !slices.Contains(allowed, required):
				t.Errorf("%s requires %s; allowed: %s", path, required, strings.Join(allowed, ", "))
			default:
				direct++
			}
		}
		if direct != len(allowed) {
			t.Errorf("%s: found %d requirements", path, direct)
		}
		if strings.Contains(read(t, "go.mod"), module+folder) {
			t.Errorf("go.mod requires %s", module+folder)
		}
		for _, p := range nestedPackages(t, folder) {
			libraries := nestedImports[room(p.ImportPath)]
			for _, path := range p.Imports {
				switch {
				case !strings.Contains(path, "."): // the standard library
				case path == module+folder || strings.HasPrefix(path, module+folder+"/"):
				case slices.ContainsFunc(libraries, func(library string) bool { return strings.HasPrefix(path, library) }):
				default:
					t.Errorf("%s imports %s", p.ImportPath, path)
				}
			}
		}
	}
}

// drivers are the modules of pgx, clients those of franz-go.
var (
	drivers = []string{"github.com/jackc/pgx/v5", "github.com/jackc/pgpassfile", "github.com/jackc/pgservicefile", "golang.org/x/text"}
	clients = append([]string{"github.com/jackc/puddle/v2", "golang.org/x/sync", "github.com/twmb/franz-go", "github.com/twmb/franz-go/pkg/kmsg", "github.com/klauspost/compress", "github.com/pierrec/lz4/v4"}, drivers...)
)

// What a service is built with that imports one of the packages: as a module of its own, which
// requires outbox or inbox and lets the go command add the rest.
func TestArchitecture_AServiceIsBuiltWithADriverAndNothingElse(t *testing.T) {
	for path, libraries := range map[string][]string{
		"outbox": nil, "outbox/pgxoutbox": drivers, "inbox": nil, "inbox/pgxinbox": drivers, "inbox/kafkainbox": clients,
	} {
		folder, _, _ := strings.Cut(path, "/")
		whole, err := filepath.Abs(filepath.Join(root, folder))
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		for name, text := range map[string]string{
			"go.mod":  fmt.Sprintf("module service\n\ngo 1.25.0\n\nrequire %s v0.0.0\n\nreplace %[1]s => %s\n", module+folder, whole),
			"go.sum":  read(t, folder+"/go.sum"),
			"main.go": fmt.Sprintf("package main\n\nimport _ %q\n\nfunc main() {}\n", module+path),
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command("go", "list", "-mod=mod", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}", ".")
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		got := slices.Compact(slices.Sorted(slices.Values(strings.Fields(string(out)))))
		want := slices.Sorted(slices.Values(append([]string{module + folder}, libraries...)))
		if !slices.Equal(got, want) {
			t.Errorf("a service that imports %s is built with %q, want %q", path, got, want)
		}
	}
}

func nestedPackages(t *testing.T, folder string) []listed {
	t.Helper()
	packages := list(t, "-C", folder, "./...")
	if len(packages) == 0 {
		t.Fatalf("no package in %s", folder)
	}
	return packages
}
