//go:build engine

package engine

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// commands are the lines of a file that a shell takes, joined where they go on, without the
// marks of a comment and of a prompt.
func commands(t *testing.T, path string) (found []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	start := regexp.MustCompile(`^(?:#   |\$ |    )?((?:[A-Z_]+=\S+ )*docker compose .*)$`)
	lines := bufio.NewScanner(strings.NewReader(string(text)))
	for lines.Scan() {
		match := start.FindStringSubmatch(lines.Text())
		if match == nil {
			continue
		}
		command := match[1]
		for (strings.HasSuffix(command, `\`) || strings.Count(command, `"`)%2 == 1) && lines.Scan() {
			command += "\n" + strings.TrimPrefix(lines.Text(), "#")
		}
		found = append(found, command)
	}
	return found
}

// project is a stack of compose.yaml with ports and a name of its own.
type project struct{ environment []string }

func newProject(t *testing.T, more ...string) *project {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := try(ctx, "compose", "version"); err != nil {
		harness.Missing(t, "docker compose", err, "install Docker's plugin compose")
	}
	p := &project{environment: append(os.Environ(), "DOCKER_BUILDKIT=1", "COMPOSE_PROJECT_NAME="+harness.Unique(t, "compose"))}
	for _, name := range []string{"RELAY_PORT", "POSTGRES_PORT", "KAFKA_PORT", "PROMETHEUS_PORT", "GRAFANA_PORT"} {
		port, err := sandbox.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		p.environment = append(p.environment, name+"="+strconv.Itoa(port))
	}
	p.environment = append(p.environment, more...)
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := p.command(context.Background(), "docker compose --profile '*' ps -a; docker compose --profile '*' logs --tail 30").CombinedOutput()
			t.Logf("%s", out)
		}
		if out, err := p.command(context.Background(), "docker compose --profile '*' down --volumes --timeout 5").CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	return p
}

func (p *project) command(ctx context.Context, line string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-c", line)
	cmd.Dir, cmd.Env = root, p.environment
	cmd.WaitDelay = time.Second
	return cmd
}

func (p *project) run(t *testing.T, line string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	out, err := p.command(ctx, line).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// What the header of compose.yaml says works word for word, and with ports that are moved.
func TestCompose_HeaderWorksWordForWord(t *testing.T) {
	p := newProject(t)
	lines := commands(t, "compose.yaml")
	if len(lines) < 3 || lines[0] != "docker compose up --build --wait" {
		t.Fatalf("the header has other commands now: %q", lines)
	}
	build(t)
	start := time.Now()
	p.run(t, lines[0])
	t.Logf("up and healthy in %.0f s", time.Since(start).Seconds())
	p.run(t, lines[1])

	// The consumer of the header goes on until somebody interrupts it.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	consumer := p.command(ctx, strings.Replace(lines[2], "docker compose exec", "docker compose exec -T", 1)+" --max-messages 1")
	out, err := consumer.Output()
	if err != nil {
		t.Fatalf("%s: %v", lines[2], err)
	}
	for _, want := range []string{`{"total": 12}`, "id:", "OrderPlaced"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the consumer shows no %s:\n%s", want, out)
		}
	}
	if out := p.run(t, "docker compose exec -T relay /cdc-relay status"); !strings.Contains(out, "streaming") {
		t.Errorf("status:\n%s", out)
	}
	p.run(t, "docker compose exec -T relay /cdc-relay check")

	// The broker's listener for this machine says the port that was moved.
	port := ""
	for _, entry := range p.environment {
		if value, found := strings.CutPrefix(entry, "KAFKA_PORT="); found {
			port = value
		}
	}
	brokers := &harness.Brokers{Addrs: []string{"127.0.0.1:" + port}}
	if records := brokers.Read(t, "order-events"); len(records) != 1 {
		t.Errorf("this machine reads %d records", len(records))
	}

	started := p.relayStarted(t, "relay")
	t.Logf("ready %.2f s after the start of its process", started.Seconds())
	start = time.Now()
	p.run(t, "docker compose stop relay")
	t.Logf("docker compose stop relay: %.1f s", time.Since(start).Seconds())
	if code := strings.TrimSpace(p.run(t, "docker inspect --format '{{.State.ExitCode}}' $(docker compose ps -aq relay)")); code != "0" {
		t.Errorf("the relay ended with %s", code)
	}
}

// relayStarted is how long the relay took from its start to its first stream, by its own log
// and the engine's.
func (p *project) relayStarted(t *testing.T, service string) time.Duration {
	t.Helper()
	begin, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(p.run(t, "docker inspect --format '{{.State.StartedAt}}' $(docker compose ps -q "+service+")")))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(p.run(t, "docker logs -t $(docker compose ps -q "+service+")")) {
		at, text, _ := strings.Cut(line, " ")
		if strings.Contains(text, "streaming") {
			ready, err := time.Parse(time.RFC3339Nano, at)
			if err != nil {
				t.Fatal(err)
			}
			return ready.Sub(begin)
		}
	}
	t.Fatal("the log does not say that it streams")
	return 0
}

// With the profile each shard has its relay, and the first one stands by for both.
func TestCompose_ShardsHaveTheirRelays(t *testing.T) {
	p := newProject(t, "SHARDS=2")
	build(t)
	p.run(t, "docker compose --profile shards up --build --wait")
	streams := func(service string) (count int, text string) {
		out, _ := p.command(t.Context(), "docker compose exec -T "+service+" /cdc-relay status --json").Output()
		var s struct {
			State  string
			Shards []struct{ State string }
		}
		if err := json.Unmarshal(out, &s); err != nil {
			return 0, string(out)
		}
		if len(s.Shards) == 0 && s.State == "streaming" {
			return 1, string(out)
		}
		for _, shard := range s.Shards {
			if shard.State == "streaming" {
				count++
			}
		}
		return count, string(out)
	}
	for service, want := range map[string]int{"relay-0": 1, "relay-1": 1, "relay": 0} {
		relaytest.Eventually(t, service+" has its shards", func() (bool, string) {
			count, text := streams(service)
			return count == want, text
		})
	}
	p.run(t, `docker compose exec -T postgres psql -U postgres shop -c "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload)
		SELECT gen_random_uuid(), 'order', gen_random_uuid(), 'OrderPlaced', '{}' FROM generate_series(1, 200)"`)
	p.run(t, "docker compose kill relay-0")
	relaytest.Eventually(t, "the first relay has the shard of the killed one", func() (bool, string) {
		count, text := streams("relay")
		return count == 1, text
	})
}
