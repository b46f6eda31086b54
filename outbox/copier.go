package outbox

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Copier makes rows for COPY. It is for adapters of drivers: see pgxoutbox.Copy.
type Copier struct {
	w      *Writer
	encode encoder
	count  int
	values []any
	now    time.Time // zero: that of the process
}

// Copier has the trace context of ctx in all rows.
func (w *Writer) Copier(ctx context.Context) (*Copier, error) {
	if w.cfg.Store != KeepRow {
		return nil, errors.New("copy events: a COPY only inserts; use a Writer with KeepRow")
	}
	return &Copier{w: w, encode: w.encoder(ctx)}, nil
}

// Table is the table's schema and name, not quoted.
func (c *Copier) Table() []string { return slices.Clone(c.w.table) }

// Columns are those that Values fills, not quoted.
func (c *Copier) Columns() []string {
	var names []string
	for _, r := range c.w.statements.written {
		names = append(names, c.w.columns[r].Name)
	}
	return append(names, c.w.now...)
}

// Values is the row of the next event: strings in the text form of the column's type, nil for
// NULL, and times. It is good until the next call.
func (c *Copier) Values(e *Event) ([]any, error) {
	index := c.count
	c.count++
	if refused := c.encode.encode(e); refused != nil {
		return nil, refused.at(index)
	}
	c.values = c.values[:0]
	for _, r := range c.w.statements.written {
		if cell := c.encode.row.cells[r]; cell.Null {
			c.values = append(c.values, nil)
		} else {
			c.values = append(c.values, cell.String)
		}
	}
	now := c.now
	if now.IsZero() {
		now = time.Now()
	}
	for range c.w.now {
		c.values = append(c.values, now.UTC())
	}
	return c.values, nil
}

// At is the time of writing that all rows have from now on. Without it each has that of the process,
// where Write has the time of the server at which the transaction began.
func (c *Copier) At(now time.Time) { c.now = now }

// Explained makes of the driver's error what Write would return.
func (c *Copier) Explained(err error) error { return c.w.explained(err) }
