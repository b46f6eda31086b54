package harness

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// idle are connections that Exec and Query gave back. A test that waits asks every 20 ms,
// and opening a connection for each question would be most of what the machine does.
var idle = struct {
	mu    sync.Mutex
	conns map[string][]*pgx.Conn // by URL
}{conns: map[string][]*pgx.Conn{}}

// borrow takes an idle connection that is still alive, else opens one.
func borrow(ctx context.Context, url string) (conn *pgx.Conn, giveBack func(), err error) {
	giveBack = func() {
		if conn.IsClosed() || conn.PgConn().TxStatus() != 'I' { // or left inside a transaction
			conn.Close(context.WithoutCancel(ctx))
			return
		}
		idle.mu.Lock()
		defer idle.mu.Unlock()
		idle.conns[url] = append(idle.conns[url], conn)
	}
	for conn = takeIdle(url); conn != nil; conn = takeIdle(url) {
		if conn.Ping(ctx) == nil {
			return conn, giveBack, nil
		}
		conn.Close(ctx) // of a server that was stopped meanwhile
	}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, nil, err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeDescribeExec // no plan outlives a change of the table
	conn, err = pgx.ConnectConfig(ctx, config)
	return conn, giveBack, err
}

func takeIdle(url string) *pgx.Conn {
	idle.mu.Lock()
	defer idle.mu.Unlock()
	conns := idle.conns[url]
	if len(conns) == 0 {
		return nil
	}
	last := len(conns) - 1
	idle.conns[url] = conns[:last]
	return conns[last]
}

// closeIdle closes the connections to a database, by whatever address.
func closeIdle(ctx context.Context, database string) {
	idle.mu.Lock()
	var gone []*pgx.Conn
	for url, conns := range idle.conns {
		if len(conns) == 0 || conns[0].Config().Database == database {
			gone = append(gone, conns...)
			delete(idle.conns, url)
		}
	}
	idle.mu.Unlock()
	for _, conn := range gone {
		conn.Close(ctx)
	}
}

// Exec runs statements in a session that other tests may have used and will use: they
// are not to change its settings.
func (db *Database) Exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	conn, giveBack, err := borrow(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer giveBack()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", firstLine(sql), err)
	}
}

// Query returns the one value of a query.
func Query[T any](t testing.TB, db *Database, sql string, args ...any) T {
	t.Helper()
	conn, giveBack, err := borrow(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer giveBack()
	var value T
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", firstLine(sql), err)
	}
	return value
}
