package kafkainbox

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A record may end its connection to the database each time: its statement takes all memory of the
// server's process, or runs into a limit that closes the connection. A server or a network that
// goes down leaves the same error, and is no record's fault. What tells the two apart is a second
// connection, the probe, which does nothing. It begins before the attempt, and stays open first for
// twice as long as the last one took, which finds out a server that goes down all the time. The
// attempt counts where the probe still answers behind it, or has a notice that another process of
// the server crashed.
const (
	watchLosses = 3           // from so many losses on a round's records are handled alone, and watched
	lossGrace   = time.Second // after which an outage has taken the probe, too
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
	crashed atomic.Bool // a notice of the server said so
}

// probe opens one for a record that has lost its connection when it was alone; else, and where it
// cannot, it returns nil, and no loss counts. The connection is not one of the pool, all of which
// rounds may have.
func (p *partition) probe(it *item) *probe {
	if it.lost == 0 {
		return nil
	}
	pool, w := p.c.cfg.DB.Config(), &probe{}
	cfg := pool.ConnConfig
	cfg.OnNotice = func(_ *pgconn.PgConn, notice *pgconn.Notice) {
		if notice.Code == "57P02" { // since PostgreSQL 14 an immediate shutdown is another one
			w.crashed.Store(true)
		}
	}
	if pool.BeforeConnect != nil && pool.BeforeConnect(p.ctx, cfg) != nil {
		return nil
	}
	var err error
	if w.conn, err = pgx.ConnectConfig(p.ctx, cfg); err != nil {
		return nil
	}
	// In a transaction it has a connection to the server of its own behind a pooler, too.
	_, err = w.conn.PgConn().Exec(p.ctx, "BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0").ReadAll()
	if err != nil || !p.pause(2*it.lost) || !w.answers(p.ctx) {
		w.close()
		return nil
	}
	return w
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
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = w.conn.Close(ctx)
}

// judged returns the loss of a connection as it is, or as the record's fault where the probe shows that.
func (p *partition) judged(w *probe, gone *lostError) error {
	if w == nil || !p.pause(lossGrace) {
		return gone
	}
	answers := w.answers(p.ctx)
	if !answers && !w.crashed.Load() {
		return gone
	}
	return &ConnectionError{Crashed: !answers, Err: gone.err}
}
