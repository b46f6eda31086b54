// Package takeover_test changes over between a real Debezium and the relay, both
// ways, while several writers commit, and lets the ledger judge.
package takeover_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/debezium/takeover"
	"github.com/cdc-relay/cdc-relay/migrations"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
	"github.com/twmb/franz-go/pkg/kadm"
)

func TestMain(m *testing.M) {
	harness.Parallel("2")
	harness.Main(m)
}

// rounds is how often the slot changes hands and back; CDC_RELAY_TAKEOVER_ROUNDS
// asks for more.
func rounds(t *testing.T) int {
	text := os.Getenv("CDC_RELAY_TAKEOVER_ROUNDS")
	if text == "" {
		return 1
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("CDC_RELAY_TAKEOVER_ROUNDS: %v", err)
	}
	return n
}

// scene is one outbox, one connector, one configuration and the writers.
type scene struct {
	*relaytest.Pipeline
	writers   *relaytest.Workload
	admin     *kadm.Client
	debezium  *sandbox.Debezium
	name      string // of connector, slot and publication
	connector []byte
	dir       string

	distributed bool // the worker keeps positions in a topic
}

func newScene(t *testing.T, distributed bool) *scene {
	t.Helper()
	s := &scene{name: harness.Unique(t, "takeover"), dir: t.TempDir(), distributed: distributed}
	s.Pipeline = &relaytest.Pipeline{DB: harness.Postgres(t), Brokers: harness.Kafka(t), Slot: s.name}
	table, err := migrations.Table(migrations.DefaultPreset, "public", "outbox")
	if err != nil {
		t.Fatal(err)
	}
	s.DB.Exec(t, table)
	aggregate := harness.Unique(t, "order")
	s.writers = s.NewWorkload(t, "public.outbox", aggregate)
	s.Brokers.CreateTopic(t, s.writers.Topic(), 4)
	s.admin = s.Brokers.Admin(t)
	host, port, err := net.SplitHostPort(s.DB.Server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if s.connector, err = json.Marshal(map[string]any{"name": s.name, "config": map[string]string{
		"connector.class":   "io.debezium.connector.postgresql.PostgresConnector",
		"database.hostname": host, "database.port": port, "database.user": "postgres", "database.password": "", "database.dbname": s.DB.Name,
		"database.sslmode": "disable", "topic.prefix": "app", "plugin.name": "pgoutput", "snapshot.mode": "no_data",
		"slot.name": s.name, "publication.name": s.name, "publication.autocreate.mode": "filtered", "table.include.list": "public.outbox",
		"key.converter": "org.apache.kafka.connect.storage.StringConverter", "value.converter": "org.apache.kafka.connect.storage.StringConverter",
		"transforms": "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
		"transforms.outbox.table.field.event.key": "aggregate_id", "transforms.outbox.route.by.field": "aggregate_type",
		"transforms.outbox.route.topic.replacement": "${routedByValue}-events",
	}}); err != nil {
		t.Fatal(err)
	}
	s.write(t, "connector.json", s.connector)
	s.write(t, "worker.properties", fmt.Appendf(nil, "bootstrap.servers=%s\nproducer.compression.type=none\noffset.storage.topic=%s-offsets\n", strings.Join(s.Brokers.Addrs, ","), s.name))
	s.debezium = harness.Debezium(t, sandbox.DebeziumOptions{Brokers: s.Brokers.Addrs, Distributed: distributed, Group: s.name})
	s.post(t)
	return s
}

func (s *scene) write(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// post starts the connector on a worker that does not know it.
func (s *scene) post(t *testing.T) {
	t.Helper()
	if err := s.debezium.Post(t.Context(), s.connector); err != nil {
		t.Fatal(err)
	}
	s.streams(t)
}

func (s *scene) streams(t *testing.T) {
	t.Helper()
	if err := s.debezium.AwaitRunning(t.Context(), s.name); err != nil {
		t.Fatal(err)
	}
	s.active(t, true)
}

func (s *scene) active(t *testing.T, want bool) {
	t.Helper()
	relaytest.Eventually(t, fmt.Sprintf("the slot's active is %v", want), func() (bool, string) {
		return harness.Query[bool](t, s.DB, "SELECT coalesce(bool_or(active), false) FROM pg_replication_slots WHERE slot_name = $1", s.name) == want, s.debezium.Log()
	})
}

// more waits until n further events were written, and they and all before arrived.
func (s *scene) more(t *testing.T, n int) {
	t.Helper()
	goal := s.writers.Ledger.Len() + n
	relaytest.Eventually(t, "more events were written", func() (bool, string) {
		return s.writers.Ledger.Len() >= goal, fmt.Sprintf("%d of %d", s.writers.Ledger.Len(), goal)
	})
	relaytest.Eventually(t, "they arrived", func() (bool, string) {
		if records := s.records(t); records < int64(goal) {
			return false, fmt.Sprintf("%d records, wanted %d; Debezium says: %s", records, goal, s.debezium.Log())
		}
		report := s.writers.Ledger.Check(s.Brokers.Read(t, s.writers.Topic()))
		return report.Delivered >= goal, fmt.Sprintf("%s, wanted %d; Debezium says: %s", report, goal, s.debezium.Log())
	})
	if s.distributed {
		return
	}
	relaytest.Eventually(t, "Debezium stored a position", func() (bool, string) { // it does so once a second
		_, err := os.Stat(s.debezium.OffsetFile())
		return err == nil, s.debezium.Log()
	})
}

// records counts what the topic holds, without reading it.
func (s *scene) records(t *testing.T) int64 {
	t.Helper()
	ends, err := s.admin.ListEndOffsets(t.Context(), s.writers.Topic())
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	ends.Each(func(end kadm.ListedOffset) { n += end.Offset })
	return n
}

// giveBack is the way back as the documentation has it: the stopped connector
// forgets its position, which lies before the slot's, and goes on.
func (s *scene) giveBack(t *testing.T) {
	t.Helper()
	if _, err := s.debezium.Await(t.Context(), s.name, func(c sandbox.ConnectorState) bool { return c.Connector == "STOPPED" }); err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, s.debezium.URL()+"/connectors/"+s.name+"/offsets", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("delete the offsets: %s", answer.Status)
	}
	if err := s.debezium.Resume(t.Context(), s.name); err != nil {
		t.Fatal(err)
	}
	s.streams(t)
}

// stored waits until Debezium has stored a position of its own. Until then the
// old one is behind the slot, which the relay has moved.
func (s *scene) stored(t *testing.T) {
	t.Helper()
	relaytest.Eventually(t, "Debezium stored its position", func() (bool, string) {
		content, err := os.ReadFile(s.debezium.OffsetFile())
		if err != nil {
			return false, err.Error()
		}
		entries, err := takeover.ParseOffsets(content, s.name)
		if err != nil {
			return false, err.Error()
		}
		p, err := takeover.Choose(entries, s.name, "app")
		if err != nil || p == nil {
			return false, fmt.Sprint(err)
		}
		return p.Last() >= s.Confirmed(t), p.Last().String()
	})
}

// duplicates counts so far.
func (s *scene) duplicates(t *testing.T) int {
	t.Helper()
	report := s.writers.Ledger.Check(s.Brokers.Read(t, s.writers.Topic()))
	if len(report.Disordered)+len(report.Altered) > 0 {
		t.Fatalf("%s", report)
	}
	return report.Duplicates
}

// command runs the binary to its end.
func (s *scene) command(t *testing.T, want int, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), relaytest.Binary(t), args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir}
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	if got := cmd.ProcessState.ExitCode(); got != want {
		t.Fatalf("%v: exit code %d (%v), want %d\n%s%s", args, got, err, want, &out, &problems)
	}
	return out.String()
}

func (s *scene) takeover(t *testing.T, want int, more ...string) string {
	t.Helper()
	return s.command(t, want, append([]string{"takeover", "connector.json", "--worker", "worker.properties", "--offset-file", s.debezium.OffsetFile()}, more...)...)
}

// run streams with the imported configuration until n more events arrived.
func (s *scene) run(t *testing.T, n int) {
	t.Helper()
	s.YAML = s.command(t, 0, "import", "connector.json", "--worker", "worker.properties")
	s.YAML += "\nhttp: {listen: \"\"}\n"
	process := s.Exec(t, "run")
	s.more(t, n)
	process.Terminate(t)
	if code := process.Wait(t); code != 0 {
		t.Fatalf("run ended with %d", code)
	}
}

var filtered = regexp.MustCompile(`taken over: (\d+) rows? delivered by Debezium and not sent again, (\d+) sent`)

func counts(t *testing.T, out string) (skipped, sent int) {
	t.Helper()
	m := filtered.FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("no counts in:\n%s", out)
	}
	skipped, _ = strconv.Atoi(m[1])
	sent, _ = strconv.Atoi(m[2])
	return skipped, sent
}

// Debezium is stopped in order, the relay takes over, and Debezium gets the slot
// back; then Debezium is killed, and it all happens again. Writers never pause.
func TestTakeover_BothWaysWhileWritersCommit(t *testing.T) {
	t.Parallel()
	s := newScene(t, false)
	s.writers.Start(t, 4, 500*time.Millisecond)
	for round := range rounds(t) {
		s.more(t, 60)
		before := s.duplicates(t)

		out := s.takeover(t, 0)
		if !strings.Contains(out, "the slot is in use by") || !strings.Contains(out, "nothing was changed") {
			t.Fatalf("the plan while Debezium streams:\n%s", out)
		}
		s.takeover(t, 3, "--yes") // refused: the slot is held
		if err := s.debezium.Halt(t.Context(), s.name); err != nil {
			t.Fatal(err)
		}
		s.active(t, false)
		out = s.takeover(t, 0, "--yes")
		skipped, sent := counts(t, out)
		s.run(t, 40)
		after := s.duplicates(t)
		t.Logf("round %d, stopped in order: %d rows known to be delivered, %d sent, %d duplicates\n%s", round, skipped, sent, after-before, out)
		if after != before {
			t.Errorf("round %d: %d duplicates after a stop in order, want none", round, after-before)
		}

		s.giveBack(t)
		s.more(t, 60)
		back := s.duplicates(t)

		s.stored(t)
		if err := s.debezium.Kill(); err != nil {
			t.Fatal(err)
		}
		s.active(t, false)
		out = s.takeover(t, 0, "--yes")
		skipped, sent = counts(t, out)
		s.run(t, 40)
		killed := s.duplicates(t)
		t.Logf("round %d, killed: %d rows known to be delivered, %d sent, %d duplicates\n%s", round, skipped, sent, killed-back, out)

		if err := s.debezium.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.debezium.Post(t.Context(), bytes.Replace(s.connector, []byte("{"), []byte(`{"initial_state":"STOPPED",`), 1)); err != nil {
			t.Fatal(err)
		}
		s.giveBack(t)
		s.more(t, 40)
		again := s.duplicates(t)
		t.Logf("round %d, back to Debezium after a kill: %d duplicates", round, again-killed)
		if back != after || again != killed {
			t.Errorf("round %d: %d and %d duplicates on the ways back from a relay that stopped in order, want none", round, back-after, again-killed)
		}
	}
	s.writers.Stop(t)
	relaytest.Eventually(t, "everything arrived", func() (bool, string) {
		report := s.writers.Ledger.Check(s.Brokers.Read(t, s.writers.Topic()))
		return report.Delivered == report.Committed, report.String()
	})
	t.Logf("duplicates in all: %d", s.writers.Verify(t))
}

// A distributed worker keeps positions in a topic.
func TestTakeover_ReadsTheOffsetTopicOfADistributedWorker(t *testing.T) {
	s := newScene(t, true)
	s.writers.Start(t, 2, 400*time.Millisecond)
	s.more(t, 40)
	before := s.duplicates(t)
	if err := s.debezium.Halt(t.Context(), s.name); err != nil {
		t.Fatal(err)
	}
	s.active(t, false)
	out := s.command(t, 0, "takeover", "connector.json", "--worker", "worker.properties", "--yes")
	skipped, sent := counts(t, out)
	s.run(t, 20)
	if after := s.duplicates(t); after != before || skipped == 0 || !strings.Contains(out, "(topic "+s.name+"-offsets)") {
		t.Errorf("%d duplicates; %d rows known to be delivered, %d sent\n%s", after-before, skipped, sent, out)
	}
	s.writers.Stop(t)
	process := s.Exec(t, "run")
	relaytest.Eventually(t, "everything arrived", func() (bool, string) {
		report := s.writers.Ledger.Check(s.Brokers.Read(t, s.writers.Topic()))
		return report.Delivered == report.Committed, report.String()
	})
	process.Terminate(t)
	process.Wait(t)
	s.writers.Verify(t)
}
