package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"reflect"
	"strings"
)

// Tx is the caller's transaction. SQL and pgxoutbox.Tx make one; another driver is a method
// away.
type Tx interface {
	// Run executes the statements in their order, and calls row for each row that the
	// first of them returns.
	Run(ctx context.Context, statements []Statement, row func(scan func(into ...any) error) error) error
}

// Statement is a statement of SQL with arguments for $1, $2, …: nil, string, *string, []byte
// or *Array.
type Statement struct {
	SQL  string
	Args []any
}

// Array is an argument of the type text[]. Its Value is a literal in a string, which every
// driver takes.
type Array struct {
	values []Text
}

// Text is an element of an Array. It may be NULL.
type Text struct {
	String string
	Null   bool
}

// Len is the number of elements.
func (a *Array) Len() int { return len(a.values) }

// At is an element.
func (a *Array) At(i int) *Text { return &a.values[i] }

// Value is the array as PostgreSQL's text form.
func (a *Array) Value() (driver.Value, error) {
	size := 2
	for i := range a.values {
		size += len(a.values[i].String) + 3
	}
	b := make([]byte, 0, size+size/4)
	b = append(b, '{')
	for i := range a.values {
		if i > 0 {
			b = append(b, ',')
		}
		if a.values[i].Null {
			b = append(b, "NULL"...)
			continue
		}
		b = append(b, '"')
		for s := a.values[i].String; ; {
			j := strings.IndexAny(s, `"\`)
			if j < 0 {
				b = append(b, s...)
				break
			}
			b = append(append(b, s[:j]...), '\\', s[j])
			s = s[j+1:]
		}
		b = append(b, '"')
	}
	return string(append(b, '}')), nil
}

// SQL makes a Tx of a *sql.Tx, of what embeds one (*sqlx.Tx, bun.Tx), and of what has its
// QueryContext and Commit: the Statement.ConnPool of a GORM transaction, and ent's Tx (with the
// feature sql/execquery). With *sql.DB, *sql.Conn or a GORM that is in no transaction, Write
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

func (none) Run(context.Context, []Statement, func(func(...any) error) error) error {
	return ErrNoTransaction
}

type sqlTx struct{ tx Queryer }

func (t sqlTx) Run(ctx context.Context, statements []Statement, row func(func(...any) error) error) error {
	for i, s := range statements {
		if i > 0 {
			row = nil
		}
		if err := t.run(ctx, s, row); err != nil {
			return err
		}
	}
	return nil
}

func (t sqlTx) run(ctx context.Context, s Statement, row func(func(...any) error) error) error {
	rows, err := t.tx.QueryContext(ctx, s.SQL, s.Args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // rows.Err has what was wrong
	for rows.Next() {
		if row == nil {
			continue
		}
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
