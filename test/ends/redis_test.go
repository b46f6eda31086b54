package ends

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/kafkainbox"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

type redisHints struct{ client *redis.Client }

func (h redisHints) Seen(ctx context.Context, keys []inbox.Key) ([]bool, error) {
	names := make([]string, len(keys))
	for i, key := range keys {
		names[i] = "billing:" + key.String()
	}
	values, err := h.client.MGet(ctx, names...).Result()
	seen := make([]bool, len(values))
	for i, value := range values {
		seen[i] = value != nil
	}
	return seen, err
}

func (h redisHints) Add(ctx context.Context, keys []inbox.Key) error {
	pipe := h.client.Pipeline()
	for _, key := range keys {
		pipe.Set(ctx, "billing:"+key.String(), "", 24*time.Hour)
	}
	_, err := pipe.Exec(ctx)
	return err
}

// redisServer is a real Redis or Valkey on a port of its own.
type redisServer struct {
	program, argv0, dir, port string
	cmd                       *exec.Cmd
	client                    *redis.Client
}

func startRedis(t testing.TB) *redisServer {
	t.Helper()
	r := &redisServer{dir: t.TempDir()}
	for _, name := range []string{"valkey-server", "redis-server", "valkey-check-rdb", "redis-check-rdb"} {
		// The tools of Debian are the server under other names: the first argument tells.
		if path, err := exec.LookPath(name); err == nil {
			r.program, r.argv0 = path, strings.Replace(name, "check-rdb", "server", 1)
			break
		}
	}
	if r.program == "" {
		harness.Missing(t, "Redis", exec.ErrNotFound, "install redis-server, or redis-tools, which starts none by itself")
	}
	r.port = freePort(t)
	r.start(t)
	t.Cleanup(r.kill)
	r.client = redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + r.port, DialTimeout: time.Second})
	t.Cleanup(func() { _ = r.client.Close() })
	relaytest.Eventually(t, "Redis answers", func() (bool, string) {
		err := r.client.Ping(t.Context()).Err()
		return err == nil, "it does not"
	})
	return r
}

func (r *redisServer) start(t testing.TB) {
	t.Helper()
	r.cmd = &exec.Cmd{Path: r.program, Args: []string{r.argv0, "--port", r.port, "--bind", "127.0.0.1", "--save", "", "--dir", r.dir, "--dbfilename", filepath.Base(r.dir) + ".rdb"}, SysProcAttr: diesWithParent()}
	r.cmd.Stderr = os.Stderr
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

func (r *redisServer) kill() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
}

// restore kills the server and has it begin with a dump from before what do did.
func (r *redisServer) restore(t *testing.T, do func()) {
	t.Helper()
	want := r.client.DBSize(t.Context()).Val() // at least: a consumer may be adding keys
	if err := r.client.Save(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	do()
	r.kill()
	r.start(t)
	relaytest.Eventually(t, "Redis has its dump", func() (bool, string) {
		n, err := r.client.DBSize(t.Context()).Result()
		return err == nil && n >= want && want > 0, fmt.Sprintf("%d keys of %d, %v", n, want, err)
	})
	if err := os.Remove(filepath.Join(r.dir, filepath.Base(r.dir)+".rdb")); err != nil {
		t.Fatal(err)
	}
}

// Redis is full of keys of events that nobody has handled, is flushed, frozen, killed and empty
// again, and begins with an old dump. The effects are those of a consumer without it.
func TestHints_OfARedisThatLies(t *testing.T) {
	t.Parallel()
	r := startRedis(t)
	s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 3)
	cfg := s.config()
	cfg.Hints, cfg.Parallel = redisHints{r.client}, 2
	// As another consumer with the same prefix leaves them, or a database that was restored.
	lie := func() {
		s.mu.Lock()
		var keys []inbox.Key
		for id := range s.ids {
			keys = append(keys, inbox.ByID(s.topic, id))
		}
		s.mu.Unlock()
		if err := (redisHints{r.client}).Add(t.Context(), keys); err != nil {
			t.Error(err)
		}
	}
	s.produce(t, 300, 20)
	lie()
	handled, duplicates := 0, 0
	rounds := make(chan kafkainbox.Round, 100_000)
	cfg.Events.Round = func(round kafkainbox.Round) { rounds <- round }
	m := s.start(t, cfg)
	s.awaitAll(t)
	for _, fault := range []func(){
		func() {},
		func() { _ = r.client.FlushAll(t.Context()).Err() },
		func() { _ = r.cmd.Process.Signal(syscall.SIGSTOP) },
		func() { _ = r.cmd.Process.Signal(syscall.SIGCONT) },
		func() { r.kill() },
		func() { r.start(t) },
	} {
		fault()
		s.produce(t, 100, 20)
		s.repeat(t, 300)
		s.awaitAll(t)
	}
	relaytest.Eventually(t, "Redis answers again", func() (bool, string) { return r.client.Ping(t.Context()).Err() == nil, "" })
	relaytest.Eventually(t, "the hints that failed are used again", func() (bool, string) {
		s.produce(t, 1, 20)
		n, err := r.client.DBSize(t.Context()).Result()
		return n > 0, fmt.Sprintf("%d keys, %v", n, err)
	})
	s.repeat(t, 500)
	r.restore(t, func() {
		s.produce(t, 100, 20)
		s.repeat(t, 200)
		s.awaitAll(t)
	})
	lie()
	s.produce(t, 100, 20)
	s.finish(t, m)
	for len(rounds) > 0 {
		round := <-rounds
		handled, duplicates = handled+round.Handled, duplicates+round.Duplicates
	}
	if handled != len(s.ids) || duplicates < 1000 {
		t.Errorf("%d handled, %d duplicates", handled, duplicates)
	}
	if n, err := r.client.DBSize(t.Context()).Result(); err != nil || n == 0 {
		t.Errorf("%d keys in Redis: it was told nothing (%v)", n, err)
	}
}
