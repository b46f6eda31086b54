package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Parallel tests have a slot of their own and look at nothing else; they mostly wait.
func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		crashOnDemand(os.Getenv(asProgram))
		main()
	}
	harness.Parallel("4")
	harness.Main(m)
}

// asProgram is set where the test's executable is started to be cdc-relay.
const asProgram = "TEST_AS_PROGRAM"

// life is one relay's configuration against real servers.
type life struct {
	env     []string
	db      *harness.Database
	brokers *harness.Brokers
}

func newLife(t *testing.T) *life { return newLifeWith(t, sandbox.KafkaOptions{}) }

func newLifeWith(t *testing.T, options sandbox.KafkaOptions) *life {
	return newLifeOn(t, harness.Kfake(t, options))
}

func newLifeOn(t *testing.T, brokers *harness.Brokers) *life {
	l := &life{db: harness.Postgres(t), brokers: brokers}
	slot := harness.Unique(t, "cmd")
	l.env = []string{
		"CDC_RELAY_POSTGRES_URL=" + l.db.URL,
		"CDC_RELAY_POSTGRES_SLOT=" + slot,
		"CDC_RELAY_KAFKA_BROKERS=" + strings.Join(l.brokers.Addrs, ","),
		"CDC_RELAY_KAFKA_CREATE_TOPICS_ENABLED=true",
		"CDC_RELAY_KAFKA_CREATE_TOPICS_PARTITIONS=1",
		"CDC_RELAY_OUTBOX_TABLE=public.outbox",
		"CDC_RELAY_HTTP_LISTEN=127.0.0.1:0",
	}
	return l
}

func (l *life) insert(t *testing.T, n int) {
	l.db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'order', gen_random_uuid(), 'OrderPlaced', jsonb_build_object('n', n) FROM generate_series(1, $1) n`, n)
}

// start runs `run` and returns the address it answers at and a stop that gives
// the exit code.
func (l *life) start(t *testing.T, hurry <-chan struct{}) (url string, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	logs, out := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		code := run(ctx, []string{"run"}, process{stdout: io.Discard, stderr: out, env: l.env, hurry: hurry})
		out.Close()
		ended <- code
	}()
	listening := make(chan string, 1)
	go func() {
		for lines := bufio.NewScanner(logs); lines.Scan(); {
			var line struct{ Listen string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Listen != "" {
				listening <- line.Listen
			}
		}
	}()
	select {
	case url = <-listening:
	case code := <-ended:
		t.Fatalf("run ended with %d before it listened", code)
	}
	return url, func() int { cancel(); return <-ended }
}

func (l *life) await(t *testing.T, what string, good func() bool) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !good() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("after two minutes still not: %s", what)
		}
	}
}

// released waits until nobody has a slot of the database: a walsender lets go of it a
// moment after its last word.
func released(t *testing.T, db *harness.Database) {
	t.Helper()
	(&life{}).await(t, "the slot is free", func() bool {
		return !harness.Query[bool](t, db, "SELECT coalesce(bool_or(active), false) FROM pg_replication_slots WHERE database = current_database()")
	})
}

// unlocked waits until nobody holds a lock of ours in the database: the server ends the session of a
// command that was cut short a moment after it.
func unlocked(t *testing.T, db *harness.Database) {
	t.Helper()
	(&life{}).await(t, "the lock is free", func() bool {
		return harness.Query[int64](t, db, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())") == 0
	})
}

func TestLife_FromSetupToTeardown(t *testing.T) {
	l := newLife(t)
	invoke(t, l.env, "setup").want(t, exitRefused, "", "outbox")
	invoke(t, l.env, "setup", "--dry-run", "--create-table").want(t, exitOK, "CREATE PUBLICATION", "")
	if harness.Query[bool](t, l.db, "SELECT to_regclass('public.outbox') IS NOT NULL") {
		t.Fatal("--dry-run created the table")
	}
	invoke(t, l.env, "setup", "--create-table").want(t, exitOK, "created slot", "")
	again := invoke(t, l.env, "setup", "--create-table")
	again.want(t, exitOK, "exists", "")
	if strings.Contains(again.stdout, "created") {
		t.Errorf("a second setup created something:\n%s", again.stdout)
	}

	l.insert(t, 10)
	url, stop := l.start(t, nil)
	l.await(t, "healthcheck succeeds", func() bool { return invoke(t, nil, "healthcheck", "--url", url).code == exitOK })
	l.await(t, "everything is published", func() bool {
		return strings.Contains(invoke(t, nil, "status", "--url", url).stdout, "published 10,")
	})
	invoke(t, nil, "status", "--url", url).want(t, exitOK, "order-events", "")
	invoke(t, l.env, "teardown", "--yes").want(t, exitRefused, "", "in use")
	if code := stop(); code != exitOK {
		t.Errorf("run ended with %d, want 0", code)
	}
	released(t, l.db)
	if n := len(l.brokers.Read(t, "order-events")); n != 10 {
		t.Errorf("%d records, want 10", n)
	}

	invoke(t, l.env, "teardown").want(t, exitOK, "would drop slot", "")
	invoke(t, l.env, "teardown", "--yes").want(t, exitOK, "dropped slot", "")
	invoke(t, l.env, "teardown", "--yes").want(t, exitOK, "does not exist", "")
	if n := harness.Query[int64](t, l.db, "SELECT count(*) FROM outbox"); n != 10 {
		t.Errorf("the table has %d rows after teardown, want 10", n)
	}
}

// The first signal waits for acknowledgements, here for ever; the second one ends
// that with 1, and the next start delivers what was left.
func TestRun_SecondSignalCutsTheDrainShort(t *testing.T) {
	l := newLife(t)
	invoke(t, l.env, "setup", "--create-table").want(t, exitOK, "", "")
	hurry := make(chan struct{})
	url, stop := l.start(t, hurry)
	l.await(t, "the relay streams", func() bool { return invoke(t, nil, "status", "--url", url).code == exitOK })
	l.brokers.Fake.TakeAway(0)
	l.insert(t, 3)
	l.await(t, "rows are in flight", func() bool {
		s := invoke(t, nil, "status", "--url", url).stdout
		return s != "" && !strings.Contains(s, " 0 rows")
	})
	stopping := make(chan int, 1)
	go func() { stopping <- stop() }()
	l.await(t, "it drains", func() bool {
		return strings.Contains(invoke(t, nil, "status", "--url", url).stdout, "stopping")
	})
	close(hurry)
	if code := <-stopping; code != exitFailed {
		t.Errorf("a drain that was cut short ended with %d, want 1", code)
	}

	l.brokers.Fake.Return()
	url, stop = l.start(t, nil)
	l.await(t, "everything is published", func() bool {
		return strings.Contains(invoke(t, nil, "status", "--url", url).stdout, "published 3,")
	})
	if code := stop(); code != exitOK {
		t.Errorf("the next run ended with %d, want 0", code)
	}
	if n := len(l.brokers.Read(t, "order-events")); n != 3 {
		t.Errorf("%d records, want 3", n)
	}
}

var listening = regexp.MustCompile(`"listen":"([^"]+)"`)

// The same with the process itself and real signals.
func TestProgram_SecondSignalCutsTheDrainShort(t *testing.T) {
	l := newLife(t)
	invoke(t, l.env, "setup", "--create-table").want(t, exitOK, "", "")
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var log output
	program := exec.CommandContext(t.Context(), executable, "run")
	program.Env, program.Stderr = append(slices.Clone(l.env), "HOME=/nonexistent", asProgram+"=1"), &log
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan int, 1)
	go func() {
		_ = program.Wait() // the exit code says it
		ended <- program.ProcessState.ExitCode()
	}()
	signal := func() {
		t.Helper()
		if err := program.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatalf("%v; log:\n%s", err, log.String())
		}
	}
	status := func() result {
		if at := listening.FindStringSubmatch(log.String()); at != nil {
			return invoke(t, nil, "status", "--url", at[1])
		}
		return result{code: exitFailed}
	}
	l.await(t, "the relay streams", func() bool { return status().code == exitOK })
	l.brokers.Fake.TakeAway(0)
	l.insert(t, 3)
	l.await(t, "rows are in flight", func() bool { s := status().stdout; return s != "" && !strings.Contains(s, " 0 rows") })
	signal()
	l.await(t, "it drains", func() bool { return strings.Contains(log.String(), "a second signal") })
	select {
	case code := <-ended:
		t.Fatalf("the first signal ended it with %d; log:\n%s", code, log.String())
	case <-time.After(echo + 100*time.Millisecond):
	}
	signal()
	select {
	case code := <-ended:
		if code != exitFailed || !strings.Contains(log.String(), "drain cut short") {
			t.Errorf("a drain that was cut short ended with %d, want 1; log:\n%s", code, log.String())
		}
	case <-time.After(20 * time.Second): // relay.drain_timeout is 30s
		t.Errorf("the second signal did not end it; log:\n%s", log.String())
	}
}

func TestSetup_SaysHowManyRowsLieBeforeTheSlot(t *testing.T) {
	l := newLife(t)
	l.db.Exec(t, "CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_type text, aggregate_id uuid, event_type text, payload jsonb)")
	l.insert(t, 7)
	invoke(t, l.env, "setup").want(t, exitOK, "7 rows in public.outbox", "")
}

func TestRun_RefusesAndSaysTheNextStep(t *testing.T) {
	for _, tt := range []struct {
		name    string
		prepare func(t *testing.T, l *life)
		set     string
		code    int
		stderr  []string
	}{
		{"nothing is set up", func(*testing.T, *life) {}, "", exitRefused, []string{"publication", "cdc-relay setup"}},
		{"missing slot", func(t *testing.T, l *life) {
			invoke(t, l.env, "setup", "--create-table").want(t, exitOK, "", "")
			l.db.Exec(t, fmt.Sprintf("SELECT pg_drop_replication_slot('%s')", strings.TrimPrefix(l.env[1], "CDC_RELAY_POSTGRES_SLOT=")))
		}, "", exitRefused, []string{"slot", "cdc-relay setup"}},
		{"template with an unknown column", func(t *testing.T, l *life) {
			invoke(t, l.env, "setup", "--create-table").want(t, exitOK, "", "")
		}, "outbox[0].columns.key=nobody", exitUsage, []string{"nobody", "outbox"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLife(t)
			tt.prepare(t, l)
			args := []string{"run"}
			if tt.set != "" {
				args = append(args, "--set", tt.set)
			}
			got := invoke(t, l.env, args...)
			for _, want := range tt.stderr {
				got.want(t, tt.code, "", want)
			}
			last := got.stderr[strings.LastIndex(strings.TrimRight(got.stderr, "\n"), "\n")+1:]
			var line struct {
				Level, Msg string
				ExitCode   int `json:"exit_code"`
			}
			if err := json.Unmarshal([]byte(last), &line); err != nil || line.Level != "error" || line.Msg == "" || line.ExitCode != tt.code {
				t.Errorf("the last line of a JSON log is %q (%v)", last, err)
			}
			args = append(args, "--set", "log.format=text")
			if plain := invoke(t, l.env, args...).stderr; !strings.Contains(plain, "\ncdc-relay: ") {
				t.Errorf("the last line of a text log is no plain error: %q", plain)
			}
		})
	}
}
