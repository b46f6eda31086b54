package postgres_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// The server ends a session some time after the connection is closed, and frees its locks only then. The
// next command must not find them held.
func TestEndSession_ReturnsOnceTheLocksAreFree(t *testing.T) {
	t.Parallel()
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{})
	conn, err := postgres.Connect(t.Context(), postgres.Config{URL: db.URL}, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "SELECT pg_advisory_lock(1)").ReadAll(); err != nil {
		t.Fatal(err)
	}
	server := int(conn.PID())
	if err := syscall.Kill(server, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ended, began := make(chan struct{}), time.Now()
	go func() {
		defer close(ended)
		postgres.EndSession(conn)
	}()
	select {
	case <-ended:
		if time.Since(began) < 2*time.Second { // it does not wait for ever
			t.Error("it returned while the server had not heard of it")
		}
	case <-time.After(200 * time.Millisecond):
	}
	if err := syscall.Kill(server, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	<-ended
	if n := harness.Query[int](t, db, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"); n != 0 && time.Since(began) < 2*time.Second {
		t.Errorf("%d locks are held", n)
	}
	postgres.EndSession(conn) // again: nothing happens
}
