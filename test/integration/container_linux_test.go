package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// memoryGroups is where this machine limits the memory of groups, and the files for the
// limit and the events of one; root is empty where the kernel does not.
func memoryGroups() (root, maximum, events string) {
	if control, err := os.ReadFile("/sys/fs/cgroup/cgroup.subtree_control"); err == nil && slices.Contains(strings.Fields(string(control)), "memory") {
		return "/sys/fs/cgroup", "memory.max", "memory.events" // version 2
	}
	if _, err := os.Stat("/sys/fs/cgroup/memory/memory.limit_in_bytes"); err == nil {
		return "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control" // version 1
	}
	return "", "", ""
}

// limitedGroup is a control group with a limit of memory, as a container has one. The
// prefix starts a command in it. Who cannot make one skips the test, or fails it where
// that is required.
func limitedGroup(t *testing.T, limit int) (prefix []string, killed func() string) {
	t.Helper()
	root, maximum, events := memoryGroups()
	if root == "" {
		harness.Forbidden(t, "limit the memory of a control group", errors.ErrUnsupported, "run it where control groups of version 1 or 2 limit memory under /sys/fs/cgroup")
	}
	dir := filepath.Join(root, fmt.Sprintf("cdc-relay-test-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		harness.Forbidden(t, "make control groups", err, "run it as root, where "+root+" can be written")
	}
	t.Cleanup(func() {
		relaytest.Eventually(t, "the control group is empty", func() (bool, string) {
			err := os.Remove(dir)
			return err == nil || errors.Is(err, os.ErrNotExist), fmt.Sprint(err)
		})
	})
	if err := os.WriteFile(filepath.Join(dir, maximum), []byte(strconv.Itoa(limit)), 0o644); err != nil {
		harness.Forbidden(t, "limit the memory of a control group", err, "run it as root")
	}
	killed = func() string {
		data, err := os.ReadFile(filepath.Join(dir, events))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
				return strings.TrimSpace(n)
			}
		}
		return "unknown"
	}
	return []string{"sh", "-c", `echo $$ > "$0" && exec "$@"`, filepath.Join(dir, "cgroup.procs")}, killed
}

// A container of 64 MiB is enough, with the settings that nobody touched: for a backlog
// of many times that, and while the brokers are unreachable.
func TestMemory_FitsIntoAContainer(t *testing.T) {
	prefix, killed := limitedGroup(t, 64<<20)
	brokers := harness.Kfake(t, sandbox.KafkaOptions{Discard: true})
	p, w := outbox(t, harness.Postgres(t), brokers)
	insert := fmt.Sprintf(`INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
		SELECT '%s', gen_random_uuid(), 'Happened', jsonb_build_object('n', i, 'fill', repeat('x', 1600)) FROM generate_series(1, 25000) AS i`, // 40 MB, more than the window
		strings.TrimSuffix(w.Topic(), "-events"))
	p.DB.Exec(t, insert)
	running := p.ExecUnder(t, prefix, "run", "--set", "kafka.compression=snappy", "--set", "log.level=debug", "--set", "log.format=json")
	p.AwaitCaughtUp(t)
	if !strings.Contains(running.Output(), "memory limit taken from the cgroup") {
		t.Error("it does not say that it saw the container's limit")
	}
	brokers.Fake.TakeAway(0)
	p.DB.Exec(t, insert)
	relaytest.Eventually(t, "it misses the brokers", func() (bool, string) {
		return strings.Contains(running.Output(), "kafka_unreachable"), running.Output()
	})
	<-time.After(3 * time.Second) // as much as it takes is read by now
	peak := running.PeakMemory(t) >> 20
	brokers.Fake.Return()
	p.AwaitCaughtUp(t)
	running.Terminate(t)
	if code := running.Wait(t); code != 0 {
		t.Errorf("exit code = %d", code)
	}
	if n := killed(); n != "0" {
		t.Errorf("the kernel ended it %s times for want of memory", n)
	}
	t.Logf("peak memory %d MiB in the outage, of 64", peak)
}
