package sandbox_test

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func start(t *testing.T, options sandbox.PostgresOptions) *sandbox.Postgres {
	t.Helper()
	harness.NeedsServer(t, "PostgreSQL")
	options.Log = testWriter{t}
	server, err := sandbox.StartPostgres(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(server.Dir()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("Close left %s behind: %v", server.Dir(), err)
		}
	})
	return server
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	if testing.Verbose() {
		os.Stderr.Write(p)
	}
	return len(p), nil
}

func query[T any](t *testing.T, server *sandbox.Postgres, sql string) T {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var value T
	if err := conn.QueryRow(t.Context(), sql).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

func TestPostgres_HasLogicalWAL(t *testing.T) {
	server := start(t, sandbox.PostgresOptions{})
	if got := query[string](t, server, "SHOW wal_level"); got != "logical" {
		t.Errorf("wal_level = %s", got)
	}
	slot := query[string](t, server, "SELECT slot_name FROM pg_create_logical_replication_slot('probe', 'pgoutput')")
	if slot != "probe" {
		t.Errorf("slot = %s", slot)
	}
}

func TestPostgres_KeepsCommittedRowsOverRestartAndKill(t *testing.T) {
	server := start(t, sandbox.PostgresOptions{})
	query[int](t, server, "WITH made AS (SELECT 1) SELECT count(*) FROM made")
	conn, err := pgx.Connect(t.Context(), server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "CREATE TABLE kept AS SELECT generate_series(1, 1000) AS id"); err != nil {
		t.Fatal(err)
	}
	conn.Close(t.Context())

	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := pgx.Connect(t.Context(), server.URL("postgres")); err == nil {
		t.Fatal("the killed server still answers")
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(t.Context(), sandbox.Fast); err != nil {
		t.Fatal(err)
	}
	if got := query[int](t, server, "SELECT count(*) FROM kept"); got != 1000 {
		t.Errorf("rows after kill and restart = %d, want 1000", got)
	}
}

func TestPostgres_PausedServerDoesNotAnswer(t *testing.T) {
	server := start(t, sandbox.PostgresOptions{})
	conn, err := pgx.Connect(t.Context(), server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := conn.Ping(ctx); err == nil {
		t.Error("the paused server answered")
	}
	server.Continue()
	if got := query[int](t, server, "SELECT 1"); got != 1 {
		t.Errorf("after Continue: %d", got)
	}
}

func TestPostgres_DemandsPassword(t *testing.T) {
	server := start(t, sandbox.PostgresOptions{Password: "sesame"})
	if got := query[string](t, server, "SHOW password_encryption"); got != "scram-sha-256" {
		t.Errorf("password_encryption = %s", got)
	}
	if _, err := pgx.Connect(t.Context(), "postgres://postgres:wrong@"+server.Addr()+"/postgres"); err == nil {
		t.Error("a wrong password was let in")
	}
}

func TestPostgres_ServerDoesNotRunAsRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		harness.Forbidden(t, "drop root's rights", os.ErrPermission, "run it as root")
	}
	server := start(t, sandbox.PostgresOptions{})
	info, err := os.Stat(server.Dir())
	if err != nil {
		t.Fatal(err)
	}
	if uid := info.Sys().(*syscall.Stat_t).Uid; uid == 0 {
		t.Error("the data directory belongs to root")
	}
}
