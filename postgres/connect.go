package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/peer"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

const (
	connectTimeout         = 10 * time.Second
	defaultApplicationName = "cdc-relay"

	hintNoPassword = "set postgres.password_file (or postgres.password, the URL's password, PGPASSWORD, ~/.pgpass)"
	hintPassword   = "no server was asked: run postgres.password_command by hand as the relay's user, or look at postgres.password_file"
	hintSilent     = "is PostgreSQL at this address? Something accepted the connection and does not answer: correct postgres.url, or look at the server"
	hintOther      = "PostgreSQL is expected there: correct host and port in postgres.url"
	hintToken      = "the server was not asked: give the relay's host credentials that may sign in to the database"
)

// Connect opens one session on the first server of cfg.URL that accepts it. With
// replication it is a walsender bound to the database, which takes replication
// commands and simple-protocol SQL; without, an ordinary session. The caller
// closes it. A URL without target_session_attrs gets a server that is not in
// recovery.
func Connect(ctx context.Context, cfg Config, replication bool) (*pgconn.PgConn, error) {
	return ConnectThrough(ctx, cfg, replication, nil)
}

// ConnectThrough is Connect with a dialer that wrap, if any, makes of the usual one.
func ConnectThrough(ctx context.Context, cfg Config, replication bool, wrap func(pgconn.DialFunc) pgconn.DialFunc) (*pgconn.PgConn, error) {
	d, err := parseDSN(cfg.URL)
	if err != nil {
		return nil, err
	}
	if cfg.Password != nil {
		password, err := cfg.Password(ctx)
		if err != nil {
			return nil, &fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonAuth, Op: "obtain the PostgreSQL password", Err: err, Hint: hintPassword}
		}
		d.config.Password = password
	}
	d.config.RuntimeParams = sessionParams(cfg, d.config.RuntimeParams, replication)
	if d.config.ValidateConnect == nil {
		d.config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	}
	if d.config.ConnectTimeout == 0 {
		d.config.ConnectTimeout = connectTimeout
	}
	// Probes after 10 s of silence, dead 15 s later: a half-open connection is
	// noticed even while we only wait for the server.
	dialer := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}}
	d.config.DialFunc = dialer.DialContext
	if replication {
		d.config.DialFunc = impatient(dialer.DialContext, cfg.SenderTimeout())
	}
	if wrap != nil {
		d.config.DialFunc = wrap(d.config.DialFunc)
	}

	var failures []failure
	other := "" // address at which something else than PostgreSQL answers
	for _, t := range d.targets {
		if t.addr() == other {
			continue // it would in every way
		}
		conn, err := connectOne(ctx, cfg, d.config, t, replication)
		if err == nil {
			return conn, nil
		}
		if t.first {
			failures = append(failures, failure{})
		}
		f := &failures[len(failures)-1]
		f.add(endedBy(ctx, err))
		if e, ok := errors.AsType[*fault.Error](err); ok && e.Hint == hintOther {
			other = t.addr()
		}
		if ctx.Err() != nil || f.final {
			break
		}
	}
	return nil, mostHopeful(failures)
}

// endedBy is the error of an attempt whose ctx is over by now. Unless a server gave an answer of its own,
// that is the cause: a process that was stopped for a while finds the first half of an exchange, such as a server that
// does without TLS, and no time for the second.
func endedBy(ctx context.Context, err error) error {
	e, ok := errors.AsType[*fault.Error](err)
	cause := context.Cause(ctx)
	switch {
	case cause == nil || !ok || e.Hint == hintOther || answered(err):
		return err
	case errors.Is(cause, context.DeadlineExceeded) && e.Reason == fault.ReasonTimeout: // names the limit
		return err
	case errors.Is(cause, context.DeadlineExceeded):
		return &fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonTimeout, Op: e.Op, Err: fmt.Errorf("the server did not answer in time: %w", cause), Hint: hintSilent}
	}
	return &fault.Error{Kind: KindOf(cause), Reason: Reason(cause), Op: e.Op, Err: cause}
}

// timeLimit is how long a connect may take.
func timeLimit(ctx context.Context, config *pgconn.Config) time.Duration {
	limit := config.ConnectTimeout
	if end, ok := ctx.Deadline(); ok {
		limit = max(0, min(limit, time.Until(end)))
	}
	if limit < time.Second {
		return limit.Round(time.Millisecond)
	}
	return limit.Round(time.Second)
}

// impatient makes dial give connections that end when the server, which frees the slot
// after senderTimeout, acknowledges nothing for two thirds of it: the relay has to know
// first. A status is due every quarter of it at most, so the first that is lost leaves
// the server a twelfth longer than us.
func impatient(dial pgconn.DialFunc, senderTimeout time.Duration) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if err := limitSilence(conn, senderTimeout*2/3); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return conn, nil
	}
}

// connectOne tries one server in one way. One attempt has one pgconn.Config, so
// that what the way permits (the cleartext password) is decided for it alone.
func connectOne(ctx context.Context, cfg Config, base *pgconn.Config, t target, replication bool) (*pgconn.PgConn, error) {
	config := base.Copy()
	config.Host, config.Port, config.TLSConfig, config.Fallbacks = t.Host, t.Port, t.TLSConfig, nil
	if cfg.Token != nil {
		token, err := cfg.Token(ctx, t.addr(), config.User)
		if err != nil {
			return nil, &fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonAuth, Op: "get a token for PostgreSQL at " + t.addr(), Err: err, Hint: hintToken}
		}
		config.Password = token
	}
	guarded := t.TLSConfig == nil && !t.local() && !cfg.Insecure
	if guarded {
		config.RequireAuth = withoutCleartext(config.RequireAuth)
	}
	limit := timeLimit(ctx, config)
	conn, other, err := open(ctx, config, t)
	if err == nil {
		return conn, nil
	}
	op := fmt.Sprintf("connect to PostgreSQL at %s as %q to database %q", t.addr(), config.User, config.Database)
	if other != "" {
		return nil, &fault.Error{Kind: fault.KindRefused, Reason: fault.ReasonProtocol, Op: op, Err: errors.New(other), Hint: hintOther}
	}
	cause := connectCause(err)
	if guarded && base.RequireAuth == "" && strings.Contains(err.Error(), "require_auth check failed") {
		return nil, &fault.Error{
			Kind: fault.KindRefused, Reason: fault.ReasonInsecure, Op: op,
			Err:  errors.New("the server asks for the password in clear text and the connection is not encrypted"),
			Hint: "use sslmode=verify-full or scram-sha-256; postgres.insecure permits it on a trusted network",
		}
	}
	return nil, connectError(op, cause, config, limit, replication)
}

var errStandby = errors.New("the server is a standby (in recovery)")

// connectError is what a failed attempt means, with what to do about it. limit is how long the attempt
// could take.
func connectError(op string, cause error, config *pgconn.Config, limit time.Duration, replication bool) error {
	classified := Classify(op, cause)
	var e *fault.Error
	if errors.As(classified, &e) && e.Reason == fault.ReasonTimeout && !answered(cause) {
		e.Err = fmt.Errorf("the server did not answer within %s: %w", limit, e.Err)
		e.Hint = cmp.Or(e.Hint, hintSilent) // where the dial went through: its timeout has a hint
	}
	switch { // the driver's text names its own function, ValidateConnect
	case e == nil || e.Reason != fault.ReasonInRecovery:
	case errors.Is(cause, pgconn.ErrStandbyConnection):
		e.Err = errStandby
	case errors.Is(cause, pgconn.ErrReadOnlyConnection):
		e.Err = errors.New("the server takes no writes: it is a standby (in recovery), or default_transaction_read_only is on")
	}
	var pg *pgconn.PgError
	errors.As(cause, &pg)
	if e != nil && config.Password == "" && pg != nil && pg.Code == "28P01" {
		e.Err, e.Hint = fmt.Errorf("no password was given, and the server asks for one: %w", e.Err), hintNoPassword
	}
	if e == nil || e.Reason != fault.ReasonPermission {
		return classified
	}
	switch {
	case pg != nil && pg.Routine == "CheckMyDatabase":
		e.Hint = fmt.Sprintf("run: GRANT CONNECT ON DATABASE %s TO %s", wal.QuoteIdentifier(config.Database), wal.QuoteIdentifier(config.User))
	case replication:
		e.Hint = fmt.Sprintf("run as a superuser: ALTER ROLE %s REPLICATION (Amazon RDS: GRANT rds_replication TO %s)",
			wal.QuoteIdentifier(config.User), wal.QuoteIdentifier(config.User))
	}
	return classified
}

// open connects. Where it fails and something other than PostgreSQL answers, other names it.
func open(ctx context.Context, config *pgconn.Config, t target) (conn *pgconn.PgConn, other string, err error) {
	connect := func(ctx context.Context) (err error) {
		conn, err = pgconn.ConnectConfig(ctx, config)
		return err
	}
	if strings.HasPrefix(t.Host, "/") {
		err = connect(ctx)
		return conn, "", err
	}
	other, err = peer.While(ctx, []string{t.addr()}, "", connect)
	strange := err != nil && ctx.Err() == nil && !answered(err) && !unreached(err)
	// A server without TLS is tried without it next. The question would be a line in the log of PostgreSQL.
	if strange && other == "" && t.last {
		if what := peer.Identify(ctx, t.addr()); what != "" {
			other = what + " answers at " + t.addr()
		}
	}
	return conn, other, err
}

// unreached reports whether no connection was made at all, or one that stayed silent, of
// which peer.While has asked already.
func unreached(err error) bool {
	op, network := errors.AsType[*net.OpError](err)
	_, unknown := errors.AsType[*net.DNSError](err)
	return unknown || network && op.Op == "dial" || errors.Is(err, context.DeadlineExceeded)
}

// answered reports whether the error is a server's own.
func answered(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg)
}

// withoutCleartext forbids the cleartext method in a require_auth list.
func withoutCleartext(list string) string {
	switch {
	case list == "":
		return "!password"
	case strings.HasPrefix(strings.TrimSpace(list), "!"):
		if strings.Contains(list, "!password") {
			return list
		}
		return list + ",!password"
	}
	var kept []string
	for method := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(method) != "password" {
			kept = append(kept, method)
		}
	}
	if len(kept) == 0 {
		return "!password"
	}
	return strings.Join(kept, ",")
}

// connectCause strips what pgconn puts around the cause: its ConnectError holds
// the configuration with the password, and our own text names host and user.
func connectCause(err error) error {
	var outer *pgconn.ConnectError
	if !errors.As(err, &outer) {
		return err
	}
	attempts := []error{outer.Unwrap()}
	if joined, ok := attempts[0].(interface{ Unwrap() []error }); ok {
		attempts = joined.Unwrap() // one for each address of the host
	}
	seen := make(map[string]bool)
	var causes []error
	for _, attempt := range attempts {
		if inner := errors.Unwrap(attempt); inner != nil {
			attempt = inner
		}
		if !seen[attempt.Error()] {
			seen[attempt.Error()] = true
			causes = append(causes, attempt)
		}
	}
	if len(causes) == 1 {
		return causes[0]
	}
	return errors.Join(causes...)
}

// failure is what one host answered over all ways of reaching it.
type failure struct {
	err      error
	answered bool // err is the server's own
	final    bool // other hosts would say the same
}

// add keeps the most telling error: what the server itself said, else the last.
func (f *failure) add(err error) {
	var pg *pgconn.PgError
	answered := errors.As(err, &pg)
	if answered {
		switch pg.Code {
		case "28P01", "3D000", "42501":
			f.final = true
		}
	}
	if answered || !f.answered {
		f.err, f.answered = err, answered
	}
}

// mostHopeful picks the error that decides: a host that may yet come up keeps us
// trying, whatever the others refuse.
func mostHopeful(failures []failure) error {
	if len(failures) == 0 {
		return &fault.Error{Kind: fault.KindRefused, Reason: fault.ReasonConfiguration, Op: "connect to PostgreSQL", Err: errors.New("the URL allows no connection to any host"), Hint: "check its hosts and its sslmode"}
	}
	last := failures[len(failures)-1]
	if len(failures) == 1 || last.final {
		return last.err
	}
	decisive := last.err
	var texts []string
	for _, f := range failures {
		texts = append(texts, f.err.Error())
		if KindOf(f.err) == fault.KindRetry && KindOf(decisive) != fault.KindRetry {
			decisive = f.err
		}
	}
	return &fault.Error{Kind: KindOf(decisive), Reason: Reason(decisive), Op: "connect to PostgreSQL", Err: errors.New(strings.Join(texts, "; "))}
}

// sessionParams are the startup parameters: the user's own, overruled by those
// that decide how a value is written. They are in force from the first byte on,
// and a database's or role's defaults cannot change them.
func sessionParams(cfg Config, given map[string]string, replication bool) map[string]string {
	pinned := map[string]string{
		"client_encoding":             "UTF8",
		"DateStyle":                   "ISO",
		"IntervalStyle":               "postgres",
		"TimeZone":                    "UTC",
		"extra_float_digits":          "3",
		"bytea_output":                "hex",
		"search_path":                 "pg_catalog",
		"standard_conforming_strings": "on",
		"quote_all_identifiers":       "off", // or a type is named "bytea", with its quotes

		// From 18 on, the only sign of a missing publication is a warning.
		"client_min_messages": "warning",

		// The server notices our death, and frees the slot, within these. Off is
		// tcp_user_timeout, though it looks like one more of them: Linux counts a
		// full receive buffer as silence, so it would end a healthy connection
		// whose rows wait for Kafka. Our own end has it (impatient).
		"wal_sender_timeout":      strconv.FormatInt(cfg.SenderTimeout().Milliseconds(), 10),
		"tcp_keepalives_idle":     "10",
		"tcp_keepalives_interval": "5",
		"tcp_keepalives_count":    "3",
		"tcp_user_timeout":        "0",

		// Defaults of a role that would end a session which is meant to wait.
		"statement_timeout":                   "0",
		"lock_timeout":                        "0",
		"idle_session_timeout":                "0",
		"idle_in_transaction_session_timeout": "0",
	}
	application := cfg.ApplicationName
	params := make(map[string]string, len(given)+len(pinned)+2)
	for name, value := range given {
		switch {
		case strings.EqualFold(name, "replication"):
		case strings.EqualFold(name, "application_name"):
			if application == "" {
				application = value
			}
		default:
			params[name] = value
		}
	}
	if application == "" {
		application = defaultApplicationName
	}
	// Parameter names fold case at the server, where the last one wins; in a map
	// TimeZone beside the user's timezone would win by chance.
	for name := range params {
		for pin := range pinned {
			if strings.EqualFold(name, pin) {
				delete(params, name)
			}
		}
	}
	for name, value := range pinned {
		params[name] = value
	}
	params["application_name"] = application
	if replication {
		params["replication"] = "database"
	}
	return params
}

// CloseQuietly closes a connection whose end nobody waits for.
func CloseQuietly(conn *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // the server drops its end in any case
}

// endPatience bounds the wait for a server that does not answer.
const endPatience = 3 * time.Second

// EndSession closes a connection, and returns once the server has ended the session and freed its locks: the
// next command can take them at once. It does not wait where the connection is closed already.
func EndSession(conn *pgconn.PgConn) {
	hijacked, err := conn.Hijack()
	if err != nil { // closed, or in the middle of a statement
		CloseQuietly(conn)
		return
	}
	defer func() { _ = hijacked.Conn.Close() }()
	_ = hijacked.Conn.SetDeadline(time.Now().Add(endPatience)) // fails where it is closed
	hijacked.Frontend.Send(&pgproto3.Terminate{})
	if hijacked.Frontend.Flush() == nil {
		_, _ = io.Copy(io.Discard, hijacked.Conn) // the server closes its end behind the locks
	}
}
