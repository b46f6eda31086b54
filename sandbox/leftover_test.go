package sandbox_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// owner is the variable that turns the test binary into a process which starts a
// server and waits to be killed.
const owner = "CDC_RELAY_TEST_SANDBOX_OWNER"

func TestMain(m *testing.M) {
	if os.Getenv(owner) == "" {
		os.Exit(m.Run())
	}
	if os.Getenv(owner) == "java" {
		beJava()
	}
	if os.Getenv(owner) == "ports" {
		takePorts()
		os.Exit(0)
	}
	if os.Getenv(owner) == "container" {
		_, err := sandbox.StartPostgres(context.Background(), sandbox.PostgresOptions{Sources: []sandbox.Source{sandbox.Container}})
		fmt.Println(err)
		os.Exit(1)
	}
	server, err := sandbox.StartPostgres(context.Background(), sandbox.PostgresOptions{})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if err := os.WriteFile(filepath.Join(server.Dir(), "mark"), nil, 0o600); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(server.Dir())
	select {}
}

func TestPostgres_NothingIsLeftAfterItsOwnerWasKilled(t *testing.T) {
	harness.NeedsServer(t, "PostgreSQL")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), owner+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	dir := strings.TrimSpace(line)
	if err != nil || !filepath.IsAbs(dir) {
		t.Fatalf("the owner did not start a server: %q, %v", line, err)
	}
	content, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(content), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}

	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("the owner ended well although it was killed")
	}
	eventually(t, "the server is gone", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
	eventually(t, "the directory is gone", func() bool {
		_, err := os.Stat(dir)
		return errors.Is(err, os.ErrNotExist)
	})
}

func TestPostgres_RemovesWhatAnEarlierProcessLeft(t *testing.T) {
	harness.NeedsServer(t, "PostgreSQL")
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	left, err := os.MkdirTemp("", fmt.Sprintf("cdc-relay-sandbox-pg-%d-*", gone.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	kept, err := os.MkdirTemp("", fmt.Sprintf("cdc-relay-sandbox-pg-%d-*", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(kept)
	start(t, sandbox.PostgresOptions{})
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s of an ended process is still there: %v", left, err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("%s of a living process was removed: %v", kept, err)
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
		<-time.After(20 * time.Millisecond)
	}
}
