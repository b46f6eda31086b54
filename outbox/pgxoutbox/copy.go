package pgxoutbox

import (
	"context"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/outbox"
)

// Copy writes any number of events with COPY, and returns how many there were. It is for
// loads: at a hundred events Write is as fast.
//
// A COPY has no ON CONFLICT: an idempotency key or id that is there already is an error of
// the server, and aborts the transaction. So does an error of events, and an event that the
// relay could not send (*outbox.EventError), as rows before it are on their way by then.
func Copy(ctx context.Context, w *outbox.Writer, tx pgx.Tx, events iter.Seq2[outbox.Event, error]) (int64, error) {
	next, stop := iter.Pull2(events)
	defer stop()
	c, err := w.Copier(ctx)
	if err != nil {
		return 0, err
	}
	if tx == nil || over(tx) {
		return 0, outbox.ErrNoTransaction
	}
	var now time.Time
	if err := tx.QueryRow(ctx, "SELECT now()").Scan(&now); err != nil {
		return 0, c.Explained(err)
	}
	c.At(now)
	source := &source{next: next, copier: c}
	n, err := tx.CopyFrom(ctx, pgx.Identifier(c.Table()), c.Columns(), source)
	if source.err != nil {
		return 0, source.err
	}
	if err != nil {
		return 0, c.Explained(err)
	}
	return n, nil
}

// source is a pgx.CopyFromSource.
type source struct {
	next   func() (outbox.Event, error, bool)
	copier *outbox.Copier
	values []any
	err    error
}

func (s *source) Next() bool {
	event, err, ok := s.next()
	if !ok {
		return false
	}
	if err == nil {
		s.values, err = s.copier.Values(&event)
	}
	s.err = err
	return err == nil
}

func (s *source) Values() ([]any, error) { return s.values, nil }

func (s *source) Err() error { return s.err }
