package kafkainbox

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A record may end its connection to the database each time: its statement takes all memory of the
// server's process, or runs into a limit that closes the connection. A server or a network that
// goes down leaves the same error, and is no record's fault. What tells the two apart is a second
// connection, the probe, which does nothing. It is opened before the attempt, and first has to stay for
// twice as long as the last attempt took, which a server that goes down all the time does not let it;
// for a minute at most, because a dead network is noticed late.
// The attempt counts if the probe answers behind it. It also counts if the probe has the server's
// notice that another process crashed and the attempt's own connection has none: its process crashed.
// The crash of a parallel worker leaves all connections the same notice, without its process id, as that
// of another client does. So an attempt beside a probe has no parallel workers, and crashes on its own.
const (
	watchLosses = 3           // from so many losses on a round's records are handled alone, and watched
	lossGrace   = time.Second // after which an outage has taken the probe, too
	aheadLimit  = time.Minute // of the probe, before the attempt
)

// lostError is an attempt whose connection is gone. Alone it is nobody's fault.
type lostError struct{ err error }

func (e *lostError) Error() string { return "the connection is lost: " + describe(e.err) }

// ofConnection takes the blame from a handler whose connection is gone, unless it was a time limit
// of its own that closed it, or the handler knows that no attempt can help.
func ofConnection(tx pgx.Tx, err error) error {
	if blamed(err) == hopeless || !tx.Conn().IsClosed() || ended(err) {
		return err
	}
	var ours *handlerError
	if errors.As(err, &ours) {
		err = ours.err
	}
	return &lostError{err}
}

func ended(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// closed reports whether an error of a commit is that of a connection that is gone.
func closed(err error) bool {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		return server.SeverityUnlocalized == "FATAL"
	}
	return !ended(err)
}

// watch counts a round that lost its connection, and has its records watched where that is not new.
func watch(items []item, err error) {
	var gone *lostError
	if !errors.As(err, &gone) {
		return
	}
	if items[0].losses++; items[0].losses < watchLosses {
		return
	}
	for i := range items {
		items[i].watched = true
	}
}

type probe struct {
	conn    *pgx.Conn
	crashed atomic.Bool // it has a notice that another process crashed

	round     *pgxpool.Pool // of one connection, for the attempt
	bystander atomic.Bool   // that connection has such a notice
}

// noticing sets crashed once the server tells a connection that another process crashed.
func noticing(cfg *pgx.ConnConfig, crashed *atomic.Bool) {
	handle := cfg.OnNotice
	cfg.OnNotice = func(conn *pgconn.PgConn, notice *pgconn.Notice) {
		if notice.Code == "57P02" { // since PostgreSQL 14 an immediate shutdown is another one
			crashed.Store(true)
		}
		if handle != nil {
			handle(conn, notice)
		}
	}
}

// probe opens one for a record that has lost its connection when it was alone; else, and where it
// cannot, it returns nil, and no loss counts. Its connections are not of the consumer's pool, all of
// which rounds may have.
func (p *partition) probe(it *item) *probe {
	if it.lostAfter == 0 {
		return nil
	}
	w := &probe{}
	own, pool := p.c.cfg.DB.Config(), p.c.cfg.DB.Config()
	cfg := own.ConnConfig
	noticing(cfg, &w.crashed)
	if own.BeforeConnect != nil && own.BeforeConnect(p.ctx, cfg) != nil {
		return nil
	}
	var err error
	if w.conn, err = pgx.ConnectConfig(p.ctx, cfg); err != nil {
		return nil
	}
	if !w.begin(p.ctx) || !p.pause(min(2*it.lostAfter, aheadLimit)) || !w.answers(p.ctx) {
		w.close()
		return nil
	}
	noticing(pool.ConnConfig, &w.bystander)
	pool.MaxConns, pool.MinConns, pool.MinIdleConns = 1, 0, 0
	if w.round, err = pgxpool.NewWithConfig(p.ctx, pool); err != nil {
		w.close()
		return nil
	}
	return w
}

// begin begins a transaction, in which the probe has a connection to the server of its own behind a
// pooler, too. It holds no snapshot, and no time limit of a transaction ends it; PostgreSQL 17 has two.
func (w *probe) begin(ctx context.Context) bool {
	_, err := w.conn.PgConn().Exec(ctx, "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_catalog.set_config(name, '0', true) FROM pg_catalog.pg_settings"+
		" WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')").ReadAll()
	return err == nil
}

func (w *probe) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, commitLimit)
	defer cancel()
	return w.conn.Ping(ctx) == nil
}

func (w *probe) close() {
	if w == nil {
		return
	}
	if w.round != nil {
		w.round.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = w.conn.Close(ctx)
}

// judged returns the loss of a connection as it is, or as the record's fault where the probe shows that.
func (p *partition) judged(w *probe, gone *lostError) error {
	if w == nil || w.bystander.Load() || !p.pause(lossGrace) {
		return gone
	}
	answers := w.answers(p.ctx)
	if !answers && !w.crashed.Load() {
		return gone
	}
	return &ConnectionError{Crashed: !answers, Err: gone.err}
}
