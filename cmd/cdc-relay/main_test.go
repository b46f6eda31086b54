package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/admin"
	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

const secretPassword = "hunter2-never-shown"

// A complete configuration of servers that nobody runs.
var closedPorts = []string{
	"CDC_RELAY_POSTGRES_URL=postgres://relay:" + secretPassword + "@127.0.0.1:1/shop?sslmode=disable&connect_timeout=2",
	"CDC_RELAY_KAFKA_BROKERS=127.0.0.1:1",
	"CDC_RELAY_OUTBOX_TABLE=public.outbox",
	"CDC_RELAY_HTTP_LISTEN=127.0.0.1:0",
}

type result struct {
	code           int
	stdout, stderr string
}

// invoke runs a command until it ends. A slot waits for transactions of all databases, those of other tests too:
// what gave up for them is run again, as it asks for.
func invoke(t *testing.T, env []string, args ...string) result {
	t.Helper()
	for again := 3; ; again-- {
		got := invokeWithin(t.Context(), t, env, args...)
		if again == 0 || got.code != exitRefused || !strings.Contains(got.stderr, "it waits for every transaction that was open before it") {
			return got
		}
		t.Logf("run again: %s", got.stderr)
	}
}

// invokeWithin has the end of ctx be the first stop signal.
func invokeWithin(ctx context.Context, t *testing.T, env []string, args ...string) result {
	t.Helper()
	if _, err := os.Stat("cdc-relay.yaml"); err == nil {
		t.Fatal("a configuration file lies about, and would be read")
	}
	var stdout, stderr output
	code := run(ctx, args, process{stdout: &stdout, stderr: &stderr, env: append([]string{"HOME=/nonexistent"}, env...)})
	return result{code, stdout.String(), stderr.String()}
}

type output = harness.Output

func (r result) want(t *testing.T, code int, stdout, stderr string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d; stderr %q", r.code, code, r.stderr)
	}
	if !strings.Contains(r.stdout, stdout) {
		t.Errorf("stdout %q, want %q in it", r.stdout, stdout)
	}
	// The last line of a daemon is JSON, which has quotes escaped.
	if !strings.Contains(r.stderr, stderr) && !strings.Contains(strings.ReplaceAll(r.stderr, `\"`, `"`), stderr) {
		t.Errorf("stderr %q, want %q in it", r.stderr, stderr)
	}
	if strings.Contains(r.stdout+r.stderr, secretPassword) {
		t.Errorf("the password is in the output:\n%s%s", r.stdout, r.stderr)
	}
}

func TestUsage_MistakesExitWith2AndTouchNothing(t *testing.T) {
	for _, tt := range []struct {
		args   string
		stderr string
	}{
		{"frobnicate", `unknown command "frobnicate": allowed: `},
		{"rnu", "cdc-relay: unknown command \"rnu\": did you mean run? (see cdc-relay --help)\n"},
		{"run --frobnicate", "unknown flag: --frobnicate (see cdc-relay run --help)\n"},
		{"status --jsn", "unknown flag: --jsn: did you mean --json? (see cdc-relay status --help)\n"},
		{"status --confg x", "did you mean --config?"},
		{"status -x", "unknown shorthand flag: 'x' in -x (see cdc-relay status --help)\n"},
		{"run now", `unknown argument "now": cdc-relay run takes none`},
		{"check postgres://u:PW@h/db", `unknown argument "postgres://***@h/db": cdc-relay check takes none`},
		{"check --config postgres://u:PW@h/db", "postgres://***@h/db: cannot read the configuration"},
		{"import", "FILE is missing: cdc-relay import FILE (see cdc-relay import --help)\n"},
		{"import a b", `unknown argument "b" after a`},
		{"config", "print, validate or schema"},
		{"config frobnicate", `unknown command "frobnicate"`},
		{"config prnt", `unknown command "prnt": did you mean print? (see cdc-relay config --help)`},
		{"deadletter lst", `unknown command "lst": did you mean list? (see cdc-relay deadletter --help)`},
		{"completion", "SHELL is missing: cdc-relay completion SHELL"},
		{"completion tcsh", `invalid argument "tcsh"; allowed: bash, zsh, fish, powershell`},
		{"status --interval nonsense", "invalid argument"},
		{"status --watch --interval 0s", "--interval 0s is not allowed; allowed: more than 0s"},
		{"status --interval 2s", "--interval is only allowed with --watch"},
		{"status --token-file nowhere", "--token-file is only allowed with --url"},
		{"status --timeout 0s", "--timeout 0s is not allowed; allowed: more than 0s"},
		{"status --timeout -1s", "--timeout -1s is not allowed; allowed: more than 0s"},
		{"check --timeout 0s", "--timeout 0s is not allowed; allowed: more than 0s"},
		{"check --timeout -1s", "--timeout -1s is not allowed; allowed: more than 0s"},
		{"setup --wait 5s", "--wait is only allowed with --reshard-from"},
		{"setup --reshard-from 2 --wait -5s", "--wait -5s is not allowed; allowed: more than 0s"},
		{"setup --reshard-from 0", "--reshard-from 0 is not allowed; allowed: the number of shards so far, from 1 to 64"},
		{"setup --reshard-from -2", "--reshard-from -2 is not allowed"},
		{"setup --reshard-from 65", "--reshard-from 65 is not allowed"},
		{"status --url ftp://x", "not an http address"},
		{"status --url 127.0.0.1:1 --token-file nowhere", "--token-file"},
		{"setup --create-table=frobnicate", "no SQL for preset"},
		{"--config", "flag needs an argument"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			got := invoke(t, closedPorts, strings.Fields(tt.args)...)
			got.want(t, exitUsage, "", tt.stderr)
			if n := strings.Count(got.stderr, tt.stderr); n != 1 {
				t.Errorf("the error is printed %d times:\n%s", n, got.stderr)
			}
		})
	}
}

func TestConfiguration_MistakesExitWith2InEveryVerb(t *testing.T) {
	for _, verb := range []string{"run", "setup", "teardown", "check", "check --offline", "status", "config print", "config validate"} {
		t.Run(verb, func(t *testing.T) {
			invoke(t, nil, strings.Fields(verb)...).want(t, exitUsage, "", "postgres.url")
		})
	}
}

func TestConfiguration_NamesThePlace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "relay.yaml")
	if err := os.WriteFile(file, []byte("postgres:\n  slott: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	invoke(t, closedPorts, "config", "validate", "--config", file).want(t, exitUsage, "", file+":2:3")
	invoke(t, closedPorts, "config", "validate", "-c", "nowhere.yaml").want(t, exitUsage, "", "nowhere.yaml")
	invoke(t, closedPorts, "config", "validate", "--set", "postgres.slot=No").want(t, exitUsage, "", "postgres.slot")
}

func TestConfigValidate_AlsoCompilesTheMapping(t *testing.T) {
	invoke(t, closedPorts, "config", "validate").want(t, exitOK, "ok: the environment", "")
	file := filepath.Join(t.TempDir(), "relay.yaml")
	text := "outbox:\n  - table: public.outbox\n    topic: x\n    topic_regex: '(['\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	invoke(t, closedPorts[:2], "config", "validate", "-c", file).want(t, exitUsage, "", "topic_regex")
}

func TestConfigPrint_HidesSecretsAndNamesOrigins(t *testing.T) {
	invoke(t, closedPorts, "config", "print", "--set", "postgres.slot=other").want(t, exitOK, "***", "")
	invoke(t, closedPorts, "config", "print", "--set", "postgres.slot=other").want(t, exitOK, "CDC_RELAY_KAFKA_BROKERS", "")
}

func TestConfigSchema_IsJSON(t *testing.T) {
	got := invoke(t, nil, "config", "schema")
	got.want(t, exitOK, "postgres", "")
	if !json.Valid([]byte(got.stdout)) {
		t.Error("the schema is not JSON")
	}
}

func TestVersion(t *testing.T) {
	invoke(t, nil, "version").want(t, exitOK, "cdc-relay ", "")
	got := invoke(t, nil, "version", "--json")
	var b buildInfo
	if err := json.Unmarshal([]byte(got.stdout), &b); err != nil || b.Version == "" || b.Commit == "" || !strings.HasPrefix(b.Go, "go") {
		t.Errorf("version --json = %q (%v)", got.stdout, err)
	}
}

func TestCompletion_ForEachShell(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		invoke(t, nil, "completion", shell).want(t, exitOK, "cdc-relay", "")
	}
}

func TestHelp_ListsEveryVerb(t *testing.T) {
	for _, args := range [][]string{nil, {"--help"}, {"help"}} {
		got := invoke(t, nil, args...)
		for _, verb := range []string{"run", "setup", "teardown", "check", "status", "healthcheck", "config", "version", "completion"} {
			got.want(t, exitOK, "\n  "+verb, "")
		}
	}
}

func TestRun_AnOccupiedAddressExitsWith3(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	got := invoke(t, closedPorts, "run", "--set", "http.listen="+taken.Addr().String())
	got.want(t, exitRefused, "", "address already in use")
}

// What is merely unreachable is waited for; a stop ends the wait cleanly.
func TestRun_WaitsForServersThatAreDownAndStopsCleanly(t *testing.T) {
	t.Chdir(t.TempDir())
	ctx, stop := context.WithCancel(t.Context())
	logs, out := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		code := run(ctx, []string{"run"}, process{stdout: io.Discard, stderr: out, env: closedPorts})
		out.Close()
		ended <- code
	}()
	var all []string
	lines := json.NewDecoder(logs)
	for {
		var line map[string]any
		if err := lines.Decode(&line); err != nil {
			break
		}
		all = append(all, fmt.Sprint(line))
		for _, field := range []string{"time", "level", "msg", "pipeline"} {
			if _, ok := line[field]; !ok {
				t.Errorf("a log line has no %q: %v", field, line)
			}
		}
		if line["reason"] != nil {
			stop()
		}
	}
	if code := <-ended; code != exitOK {
		t.Errorf("exit code %d, want 0; log:\n%s", code, strings.Join(all, "\n"))
	}
	stop()
	if text := strings.Join(all, "\n"); strings.Contains(text, secretPassword) {
		t.Errorf("the password is in the log:\n%s", text)
	}
}

func TestSetupAndTeardown_SayWhatIsUnreachable(t *testing.T) {
	for _, args := range []string{"setup", "setup --dry-run", "setup --create-table", "teardown", "teardown --yes"} {
		invoke(t, closedPorts, strings.Fields(args)...).want(t, exitRefused, "", "127.0.0.1")
	}
}

// Docker takes 2 for something else than a container that is not well.
func TestHealthcheck_AWrongTimeoutIsUnhealthy(t *testing.T) {
	invoke(t, closedPorts, "healthcheck", "--timeout", "0s").want(t, exitFailed, "", "--timeout 0s is not allowed")
}

func TestDeadLetter_SaysWhatToDoAboutBrokersThatAreAway(t *testing.T) {
	got := invoke(t, closedPorts, "deadletter", "list")
	got.want(t, exitFailed, "", "127.0.0.1:1")
	got.want(t, exitFailed, "", "start the brokers, or correct kafka.brokers, and repeat it")
}

func TestExitCode_FollowsTheKindOfError(t *testing.T) {
	cause := errors.New("cause")
	for _, tt := range []struct {
		err  error
		code int
	}{
		{nil, 0},
		{cause, 1},
		{relay.ErrDrainCut, 1},
		{&advice.Usage{Err: cause}, 2},
		{&config.Errors{}, 2},
		{&relay.ConfigError{Err: cause}, 2},
		{&relay.RefusedError{Err: cause}, 3},
		{&admin.ListenError{Err: cause}, 3},
		{fault.Refuse(&fault.Error{Err: cause}), 3},
		{fault.Refuse(&fault.Error{Reason: fault.ReasonConfiguration, Err: cause}), 2},
		{&relay.BlockedError{Err: cause}, 4},
		{fmt.Errorf("wrapped: %w", &relay.BlockedError{Err: cause}), 4},
		{&unhealthyError{&advice.Usage{Err: cause}}, 1},
	} {
		if got := exitCode(tt.err); got != tt.code {
			t.Errorf("exitCode(%T) = %d, want %d", tt.err, got, tt.code)
		}
	}
}

func TestNotifier_SpeaksToTheManager(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	a := &app{process: process{env: []string{"NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=60000000"}}}
	n := a.notifier()
	n.send("READY=1")
	got := make([]byte, 64)
	size, err := socket.Read(got)
	if err != nil || string(got[:size]) != "READY=1" {
		t.Errorf("the manager got %q (%v), want READY=1", got[:size], err)
	}
	if n.watchdog.Seconds() != 60 {
		t.Errorf("watchdog = %s, want 60s", n.watchdog)
	}
	(&app{}).notifier().send("READY=1") // without a manager: nothing happens
}

func TestNotifier_TellsStateAndLag(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	var current atomic.Pointer[status.Status]
	lag := 1.25
	current.Store(&status.Status{State: status.Streaming, LagSeconds: &lag, LagBytes: new(int64(3 << 20))})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		notifier{socket: path}.tellStatus(ctx, func() status.Status { return *current.Load() })
	}()
	defer func() { stop(); <-ended }()
	read := func() string {
		t.Helper()
		_ = socket.SetReadDeadline(time.Now().Add(time.Minute))
		got := make([]byte, 500)
		size, err := socket.Read(got)
		if err != nil {
			t.Fatal(err)
		}
		return string(got[:size])
	}
	if got, want := read(), "STATUS=Streaming, 1.2 s behind. 3.0 MiB of WAL are not confirmed."; got != want {
		t.Errorf("the manager got %q, want %q", got, want)
	}
	current.Store(&status.Status{State: status.Blocked, Reason: "kafka_rejected"})
	if got, want := read(), "STATUS=Blocked for "; !strings.HasPrefix(got, want) || !strings.Contains(got, "kafka_rejected") {
		t.Errorf("the manager got %q, want %q and the reason", got, want)
	}
}

// A pipe that nobody writes to stands for a file on a mount that hangs.
func TestStop_EndsTheReadingOfTheConfiguration(t *testing.T) {
	read, write, err := os.Pipe() // as of a shell's <(…) that does not end
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer time.AfterFunc(time.Minute, func() { _ = write.Close() }).Stop()
	defer write.Close()
	ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	invokeWithin(ctx, t, closedPorts, "run", "--set", fmt.Sprintf("postgres.password_file=/dev/fd/%d", read.Fd())).want(t, exitFailed, "", "cdc-relay: interrupted by a signal while reading the configuration or a file that it names; nothing was changed")
}
