// Package pgxinbox takes transactions of pgx for package inbox.
package pgxinbox

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/inbox"
)

// Tx is a transaction of pgx or pgxpool. A pool or a connection is none, and does not compile. In one that
// has ended, by a statement too, every call returns inbox.ErrNoTransaction.
func Tx(tx pgx.Tx) inbox.Tx {
	if tx == nil {
		return nil
	}
	return transaction{tx}
}

type transaction struct{ tx pgx.Tx }

func (t transaction) Query(ctx context.Context, query string, args []any, row func(func(...any) error) error) error {
	if conn := t.tx.Conn(); conn != nil && conn.PgConn().TxStatus() == 'I' {
		return inbox.ErrNoTransaction
	}
	rows, err := t.tx.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
