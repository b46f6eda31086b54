package inbox

import (
	"context"
	"database/sql"
	"reflect"
)

// Tx is the caller's transaction. SQL and pgxinbox.Tx make one; another driver is a method away.
type Tx interface {
	// Query executes a statement with arguments for $1, $2, …, which are strings and ints, and
	// calls row for each row that it returns.
	Query(ctx context.Context, query string, args []any, row func(scan func(into ...any) error) error) error
}

// SQL makes a Tx of a *sql.Tx, of what embeds one (*sqlx.Tx, bun.Tx), and of what has its
// QueryContext and Commit: the Statement.ConnPool of a GORM transaction, and ent's Tx (with the
// feature sql/execquery). With *sql.DB, *sql.Conn or a GORM that is in no transaction, every call
// returns ErrNoTransaction.
func SQL(tx Queryer) Tx {
	v := reflect.ValueOf(tx)
	if _, ok := tx.(interface{ Commit() error }); !ok || v.Kind() == reflect.Pointer && v.IsNil() {
		return none{}
	}
	v = reflect.Indirect(v)
	if v.Kind() != reflect.Struct {
		return sqlTx{tx}
	}
	// bun has placeholders of its own, which the embedded *sql.Tx goes round.
	if field := v.FieldByName("Tx"); field.IsValid() && field.Type() == reflect.TypeFor[*sql.Tx]() && !field.IsNil() {
		return sqlTx{field.Interface().(*sql.Tx)}
	}
	return sqlTx{tx}
}

// Queryer is what database/sql's transaction has, and what wraps it.
type Queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

type none struct{}

func (none) Query(context.Context, string, []any, func(func(...any) error) error) error {
	return ErrNoTransaction
}

type sqlTx struct{ tx Queryer }

func (t sqlTx) Query(ctx context.Context, query string, args []any, row func(func(...any) error) error) error {
	rows, err := t.tx.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // rows.Err has what was wrong
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
