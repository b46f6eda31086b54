//go:build engine

package engine

import (
	"context"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// maxImageMB is what a user downloads at most, unpacked.
const maxImageMB = 27

func TestImage_IsSmallAndStartsAtOnce(t *testing.T) {
	build(t)
	bytes, err := strconv.Atoi(docker(t, "image", "inspect", "--format", "{{.Size}}", image))
	if err != nil {
		t.Fatal(err)
	}
	if bytes > maxImageMB*1_000_000 {
		t.Errorf("the image has %d bytes; at most %d MB", bytes, maxImageMB)
	}
	id := docker(t, "create", image)
	t.Cleanup(func() { remove("rm", "-f", id) })
	binary := t.TempDir() + "/cdc-relay"
	docker(t, "cp", id+":/cdc-relay", binary)

	// The best of several: the machine has other work.
	best := func(name string, args ...string) time.Duration {
		shortest := time.Hour
		for range 5 {
			start := time.Now()
			if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			shortest = min(shortest, time.Since(start))
		}
		return shortest
	}
	alone := best(binary, "version")
	empty := best("docker", "run", "--rm", "--network", "none", image, "version")
	t.Logf("image: %.1f MB; version: %d ms alone, %d ms by docker run", float64(bytes)/1e6, alone.Milliseconds(), empty.Milliseconds())
}

// One relay under the limits of a careful user, from its first backlog to its last stop.
func TestImage_LosesNothingUnder64MiB(t *testing.T) {
	build(t)
	w := newWorld(t)
	w.setup(t)
	load := w.workload(t, "order")
	for range 25 { // 40 MB lie there before the relay starts
		load.InsertKey(t, newKey(), 1000, 1600)
	}
	options := append(confined("64m"), "--restart", "on-failure", "--stop-timeout", "40", "--network-alias", "relay", "--health-interval", "2s")
	start := time.Now()
	w.run(t, "relay", append(options, w.environment()...), image)
	w.awaitHealth(t, "relay", "healthy")
	t.Logf("healthy %.1f s after its start", time.Since(start).Seconds())

	for fact, want := range map[string]string{
		"CapEff": "0000000000000000", "CapPrm": "0000000000000000", "CapBnd": "0000000000000000",
		"NoNewPrivs": "1", "Seccomp": "2", "Uid": "65532\t65532\t65532\t65532",
	} {
		if got := w.process(t, "relay", fact); got != want {
			t.Errorf("%s = %q, want %q", fact, got, want)
		}
	}
	w.awaitLog(t, "relay", "memory limit taken from the cgroup")
	w.caughtUp(t)
	peak := func(when string) {
		t.Helper()
		s := w.inspect(t, "relay")
		if s.State.OOMKilled || s.State.Status != "running" {
			t.Fatalf("%s: %+v", when, s)
		}
		t.Logf("%s: peak memory %s", when, w.process(t, "relay", "VmHWM"))
	}
	peak("backlog")

	million := newKey()
	start = time.Now()
	load.InsertKey(t, million, 1_000_000, 20)
	inserted := time.Since(start)
	w.caughtUp(t)
	t.Logf("a transaction of 1 000 000 rows: %.0f s to insert, delivered and confirmed %.0f s after its commit", inserted.Seconds(), (time.Since(start) - inserted).Seconds())
	peak("a transaction of 1 000 000 rows")

	t.Log("an outage of the brokers")
	docker(t, "pause", w.container("kafka"))
	for range 25 {
		load.InsertKey(t, newKey(), 1000, 1600)
	}
	w.awaitHealth(t, "relay", "unhealthy")
	docker(t, "unpause", w.container("kafka"))
	w.caughtUp(t)
	w.awaitHealth(t, "relay", "healthy")
	peak("an outage")
	if n := w.inspect(t, "relay").RestartCount; n != 0 {
		t.Errorf("it was restarted %d times", n)
	}

	load.Start(t, 2, 20*time.Millisecond)
	t.Log("kill -9")
	pid := w.inspect(t, "relay").State.Pid
	if pid <= 1 {
		t.Fatalf("the process is %d", pid)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	relaytest.Eventually(t, "the relay is restarted", func() (bool, string) {
		s := w.inspect(t, "relay")
		return s.RestartCount == 1 && s.State.Status == "running" && s.State.Pid > 1, s.State.Status
	})
	w.caughtUp(t)

	t.Log("pause and unpause")
	docker(t, "pause", w.container("relay"))
	<-time.After(5 * time.Second)
	docker(t, "unpause", w.container("relay"))
	w.caughtUp(t)

	t.Log("the network is cut and comes back")
	docker(t, "network", "disconnect", w.name, w.container("relay"))
	<-time.After(8 * time.Second)
	docker(t, "network", "connect", "--alias", "relay", w.name, w.container("relay"))
	w.caughtUp(t)

	t.Log("a stop while the brokers are frozen")
	docker(t, "pause", w.container("kafka"))
	<-time.After(2 * time.Second) // rows are in flight
	start = time.Now()
	docker(t, "stop", "-t", "40", w.container("relay"))
	took := time.Since(start)
	s := w.inspect(t, "relay")
	t.Logf("stopped with frozen brokers in %.1f s, exit code %d", took.Seconds(), s.State.ExitCode)
	if s.State.ExitCode != 1 || took > 39*time.Second {
		t.Errorf("exit code %d after %s: want 1, before the engine kills it", s.State.ExitCode, took)
	}
	docker(t, "unpause", w.container("kafka"))
	load.Stop(t)
	docker(t, "start", w.container("relay"))
	w.awaitHealth(t, "relay", "healthy")
	w.caughtUp(t)

	// By an API call of its own there is no client to start, but the engine has its part in it.
	start = time.Now()
	docker(t, "stop", "-t", "40", w.container("relay"))
	took = time.Since(start)
	if s := w.inspect(t, "relay"); s.State.ExitCode != 0 || s.State.OOMKilled {
		t.Errorf("an idle relay ends with %d", s.State.ExitCode)
	}
	t.Logf("stopped idle in %.2f s", took.Seconds())
	if took > 5*time.Second {
		t.Errorf("an idle relay takes %s to stop", took)
	}
	out, err := try(context.Background(), "logs", w.container("relay"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out, "panic") {
		t.Error("its log has a panic")
	}
	t.Logf("%d duplicates", load.Verify(t))
}
