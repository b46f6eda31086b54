// Package pgxinbox takes transactions of pgx for package inbox.
package pgxinbox

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/inbox"
)

// Tx is a transaction of pgx or pgxpool. A pool or a connection is none, and does not compile.
func Tx(tx pgx.Tx) inbox.Tx {
	if tx == nil {
		return nil
	}
	return transaction{tx}
}

type transaction struct{ tx pgx.Tx }

func (t transaction) Query(ctx context.Context, query string, args []any, row func(func(...any) error) error) error {
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
