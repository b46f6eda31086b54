//go:build tools

// Package console has schemathesis ask the real relay what its OpenAPI file describes, and what it does not.
// It is never shipped.
package console

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

func TestMain(m *testing.M) { harness.Main(m) }

// The checks of schemathesis: no answer is a server's error, and each is what is described. That bad input is
// refused is not among them: what an unknown parameter is to do, a file cannot say.
const checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,unsupported_method"

// schemathesis finds the program; without it the test is skipped, with a line that says what to install.
func schemathesis(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("schemathesis takes minutes")
	}
	name, _ := filepath.Abs("../../.bin/python/bin/schemathesis")
	if _, err := os.Stat(name); err != nil {
		harness.Missing(t, "schemathesis", err, "run make openapi, which installs it below .bin; it needs Python 3.10 or later with venv and pip")
	}
	return name
}

func TestOpenAPI_SchemathesisFindsNothing(t *testing.T) {
	program := schemathesis(t)
	p, address, secrets := relay(t)
	rejected := p.NewWorkload(t, "public.outbox", "order")
	rejected.Insert(t, 20)
	p.DB.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('a b', 'k', 'Bad', '{}')") // no topic has that name
	p.AwaitCaughtUp(t)
	for _, c := range []struct {
		role, token, bad string
	}{
		{"nobody", "", "401"},
		{"viewer", secrets["token"], "403"},
		{"operator", secrets["operator"], ""},
	} {
		t.Run(c.role, func(t *testing.T) {
			walk(t, program, address, c.token, "--checks", checks, "--exclude-path", "/login")
			walk(t, program, address, c.token, "--checks", checks, "--exclude-checks", "unsupported_method", "--include-path", "/login") // which is a page, too
			answered(t, address, c.token, c.bad)
		})
	}
}

// relay is the real binary, with both tokens, actions and a dead letter.
func relay(t *testing.T) (p *relaytest.Pipeline, address string, secrets map[string]string) {
	t.Helper()
	dir := t.TempDir()
	secrets = map[string]string{"token": "the-token-of-a-viewer", "operator": "the-token-of-an-operator"}
	for name, secret := range secrets {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	db := harness.Postgres(t, "15")
	brokers := harness.Kfake(t, sandbox.KafkaOptions{})
	p = relaytest.New(t, db, brokers, []string{"{table: public.outbox}"}, "relay: {on_reject: dead_letter, dead_letter_topic: letters}")
	p.YAML = strings.Replace(p.YAML, "  compression: none", "  compression: none\n  create_topics: {enabled: true}", 1)
	p.YAML = strings.Replace(p.YAML, `http: {listen: ""}`, "http: {listen: '127.0.0.1:0', token_file: "+filepath.Join(dir, "token")+
		", console: {actions: true, payloads: true, operator_token_file: "+filepath.Join(dir, "operator")+"}}", 1)
	brokers.CreateTopic(t, "order-events", 3)
	brokers.CreateTopic(t, "letters", 1, "cleanup.policy=delete", "retention.ms=-1")
	p.Setup(t)
	process := p.Exec(t, "run")
	relaytest.Eventually(t, "HTTP server", func() (bool, string) {
		if m := listening.FindStringSubmatch(process.Output()); m != nil {
			address = "http://" + m[1]
		}
		return address != "", process.Output()
	})
	return p, address, secrets
}

var listening = regexp.MustCompile(`"listen":"([^"]+)"`)

// walk runs schemathesis. Streams have no end, so it does not ask for them; what a look at the servers costs
// is limited, so it waits where it is told to.
func walk(t *testing.T, program, address, token string, more ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute) // a minute on a free machine
	defer cancel()
	description, err := filepath.Abs("../../admin/web/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	args := []string{
		"run", description, "--url", address, "--exclude-path", "/api/v1/stream", "--exclude-path", "/api/v1/tail",
		"--phases", "examples,coverage,fuzzing", "--max-examples", "15", "--seed", "20", "--continue-on-failure", "--request-timeout", "30", "--no-color",
		"--warnings", "off", "--suppress-health-check", "all",
	}
	args = append(args, more...)
	if token != "" {
		args = append(args, "--header", "Authorization: Bearer "+token)
	}
	command := exec.CommandContext(ctx, program, args...)
	command.Dir = t.TempDir() // it keeps what it found
	command.Env = append(os.Environ(), "HYPOTHESIS_STORAGE_DIRECTORY="+t.TempDir())
	out, err := command.CombinedOutput()
	text := string(out)
	if err != nil {
		t.Errorf("%v:\n%s", err, text)
	}
	if !strings.Contains(text, "generated") || strings.Contains(text, "0 test cases generated") {
		t.Errorf("it says nothing of test cases:\n%s", text)
	}
	for line := range strings.Lines(text) {
		if strings.Contains(line, "generated") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

// answered looks whether the relay goes on, and whether the role was the one that was meant: bad is how it
// answers what the role may not do.
func answered(t *testing.T, address, token, bad string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+"/api/v1/retry", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatalf("the relay answers no more: %v", err)
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	if got := strings.Fields(answer.Status)[0]; bad != "" && got != bad || bad == "" && got != "200" && got != "429" {
		t.Errorf("retry: %s %s", answer.Status, body)
	}
}
