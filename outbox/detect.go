package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Detect is New for the table as it is: it reads the table's columns once and makes the Shape of
// them. Without Config.Shape it takes the one of Shapes that has the most of the columns; with one
// it takes that one's names. Types, and whether NULL is allowed, are the table's. Columns of the
// shape that may be empty and that the table lacks are left out.
//
// It refuses a table that a writer could never fill. Call it at the start of the program; the
// transaction only reads. Writer.Shape is what was found.
func Detect(ctx context.Context, tx Tx, cfg Config) (*Writer, error) {
	name := cmp.Or(cfg.Table, "public.outbox")
	fail := func(err error) (*Writer, error) { return nil, fmt.Errorf("detect table %s: %w", name, err) }
	switch {
	case tx == nil:
		return nil, ErrNoTransaction
	case cfg.Store == Message:
		return fail(errors.New("Store is Message, which writes into no table; use New"))
	}
	place, err := parseTable(name)
	if err != nil {
		return nil, fmt.Errorf("make writer: %w", err)
	}
	columns, err := readColumns(ctx, tx, place)
	if err != nil {
		if errors.Is(err, ErrNoTransaction) {
			return nil, err
		}
		return fail(err)
	}
	if len(columns) == 0 {
		return fail(errors.New("there is no such table; `cdc-relay setup --create-table` makes one, or set Config.Table"))
	}
	if cfg.Shape, err = detect(cfg.Shape, columns); err != nil {
		return fail(err)
	}
	return New(cfg)
}

// tableColumn is a column of the catalog.
type tableColumn struct {
	name, typ string
	notNull   bool
	filled    bool // by a default, an identity or an expression
}

const columnsSQL = `SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), a.attnotnull::text, (a.atthasdef OR a.attidentity <> '')::text` +
	` FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace` +
	` WHERE n.nspname = $1::text AND c.relname = $2::text AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`

func readColumns(ctx context.Context, tx Tx, place []string) ([]tableColumn, error) {
	var columns []tableColumn
	err := tx.Run(ctx, []Statement{{columnsSQL, []any{place[0], place[1]}}}, func(scan func(...any) error) error {
		var c tableColumn
		var notNull, filled string
		err := scan(&c.name, &c.typ, &notNull, &filled)
		c.notNull, c.filled = notNull == "true", filled == "true"
		columns = append(columns, c)
		return err
	})
	return columns, err
}

// detect is the shape of a table with these columns. It is pure.
func detect(given Shape, columns []tableColumn) (Shape, error) {
	if !given.empty() {
		taken, missing := fitted(given, columns)
		if missing != "" {
			return Shape{}, fmt.Errorf("it has no column %q, which Config.Shape has", missing)
		}
		return taken, unfilled(&taken, columns)
	}
	// Our own comes first: of shapes that take the same columns it names them.
	candidates := append([]Shape{Outbox()}, Shapes()...)
	var best []Shape
	most := 0
	for _, s := range candidates {
		taken, missing := fitted(s, columns)
		if missing != "" {
			continue
		}
		n := len(taken.names())
		if n > most {
			best, most = nil, n
		}
		if n == most && !slices.ContainsFunc(best, taken.sameColumns) {
			best = append(best, taken)
		}
	}
	switch len(best) {
	case 0:
		return Shape{}, fmt.Errorf("its columns %s are those of no shape; set Config.Shape", listed(columns))
	case 1:
		return best[0], unfilled(&best[0], columns)
	}
	var names []string
	for _, s := range best {
		names = append(names, s.Preset)
	}
	return Shape{}, fmt.Errorf("its columns are those of several shapes (%s); set Config.Shape to one of them", strings.Join(names, ", "))
}

// fitted is the shape with the types that the columns have, and the name of a column that it needs
// and the table lacks; empty where there is none.
func fitted(s Shape, columns []tableColumn) (taken Shape, missing string) {
	for _, c := range s.parts() {
		if *c == (Column{}) {
			continue
		}
		at := slices.IndexFunc(columns, func(in tableColumn) bool { return in.name == c.Name })
		switch {
		case at >= 0:
			in := columns[at]
			generated := c == &s.ID && in.filled && in.typ != "uuid"
			*c = Column{Name: c.Name, Type: in.typ, Nullable: !in.notNull, Generated: generated}
		case c.Nullable && c != &s.Payload:
			*c = Column{}
		default:
			return Shape{}, c.Name
		}
	}
	var now []string
	for _, name := range s.Now {
		if slices.ContainsFunc(columns, func(in tableColumn) bool { return in.name == name }) {
			now = append(now, name)
		}
	}
	s.Now = now
	return s, ""
}

// unfilled refuses a table with a column that every row needs and no writer fills.
func unfilled(s *Shape, columns []tableColumn) error {
	names := s.names()
	for _, c := range columns {
		if c.notNull && !c.filled && !slices.Contains(names, c.name) {
			return fmt.Errorf("column %q is NOT NULL without a default, and shape %s does not fill it; give it a default, or set Config.Shape", c.name, cmp.Or(s.Preset, "without a name"))
		}
	}
	return nil
}

// parts are the columns in the order of their roles.
func (s *Shape) parts() [roleCount]*Column {
	return [roleCount]*Column{&s.ID, &s.Route, &s.Key, &s.Topic, &s.Type, &s.Payload, &s.Headers, &s.Trace, &s.IdempotencyKey}
}

// names are the columns that it has.
func (s *Shape) names() []string {
	names := slices.Clone(s.Now)
	for _, c := range s.parts() {
		if *c != (Column{}) {
			names = append(names, c.Name)
		}
	}
	return names
}

// sameColumns reports whether both write the same, and to the same topic.
func (s *Shape) sameColumns(other Shape) bool {
	for r, c := range s.parts() {
		if *c != *other.parts()[r] {
			return false
		}
	}
	return s.TopicTemplate == other.TopicTemplate && slices.Equal(s.Now, other.Now)
}

func listed(columns []tableColumn) string {
	var names []string
	for _, c := range columns {
		names = append(names, c.name)
	}
	return strings.Join(names, ", ")
}
