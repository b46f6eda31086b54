package sandbox_test

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// fakeEngine is as much of a container engine as starting and removing a container takes.
type fakeEngine struct {
	mu         sync.Mutex
	containers map[string]map[string]string // labels by id
	stopped    bool                         // somebody asked for a stop, which kills at once
}

func startFakeEngine(t *testing.T) (e *fakeEngine, address string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "engine") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	e = &fakeEngine{containers: map[string]map[string]string{}}
	server := &http.Server{Handler: e}
	go func() { _ = server.Serve(listener) }() // ends with Close
	t.Cleanup(func() { server.Close() })
	return e, "unix://" + socket
}

func (e *fakeEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	path := r.URL.Path
	id, inContainer := "", false
	if i := strings.Index(path, "/containers/"); i >= 0 {
		id, inContainer = strings.CutPrefix(path[i:], "/containers/")
		id, _, _ = strings.Cut(id, "/")
	}
	answer := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	switch {
	case strings.HasSuffix(path, "/containers/create"):
		var request struct{ Labels map[string]string }
		_ = json.NewDecoder(r.Body).Decode(&request)
		e.containers["made"] = request.Labels
		w.WriteHeader(http.StatusCreated)
		answer(map[string]any{"Id": "made"})
	case strings.HasSuffix(path, "/containers/json"):
		var list []map[string]any
		for id, labels := range e.containers {
			list = append(list, map[string]any{"Id": id, "Labels": labels})
		}
		answer(list)
	case inContainer && r.Method == http.MethodDelete:
		delete(e.containers, id)
		w.WriteHeader(http.StatusNoContent)
	case strings.HasSuffix(path, "/stop"):
		e.stopped = true
		w.WriteHeader(http.StatusNoContent)
	case strings.HasSuffix(path, "/start"):
		w.WriteHeader(http.StatusNoContent)
	case inContainer && e.containers[id] == nil:
		w.WriteHeader(http.StatusNotFound)
	case inContainer: // nothing listens at port 1, so it is waited for
		answer(map[string]any{"Id": id, "State": map[string]any{"Running": true}, "NetworkSettings": map[string]any{
			"Ports": map[string]any{"5432/tcp": []any{map[string]any{"HostIp": "127.0.0.1", "HostPort": "1"}}}}})
	default:
		answer(map[string]any{"Id": "image"})
	}
}

// look is how many containers there are, and the labels of the one that was made.
func (e *fakeEngine) look() (n int, made map[string]string, stopped bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.containers), e.containers["made"], e.stopped
}

// ownContainer starts a process that starts a container and waits for it.
func ownContainer(t *testing.T, address string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), owner+"=container", "DOCKER_HOST="+address)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

func TestContainer_IsRemovedWhenItsOwnerIsKilled(t *testing.T) {
	engine, address := startFakeEngine(t)
	cmd := ownContainer(t, address)
	eventually(t, "the container is there", func() bool { n, _, _ := engine.look(); return n == 1 })
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the container is gone", func() bool { n, _, _ := engine.look(); return n == 0 })
	if _, _, stopped := engine.look(); stopped {
		t.Error("the container was sent a stop signal while it was in use")
	}
}

func TestContainer_ThatEndedIsNotWaitedFor(t *testing.T) {
	engine, address := startFakeEngine(t)
	cmd := ownContainer(t, address)
	eventually(t, "the container is there", func() bool { n, _, _ := engine.look(); return n == 1 })
	engine.mu.Lock()
	clear(engine.containers)
	engine.mu.Unlock()
	ended := make(chan error, 1)
	go func() { _, err := cmd.Process.Wait(); ended <- err }()
	select {
	case <-ended:
	case <-time.After(2 * time.Minute): // less than a container may take to answer
		t.Error("it waits for a container that has ended")
	}
}

func TestContainer_OfAnEndedProcessIsRemovedByTheNext(t *testing.T) {
	engine, address := startFakeEngine(t)
	cmd := ownContainer(t, address)
	eventually(t, "the container is there", func() bool { _, made, _ := engine.look(); return len(made) == 1 })

	_, made, _ := engine.look()
	for label, living := range made {
		parts := strings.Split(living, "/")
		if len(parts) != 3 {
			t.Fatalf("the label says %q", living)
		}
		engine.mu.Lock()
		engine.containers["of the same number, begun at another time"] = map[string]string{label: parts[0] + "/" + parts[1] + "/1"}
		engine.containers["of another machine"] = map[string]string{label: "elsewhere/" + parts[1] + "/1"}
		engine.containers["of the living"] = map[string]string{label: living}
		engine.mu.Unlock()
	}
	ownContainer(t, address)
	has := func(id string) bool {
		engine.mu.Lock()
		defer engine.mu.Unlock()
		return engine.containers[id] != nil
	}
	eventually(t, "what is left over is gone", func() bool { return !has("of the same number, begun at another time") })
	for _, kept := range []string{"of another machine", "of the living"} {
		if !has(kept) {
			t.Errorf("the container %s is gone", kept)
		}
	}
	if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Fatalf("the owner has ended: %v", err)
	}
}
