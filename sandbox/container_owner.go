package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ory/dockertest/v3"
	"github.com/ory/dockertest/v3/docker"
)

// A container does not end with the process that asked for it. So each has its owner in a
// label, and two things remove it: a reaper, which is this executable once more and waits
// for the end of a pipe that only the owner holds open, and the next process that starts a
// container, for what a reaper left that was killed too.

// ownerLabel holds the owner: processes, its number there, and when it began.
const ownerLabel = "cdc-relay.sandbox.owner"

// reaperVariable has the executable be a reaper, of the containers of this owner.
const reaperVariable = "CDC_RELAY_SANDBOX_REAPER"

func init() {
	if owner := os.Getenv(reaperVariable); owner != "" {
		reap(owner, os.Stdin)
		os.Exit(0)
	}
}

// ownerOf names a process by more than its number, which is given to others later.
func ownerOf(pid int) string {
	return fmt.Sprintf("%s/%d/%s", processSpace(), pid, processStart(pid))
}

// processSpace is where process numbers are ours: a kernel and its namespace of processes.
// Two that share an engine need not see each other's processes.
func processSpace() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		host, _ := os.Hostname()
		return host
	}
	namespace, _ := os.Readlink("/proc/self/ns/pid")
	return strings.TrimSpace(string(boot)) + "-" + namespace
}

// processStart is empty where there is no /proc.
func processStart(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The name of the program, in parentheses, may have spaces.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	const start = 22 - 3 // it is the 22nd, and the first of these is the third
	if len(fields) <= start {
		return ""
	}
	return fields[start]
}

// ownerGone is for certain: an owner elsewhere is not known to be gone.
func ownerGone(owner string) bool {
	parts := strings.Split(owner, "/")
	if len(parts) != 3 || parts[0] != processSpace() {
		return false
	}
	pid, err := strconv.Atoi(parts[1])
	if err != nil || pid <= 0 {
		return false
	}
	return syscall.Kill(pid, 0) == syscall.ESRCH || processStart(pid) != parts[2]
}

// removeContainers removes the containers whose owner is one that gone accepts.
func removeContainers(pool *dockertest.Pool, gone func(owner string) bool) error {
	containers, err := pool.Client.ListContainers(docker.ListContainersOptions{All: true, Filters: map[string][]string{"label": {ownerLabel}}})
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	var errs []error
	for _, c := range containers {
		if !gone(c.Labels[ownerLabel]) {
			continue
		}
		err := pool.Client.RemoveContainer(docker.RemoveContainerOptions{ID: c.ID, Force: true, RemoveVolumes: true})
		if _, missing := errors.AsType[*docker.NoSuchContainer](err); err != nil && !missing {
			errs = append(errs, fmt.Errorf("remove container %s: %w", c.ID, err))
		}
	}
	return errors.Join(errs...)
}

// startReaper starts one reaper for the containers of this process. What it returns is kept,
// and so stays open, until the process ends.
var startReaper = sync.OnceValues(func() (*os.File, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start reaper: %w", err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start reaper: %w", err)
	}
	defer read.Close()
	cmd := exec.Command(executable)
	cmd.Env = append(os.Environ(), reaperVariable+"="+ownerOf(os.Getpid()))
	cmd.Stdin = read
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no Ctrl-C reaches it
	if err := cmd.Start(); err != nil {
		write.Close()
		return nil, fmt.Errorf("start reaper: %w", err)
	}
	go func() { _ = cmd.Wait() }()
	return write, nil
})

// reapFor is how long after its owner a reaper looks for containers: the engine may still
// be making one that the owner asked for.
const reapFor = 10 * time.Second

// reap waits for the end of alive and removes what is owner's.
func reap(owner string, alive io.Reader) {
	_, _ = io.Copy(io.Discard, alive)
	pool, err := engine()
	if err != nil {
		return
	}
	for until := time.Now().Add(reapFor); time.Now().Before(until); {
		_ = removeContainers(pool, func(other string) bool { return other == owner }) // tried again, at last by the next process
		<-time.After(500 * time.Millisecond)
	}
}
