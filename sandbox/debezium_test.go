package sandbox_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// deaf is the variable that has beJava not hear SIGTERM.
const deaf = "CDC_RELAY_TEST_SANDBOX_DEAF"

// beJava is a worker that answers, ends on SIGTERM unless it is deaf, and writes its threads on
// SIGQUIT.
func beJava() {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGQUIT)
	properties, err := os.ReadFile(os.Args[len(os.Args)-1])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for line := range strings.Lines(string(properties)) {
		if at, is := strings.CutPrefix(strings.TrimSpace(line), "listeners="); is {
			address, _ := url.Parse(at)
			go func() {
				fmt.Println(http.ListenAndServe(address.Host, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
			}()
		}
	}
	for s := range signals {
		switch {
		case s == syscall.SIGQUIT:
			fmt.Println("Full thread dump: the hook waits")
		case os.Getenv(deaf) == "":
			os.Exit(0)
		}
	}
}

func startWorker(t *testing.T) *sandbox.Debezium {
	t.Helper()
	harness.NeedsServer(t, "Debezium")
	t.Setenv(owner, "java")
	d, err := sandbox.StartDebezium(t.Context(), sandbox.DebeziumOptions{Java: os.Args[0], Jars: t.TempDir(), Brokers: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestDebezium_EndsOnASignal(t *testing.T) {
	d := startWorker(t)
	if err := d.Stop(time.Minute); err != nil || d.Pid() != 0 {
		t.Errorf("%v; process %d", err, d.Pid())
	}
}

// Whoever stops a worker that hangs learns what it waits for, and may go on without it.
func TestDebezium_IsKilledWhereItDoesNotEnd(t *testing.T) {
	t.Setenv(deaf, "1")
	d := startWorker(t)
	err := d.Stop(100 * time.Millisecond)
	if !errors.Is(err, sandbox.ErrKilled) || !strings.Contains(err.Error(), "the hook waits") {
		t.Error(err)
	}
	if d.Pid() != 0 {
		t.Errorf("process %d is still there", d.Pid())
	}
	if err := d.Start(t.Context()); err != nil {
		t.Errorf("start it again: %v", err)
	}
}
