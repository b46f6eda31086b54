package sample

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/jackc/pgx/v5/pgconn"
)

// CastRow gives the texts of a row that was made by hand the form in which the server
// would store and send them, and fails for the first one that is no value of its
// column's type. Nothing is written. Values of a type that our role may not name
// are left as they are.
func CastRow(ctx context.Context, cfg postgres.Config, row *wal.Row) error {
	s, err := newSampler(ctx, cfg)
	if err != nil {
		return err
	}
	defer postgres.CloseQuietly(s.q.Conn)
	if err := s.q.Exec(limitStatements()); err != nil {
		return postgres.Classify("look at the types of the columns", err)
	}
	for i, column := range row.Relation.Columns {
		value := &row.Values[i]
		if value.Kind != wal.Text {
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

func (s *sampler) cast(column wal.Column, text []byte) ([]byte, error) {
	// An explicit cast cuts what an INSERT would refuse.
	if length := int(column.TypeMod) - 4; (column.TypeName == "varchar" || column.TypeName == "bpchar") && length > 0 && utf8.RuneCount(text) > length {
		return nil, fmt.Errorf("the value is longer than the %d characters of the column", length)
	}
	row, err := s.q.One(fmt.Sprintf("SELECT pg_catalog.format_type(%d, %d)", column.Type, column.TypeMod))
	if err != nil {
		return nil, postgres.Classify("look at its type", err)
	}
	result := s.q.Conn.ExecParams(s.q.Ctx, fmt.Sprintf("SELECT $1::%s", row.Text(0)), [][]byte{text}, nil, nil, nil).Read()
	var refused *pgconn.PgError
	switch {
	case result.Err == nil && len(result.Rows) == 1:
		return result.Rows[0][0], nil
	case !errors.As(result.Err, &refused):
		return nil, postgres.Classify("ask the server", result.Err)
	case refused.Code == "42501":
		return text, nil
	case refused.Detail != "":
		return nil, fmt.Errorf("%s (%s)", fault.OneLine(refused.Message), fault.OneLine(refused.Detail))
	}
	return nil, errors.New(fault.OneLine(refused.Message))
}
