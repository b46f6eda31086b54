// Package pgxoutbox takes transactions of pgx for package outbox.
package pgxoutbox

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/outbox"
)

// Tx is a transaction of pgx or pgxpool. A pool or a connection is none, and does not compile. In one that
// has ended, by a statement too, every call returns outbox.ErrNoTransaction.
func Tx(tx pgx.Tx) outbox.Tx {
	if tx == nil {
		return nil
	}
	return transaction{tx}
}

type transaction struct{ tx pgx.Tx }

// over reports whether the transaction has ended: a statement would commit by itself.
func over(tx pgx.Tx) bool {
	conn := tx.Conn()
	return conn != nil && conn.PgConn().TxStatus() == 'I'
}

// Run sends several statements at once.
func (t transaction) Run(ctx context.Context, statements []outbox.Statement, row func(func(...any) error) error) error {
	if over(t.tx) {
		return outbox.ErrNoTransaction
	}
	if len(statements) == 1 {
		rows, err := t.tx.Query(ctx, statements[0].SQL, arguments(statements[0].Args)...)
		if err != nil {
			return err
		}
		return each(rows, row)
	}
	batch := &pgx.Batch{}
	for _, s := range statements {
		batch.Queue(s.SQL, arguments(s.Args)...)
	}
	results := t.tx.SendBatch(ctx, batch)
	rows, err := results.Query()
	if err == nil {
		err = each(rows, row)
	}
	if closing := results.Close(); err == nil {
		err = closing
	}
	return err
}

func each(rows pgx.Rows, row func(func(...any) error) error) error {
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// arguments has arrays as pgx encodes them in binary.
func arguments(args []any) []any {
	given := make([]any, len(args))
	for i, arg := range args {
		if a, ok := arg.(*outbox.Array); ok {
			arg = array{a}
		}
		given[i] = arg
	}
	return given
}

// array is a pgtype.ArrayGetter. Where the server's types are not known (simple protocol), it
// is the driver.Valuer that it embeds.
type array struct{ *outbox.Array }

func (a array) Dimensions() []pgtype.ArrayDimension {
	return []pgtype.ArrayDimension{{Length: int32(a.Len()), LowerBound: 1}}
}

func (a array) Index(i int) any { return (*element)(a.At(i)) }

func (a array) IndexType() any { return (*element)(nil) }

type element outbox.Text

func (e *element) TextValue() (pgtype.Text, error) {
	return pgtype.Text{String: e.String, Valid: !e.Null}, nil
}
