package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// One build is replaced by another under load, and back: nothing is lost, repeated or
// out of order. CDC_RELAY_TEST_OLDER_BINARY names a binary of an earlier release;
// without it both are of this source, under two versions.
func TestUpgrade_UnderLoadLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	p, w := outbox(t, harness.Postgres(t), harness.Kfake(t, kfakeDefault))
	file := filepath.Join(t.TempDir(), "cdc-relay.yaml")
	if err := os.WriteFile(file, []byte(p.YAML), 0o600); err != nil {
		t.Fatal(err)
	}
	older := os.Getenv("CDC_RELAY_TEST_OLDER_BINARY")
	if older == "" {
		older = build(t, "0.0.1-older")
	}
	builds := []string{older, build(t, "0.0.2-newer")}
	start := func(i int) (*sandbox.Process, string) {
		t.Helper()
		log := filepath.Join(t.TempDir(), "log")
		out, err := os.Create(log)
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		cmd := exec.Command(builds[i%len(builds)], "run", "--config", file)
		cmd.Stdout, cmd.Stderr = out, out
		process, err := sandbox.Run(cmd)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(process.Kill)
		return process, log
	}
	says := func(log, word string) {
		t.Helper()
		relaytest.Eventually(t, "it says "+word, func() (bool, string) {
			text, err := os.ReadFile(log)
			return err == nil && strings.Contains(string(text), word), string(text)
		})
	}
	running, log := start(0)
	says(log, "streaming")
	w.Start(t, 2, 3*time.Millisecond)
	rounds := scale(t, "CDC_RELAY_TEST_UPGRADES", 4)
	for i := 1; i <= rounds; i++ {
		var next *sandbox.Process
		if i%2 == 0 { // the new one waits before the old one is stopped, or is started after it
			next, log = start(i)
			says(log, "standby")
		}
		if err := running.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if code := running.ExitCode(); code != 0 {
			t.Errorf("round %d: exit code = %d", i, code)
		}
		if next == nil {
			next, log = start(i)
		}
		says(log, "streaming")
		running = next
		<-time.After(200 * time.Millisecond) // under load
	}
	w.Stop(t)
	p.AwaitCaughtUp(t)
	if err := running.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := running.ExitCode(); code != 0 {
		t.Errorf("exit code = %d", code)
	}
	if duplicates := w.Verify(t); duplicates != 0 {
		t.Errorf("%d duplicates", duplicates)
	}
}

func build(t *testing.T, version string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cdc-relay")
	cmd := exec.Command("go", "build", "-ldflags", "-s -w -X main.version="+version, "-o", path, "github.com/cdc-relay/cdc-relay/cmd/cdc-relay")
	if !testing.Short() { // which takes the packages as other tests had them compiled
		cmd.Args = slices.Insert(cmd.Args, 2, "-trimpath")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return path
}
