package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func setting(t *testing.T, q postgres.Querier, name string) string {
	t.Helper()
	row, err := q.One("SELECT current_setting(" + postgres.QuoteLiteral(name) + ")")
	if err != nil {
		t.Fatal(err)
	}
	return row.Text(0)
}

func TestConnect_PinsWhatShapesAValue(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, `ALTER DATABASE `+db.Name+` SET DateStyle = 'SQL, DMY'`)
	db.Exec(t, `ALTER DATABASE `+db.Name+` SET IntervalStyle = 'iso_8601'`)
	db.Exec(t, `ALTER DATABASE `+db.Name+` SET bytea_output = 'escape'`)
	db.Exec(t, `ALTER DATABASE `+db.Name+` SET extra_float_digits = '-5'`)
	db.Exec(t, `ALTER DATABASE `+db.Name+` SET client_min_messages = 'error'`)
	db.Exec(t, `ALTER DATABASE `+db.Name+` SET quote_all_identifiers = on`)
	db.Exec(t, `ALTER DATABASE `+db.Name+` SET statement_timeout = '1ms'`)
	db.Exec(t, `ALTER DATABASE `+db.Name+` SET tcp_user_timeout = '5s'`)
	separator := "?"
	if strings.Contains(db.URL, "?") {
		separator = "&"
	}
	cfg := postgres.Config{
		URL:              db.URL + separator + "timezone=Asia/Tokyo&datestyle=German&CLIENT_ENCODING=LATIN1&replication=false&application_name=mine",
		WalSenderTimeout: 7 * time.Second,
	}
	for _, replication := range []bool{false, true} {
		q := postgres.Querier{Ctx: t.Context(), Conn: postgrestest.Open(t, cfg, replication)}
		row, err := q.One(`SELECT '2026-02-03 04:05:06+00'::timestamptz, '1 day 2 hours'::interval, '\x00ff'::bytea, 0.1::float8 + 0.2::float8, format_type('bytea'::regtype, NULL)`)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join([]string{row.Text(0), row.Text(1), row.Text(2), row.Text(3), row.Text(4)}, " | ")
		if want := `2026-02-03 04:05:06+00 | 1 day 02:00:00 | \x00ff | 0.30000000000000004 | bytea`; got != want {
			t.Errorf("replication %v: got  %s\nwant %s", replication, got, want)
		}
		for name, want := range map[string]string{
			"client_encoding": "UTF8", "TimeZone": "UTC", "client_min_messages": "warning",
			"wal_sender_timeout": "7s", "application_name": "mine", "search_path": "pg_catalog", "tcp_user_timeout": "0",
		} {
			if got := setting(t, q, name); got != want {
				t.Errorf("replication %v: %s is %q, want %q", replication, name, got, want)
			}
		}
	}
	cfg.ApplicationName = "configured"
	if got := setting(t, postgres.Querier{Ctx: t.Context(), Conn: postgrestest.Open(t, cfg, true)}, "application_name"); got != "configured" {
		t.Errorf("application_name is %q", got)
	}
}

func TestConnect_AsksThePasswordEachTime(t *testing.T) {
	t.Parallel()
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Password: "first"})
	asked, password := 0, "first"
	cfg := postgres.Config{URL: db.URL, Password: func(context.Context) (string, error) { asked++; return password, nil }}
	postgrestest.Open(t, cfg, true)
	db.Exec(t, `ALTER ROLE postgres PASSWORD 'hush-hush'`)
	_, err := postgres.Connect(t.Context(), cfg, true)
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonAuth, `as "postgres"`, "28P01")
	password = "hush-hush"
	postgrestest.Open(t, cfg, true)
	if asked != 3 {
		t.Errorf("asked %d times for 3 connects", asked)
	}
	cfg.Password = func(context.Context) (string, error) { return "", errors.New("read /run/secrets/pg: no such file") }
	_, err = postgres.Connect(t.Context(), cfg, true)
	postgrestest.WantError(t, err, fault.KindRetry, fault.ReasonAuth, "/run/secrets/pg")

	cfg = postgres.Config{URL: postgrestest.WithUser(t, db.URL, "postgres:hush-hush-not")}
	_, err = postgres.Connect(t.Context(), cfg, true)
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonAuth)
	if text := fmt.Sprintf("%v %+v %#v", err, err, errors.Unwrap(err)); strings.Contains(text, "hush") {
		t.Errorf("the password is in %s", text)
	}
}

// deadAddr has nobody who listens. A port that is free now could be somebody's soon.
const deadAddr = "127.0.0.1:1"

// A port that takes connections and stays silent may be anything.
func TestConnect_AsksWhetherWhatIsSilentIsPostgreSQL(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() // the kernel takes the connection
	_, err = postgres.Connect(t.Context(), postgres.Config{URL: "postgres://u@" + listener.Addr().String() + "/d?sslmode=disable&connect_timeout=1"}, true)
	postgrestest.WantError(t, err, fault.KindRetry, fault.ReasonTimeout, listener.Addr().String(), "the server did not answer within 1s", "is PostgreSQL at this address?", "correct postgres.url")
}

// withoutTLS is a server that refuses TLS and says no more. Its refusal is read by a client whose ctx is over by
// then, as by a process that was stopped for a while.
type withoutTLS struct {
	net.Conn
	over func()
}

func (c withoutTLS) Read(into []byte) (int, error) {
	c.over()
	into[0] = 'N'
	return 1, nil
}

// late is a context whose deadline comes when over is closed, and not earlier on a busy machine.
type late struct {
	context.Context
	over chan struct{}
}

func (c late) Done() <-chan struct{} { return c.over }

func (c late) Err() error {
	select {
	case <-c.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// What ended the attempt is the cause, and not what was read of the server before.
func TestConnect_NamesWhatEndedItAndNotWhatWasLeftOfTheExchange(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	cfg := postgres.Config{URL: "postgres://u@" + listener.Addr().String() + "/d"}
	lost := &fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonNetwork, Op: "keep the lock", Err: errors.New("its session is lost")}
	for name, c := range map[string]struct {
		ctx    func() (ctx context.Context, over func())
		reason string
		texts  []string
	}{
		"a deadline": {func() (context.Context, func()) {
			ctx := late{context.Background(), make(chan struct{})}
			return ctx, sync.OnceFunc(func() { close(ctx.over) })
		}, fault.ReasonTimeout, []string{"the server did not answer in time", "look at the server"}},
		"a lock that is lost": {func() (context.Context, func()) {
			ctx, cancel := context.WithCancelCause(t.Context())
			return ctx, func() { cancel(lost) }
		}, fault.ReasonNetwork, []string{"keep the lock: its session is lost"}},
		"a signal": {func() (context.Context, func()) {
			ctx, cancel := context.WithCancel(t.Context())
			return ctx, cancel
		}, fault.ReasonCancelled, []string{"context canceled"}},
	} {
		ctx, over := c.ctx()
		_, err := postgres.ConnectThrough(ctx, cfg, false, func(dial pgconn.DialFunc) pgconn.DialFunc {
			return func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := dial(ctx, network, addr)
				return withoutTLS{conn, over}, err
			}
		})
		postgrestest.WantError(t, err, fault.KindRetry, c.reason, append(c.texts, "connect to PostgreSQL at "+listener.Addr().String())...)
		if err != nil && strings.Contains(err.Error(), "TLS") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A context that is over before the dial is no word of the network.
func TestConnect_NamesWhatEndedItBeforeTheDial(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the lock is lost"))
	_, err := postgres.Connect(ctx, postgres.Config{URL: "postgres://u@" + deadAddr + "/d"}, false)
	if err == nil || !strings.Contains(err.Error(), "the lock is lost") || strings.Contains(err.Error(), "canceled") {
		t.Errorf("%v", err)
	}
}

func TestConnect_Refusals(t *testing.T) {
	db := harness.Postgres(t)
	role := postgrestest.NewRole(t, db, "LOGIN")

	_, err := postgres.Connect(t.Context(), postgres.Config{URL: postgrestest.WithUser(t, db.URL, role)}, true)
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonPermission, "42501", `ALTER ROLE "`+role+`" REPLICATION`)
	if _, err := postgres.Connect(t.Context(), postgres.Config{URL: postgrestest.WithUser(t, db.URL, role)}, false); err != nil {
		t.Errorf("an ordinary session needs no right: %v", err)
	}
	db.Exec(t, `REVOKE CONNECT ON DATABASE `+db.Name+` FROM PUBLIC`)
	_, err = postgres.Connect(t.Context(), postgres.Config{URL: postgrestest.WithUser(t, db.URL, role)}, false)
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonPermission, `GRANT CONNECT ON DATABASE "`+db.Name+`" TO "`+role+`"`)
	_, err = postgres.Connect(t.Context(), postgres.Config{URL: "postgres://u@no.such.host.invalid/d"}, true)
	postgrestest.WantError(t, err, fault.KindRetry, postgres.Reason(err), "no.such.host.invalid")
	_, err = postgres.Connect(t.Context(), postgres.Config{URL: db.Server.URL("no_such_database")}, true)
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonDatabaseMissing, `"no_such_database"`, "3D000")

	_, err = postgres.Connect(t.Context(), postgres.Config{URL: "postgres://u@" + deadAddr + "/d"}, true)
	postgrestest.WantError(t, err, fault.KindRetry, fault.ReasonNetwork, deadAddr, `as "u" to database "d"`, "connection refused")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := postgres.Connect(ctx, postgres.Config{URL: db.URL}, true); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestConnect_FindsThePrimaryAmongHosts(t *testing.T) {
	t.Parallel()
	primary := harness.Postgres(t)
	// A server with this file recovers for ever: a standby without a primary.
	standby := harness.OwnPostgres(t, sandbox.PostgresOptions{})
	if err := standby.Server.Stop(t.Context(), sandbox.Fast); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(standby.Server.Dir(), "data", "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := standby.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Server.Stop(context.Background(), sandbox.Fast); err != nil {
			t.Error(err)
		}
	})
	hosts := func(params string, addrs ...string) postgres.Config {
		return postgres.Config{URL: "postgres://postgres@" + strings.Join(addrs, ",") + "/postgres?sslmode=disable" + params}
	}
	conn := postgrestest.Open(t, hosts("", deadAddr, standby.Server.Addr(), primary.Server.Addr()), false)
	if got := postgres.RemoteAddr(conn); got != primary.Server.Addr() {
		t.Errorf("connected to %s, not to the primary %s", got, primary.Server.Addr())
	}
	conn = postgrestest.Open(t, hosts("&target_session_attrs=standby", primary.Server.Addr(), standby.Server.Addr()), false)
	if got := postgres.RemoteAddr(conn); got != standby.Server.Addr() {
		t.Errorf("target_session_attrs is not honoured: connected to %s", got)
	}
	_, err := postgres.Connect(t.Context(), hosts("", standby.Server.Addr()), true)
	const says = `to database "postgres": the server is a standby (in recovery); name the primary in postgres.url, or all hosts`
	postgrestest.WantError(t, err, fault.KindRetry, fault.ReasonInRecovery, standby.Server.Addr(), says)
	_, err = postgres.Connect(t.Context(), hosts("&target_session_attrs=read-write", standby.Server.Addr()), true)
	postgrestest.WantError(t, err, fault.KindRetry, fault.ReasonInRecovery, `to database "postgres": the server takes no writes`)
	_, err = postgres.Connect(t.Context(), hosts("", deadAddr, standby.Server.Addr()), true)
	postgrestest.WantError(t, err, fault.KindRetry, fault.ReasonInRecovery, deadAddr, standby.Server.Addr(), says)

	cfg := hosts("&target_session_attrs=standby", standby.Server.Addr())
	cfg.Slot, cfg.Publication, cfg.Tables = "s", "p", []wal.Table{{Schema: "public", Name: "outbox"}}
	_, err = catalog.Inspect(t.Context(), postgrestest.Open(t, cfg, true), cfg)
	postgrestest.WantError(t, err, fault.KindRetry, fault.ReasonInRecovery, "the server is a standby (in recovery); name the primary in postgres.url")
}

func TestConnect_ChecksTheServersCertificate(t *testing.T) {
	t.Parallel()
	cert, key := postgrestest.Certificate(t, "127.0.0.1")
	other, _ := postgrestest.Certificate(t, "127.0.0.1")
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{CertFile: cert, KeyFile: key})
	dsn := func(host, params string) postgres.Config {
		_, port, _ := net.SplitHostPort(db.Server.Addr())
		return postgres.Config{URL: fmt.Sprintf("host=%s port=%s user=postgres dbname=postgres %s", host, port, params)}
	}
	encrypted := func(cfg postgres.Config) bool {
		t.Helper()
		row, err := postgres.Querier{Ctx: t.Context(), Conn: postgrestest.Open(t, cfg, true)}.One(`SELECT ssl FROM pg_catalog.pg_stat_ssl WHERE pid = pg_catalog.pg_backend_pid()`)
		if err != nil {
			t.Fatal(err)
		}
		return row.Bool(0)
	}
	if !encrypted(dsn("127.0.0.1", "sslmode=verify-full sslrootcert="+cert)) || !encrypted(dsn("127.0.0.1", "")) {
		t.Error("the connection is not encrypted although the server offers it")
	}
	_, err := postgres.Connect(t.Context(), dsn("127.0.0.1", "sslmode=verify-full sslrootcert="+other), true)
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonTLS, "certificate", "name the authority that signed", "sslrootcert")
	_, err = postgres.Connect(t.Context(), dsn("localhost", "sslmode=verify-full sslrootcert="+cert), true)
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonTLS, "localhost", "connect by a name in the server's certificate")
	if strings.Contains(err.Error(), "sslrootcert") {
		t.Errorf("the authority is known: %v", err)
	}
	_, err = postgres.Connect(t.Context(), dsn("127.0.0.1", "sslmode=verify-full sslrootcert="+key), true)
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonConfiguration, "CA", "in PEM form")

	// 0.0.0.0 reaches this machine and is no loopback address by its number.
	_, err = postgres.Connect(t.Context(), dsn("0.0.0.0", "sslrootcert="+cert), true)
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonTLS, "0.0.0.0")

	plain := harness.Postgres(t)
	_, err = postgres.Connect(t.Context(), postgres.Config{URL: "postgres://postgres@" + plain.Server.Addr() + "/postgres?sslmode=require"}, true)
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonTLS, "server refused TLS", "sslmode=disable")
}

// A question of another protocol is a FATAL line in the server's log, and one more process.
func TestConnect_AsksAServerWithoutTLSNothingElse(t *testing.T) {
	got := make(chan string, 10)
	at := serve(t, "127.0.0.1:0", func(conn net.Conn) {
		backend := pgproto3.NewBackend(conn, conn)
		message, err := backend.ReceiveStartupMessage()
		switch message.(type) {
		case *pgproto3.SSLRequest:
			got <- "TLS"
			_, _ = conn.Write([]byte("N"))
		case *pgproto3.StartupMessage:
			got <- "startup"
			backend.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "28P01", Message: "password authentication failed"})
			_ = backend.Flush()
		default:
			got <- fmt.Sprintf("%T, %v", message, err)
		}
	})
	_, err := postgres.Connect(t.Context(), postgres.Config{URL: "postgres://u:hush@" + at.String() + "/d?sslmode=prefer"}, false)
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonAuth)
	for _, want := range []string{"TLS", "startup"} {
		if message := <-got; message != want {
			t.Errorf("the server got %s, want %s", message, want)
		}
	}
	select {
	case message := <-got:
		t.Errorf("the server got %s as well", message)
	default:
	}
}

// serve gives each connection to handle, and closes it.
func serve(t *testing.T, address string, handle func(net.Conn)) *net.TCPAddr {
	t.Helper()
	listener, err := net.Listen("tcp4", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			handle(conn)
			conn.Close()
		}
	}()
	return listener.Addr().(*net.TCPAddr)
}

// askCleartext is a server that wants the password in clear text, and tells
// whether one came.
func askCleartext(t *testing.T) (port int, got chan string) {
	t.Helper()
	got = make(chan string, 10)
	at := serve(t, "0.0.0.0:0", func(conn net.Conn) {
		backend := pgproto3.NewBackend(conn, conn)
		if _, err := backend.ReceiveStartupMessage(); err != nil {
			return
		}
		backend.Send(&pgproto3.AuthenticationCleartextPassword{})
		_ = backend.SetAuthType(pgproto3.AuthTypeCleartextPassword)
		if backend.Flush() != nil {
			return
		}
		message, _ := backend.Receive()
		if password, ok := message.(*pgproto3.PasswordMessage); ok {
			got <- password.Password
		} else {
			got <- ""
		}
	})
	return at.Port, got
}

func TestConnect_KeepsTheCleartextPasswordFromTheNetwork(t *testing.T) {
	port, got := askCleartext(t)
	try := func(host, params string, insecure bool) (string, error) {
		t.Helper()
		cfg := postgres.Config{URL: fmt.Sprintf("host=%s port=%d user=u password=hush sslmode=disable %s", host, port, params), Insecure: insecure}
		_, err := postgres.Connect(t.Context(), cfg, true)
		if err == nil || strings.Contains(err.Error(), "hush") {
			t.Fatalf("error: %v", err)
		}
		return <-got, err
	}
	for _, params := range []string{"", "require_auth=password", "require_auth=password,md5", "require_auth=!md5"} {
		password, err := try("0.0.0.0", params, false)
		if password != "" {
			t.Errorf("%q: the password went over the network in clear text", params)
		}
		if params == "" {
			postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonInsecure, "0.0.0.0", "clear text", "insecure")
		}
	}
	if password, _ := try("0.0.0.0", "", true); password != "hush" {
		t.Error("insecure does not permit it")
	}
	if password, _ := try("127.0.0.1", "", false); password != "hush" {
		t.Error("loopback does not permit it")
	}
}
