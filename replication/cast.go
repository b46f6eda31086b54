package replication

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"
)

// Cast gives the texts of a row that was made by hand the form in which the server
// would store and send them, and fails for the first one that is no value of its
// column's type. Nothing is written. Values of a type that our role may not name
// are left as they are.
func Cast(ctx context.Context, cfg Config, row *Row) error {
	s, err := newSampler(ctx, cfg)
	if err != nil {
		return err
	}
	defer closeQuietly(s.q.conn)
	if err := s.q.exec(limitStatements()); err != nil {
		return classify("look at the types of the columns", err)
	}
	for i, column := range row.Relation.Columns {
		value := &row.Values[i]
		if value.Kind != Text {
			continue
		}
		text, err := s.cast(column, value.Data)
		if err != nil {
			return fmt.Errorf("column %q: %w", column.Name, err)
		}
		value.Data = text
	}
	return nil
}

func (s *sampler) cast(column Column, text []byte) ([]byte, error) {
	// An explicit cast cuts what an INSERT would refuse.
	if length := int(column.TypeMod) - 4; (column.TypeName == "varchar" || column.TypeName == "bpchar") && length > 0 && utf8.RuneCount(text) > length {
		return nil, fmt.Errorf("the value is longer than the %d characters of the column", length)
	}
	row, err := s.q.one(fmt.Sprintf("SELECT pg_catalog.format_type(%d, %d)", column.Type, column.TypeMod))
	if err != nil {
		return nil, classify("look at its type", err)
	}
	result := s.q.conn.ExecParams(s.q.ctx, fmt.Sprintf("SELECT $1::%s", row.text(0)), [][]byte{text}, nil, nil, nil).Read()
	var refused *pgconn.PgError
	switch {
	case result.Err == nil && len(result.Rows) == 1:
		return result.Rows[0][0], nil
	case !errors.As(result.Err, &refused):
		return nil, classify("ask the server", result.Err)
	case refused.Code == "42501":
		return text, nil
	case refused.Detail != "":
		return nil, fmt.Errorf("%s (%s)", oneLine(refused.Message), oneLine(refused.Detail))
	}
	return nil, errors.New(oneLine(refused.Message))
}
