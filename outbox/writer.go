package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
)

// A statement takes that many events, and that many bytes of them, at most.
const (
	statementEvents = 1000
	statementBytes  = 1 << 20
)

const defaultMaxBytes = 1 << 20

// Writer writes events into one table. It is immutable, and safe for concurrent use.
type Writer struct {
	cfg        Config
	name       string // the table, for people
	taken      Shape
	table      []string // schema and table; nil for Message
	now        []string
	columns    [roleCount]typed
	topic      template
	statements *statements // nil for Message
	maxBytes   int
}

// New makes a Writer. It asks no server.
func New(cfg Config) (*Writer, error) {
	w := &Writer{cfg: cfg, maxBytes: cmp.Or(cfg.MaxBytes, defaultMaxBytes)}
	if err := w.configure(); err != nil {
		return nil, fmt.Errorf("make writer: %w", err)
	}
	return w, nil
}

// Shape is what columns the writer fills; the zero Shape with Message.
func (w *Writer) Shape() Shape {
	shape := w.taken
	shape.Now = slices.Clone(shape.Now)
	return shape
}

func (w *Writer) configure() error {
	switch {
	case w.cfg.MaxBytes < 0:
		return fmt.Errorf("MaxBytes is %d; give the relay's kafka.max_message_bytes, or zero for 1 MiB", w.cfg.MaxBytes)
	case w.cfg.Store > Message:
		return fmt.Errorf("Store is %d; allowed: KeepRow, DeleteRow, Message", w.cfg.Store)
	case w.cfg.Store == Message:
		return w.configureMessage()
	case w.cfg.MessagePrefix != "":
		return errors.New("MessagePrefix is set, and Store is not Message")
	}
	shape := w.cfg.Shape
	if shape.empty() {
		shape = Outbox()
	}
	var err error
	w.name = cmp.Or(w.cfg.Table, "public.outbox")
	if w.table, err = parseTable(w.name); err != nil {
		return err
	}
	if err := w.shape(&shape); err != nil {
		return fmt.Errorf("shape %s: %w", cmp.Or(shape.Preset, "without a name"), err)
	}
	w.taken, w.now = shape, slices.Clone(shape.Now)
	if w.statements, err = compile(w.table, &w.columns, w.now); err != nil {
		return err
	}
	w.topic, err = parseTemplate(cmp.Or(w.cfg.Topic, shape.TopicTemplate), &w.columns)
	return err
}

// shape takes the columns over.
func (w *Writer) shape(s *Shape) error {
	for r, c := range s.parts() {
		var err error
		if w.columns[r], err = c.ready(fields[r]); err != nil {
			return err
		}
	}
	if w.cfg.Trace != nil && s.Trace == (Column{}) && s.Headers == (Column{}) {
		return errors.New("a Trace is set, and the table has a column neither for the trace context nor for headers; add one (ALTER TABLE … ADD traceparent text)")
	}
	for r := range w.columns {
		c := &w.columns[r]
		var fits bool
		switch role(r) {
		case roleID:
			fits = c.kind == kindUUID || c.kind == kindText && c.limit == 0 || c.limit >= 36 || c.kind == kindInteger && c.Generated
		case rolePayload:
			fits = c.kind == kindText || c.kind == kindJSON || c.kind == kindJSONB || c.kind == kindBytes
		case roleHeaders:
			fits = c.kind == kindNone || c.kind == kindJSON || c.kind == kindJSONB
		case roleTrace:
			fits = c.kind == kindNone || c.kind == kindText || c.kind == kindJSON || c.kind == kindJSONB
		default:
			fits = c.kind == kindNone || c.kind == kindText || c.kind == kindUUID || c.kind == kindInteger
		}
		if !fits {
			return fmt.Errorf("column %q of type %q cannot hold the %s", c.Name, c.Type, fields[r])
		}
		if c.Generated && role(r) != roleID {
			return fmt.Errorf("column %q for the %s is Generated; only an id may be", c.Name, fields[r])
		}
	}
	if w.cfg.Store == DeleteRow && s.ID.Generated {
		return errors.New("DeleteRow needs to know the ids, and the database makes those of this table")
	}
	return nil
}

// Write writes events into the outbox, in the transaction and in their order. Nothing is
// written unless all events can be: see EventError. A *DuplicateError leaves the transaction
// usable, and tells of events that were written before; all others are written. After any
// other error of the server the transaction is aborted.
func (w *Writer) Write(ctx context.Context, tx Tx, events ...Event) (Written, error) {
	if tx == nil {
		return Written{}, ErrNoTransaction
	}
	if len(events) == 0 {
		return Written{}, nil
	}
	if w.cfg.Store == Message {
		return w.emit(ctx, tx, events)
	}
	b, err := w.encodeAll(ctx, events)
	if err != nil {
		return Written{}, err
	}
	written := Written{IDs: b.ids}
	for from := 0; from < len(events); {
		to := b.statementEnd(from)
		if err := w.insert(ctx, tx, b, from, to, &written); err != nil {
			return Written{}, w.explained(err)
		}
		from = to
	}
	if len(written.Duplicates) > 0 && !w.cfg.SkipDuplicates {
		return written, &DuplicateError{Indexes: written.Duplicates}
	}
	return written, nil
}

// encoded are the events of one Write, by column.
type encoded struct {
	ids     []UUID // nil where the database makes them
	sizes   []int
	columns []Array // parallel to statements.written
	keys    []Text  // what RETURNING gives of each event
	fresh   bool    // none can have been written before: no idempotency keys, ids just made
}

func (w *Writer) encodeAll(ctx context.Context, events []Event) (*encoded, error) {
	n, roles := len(events), w.statements.written
	b := &encoded{sizes: make([]int, n), columns: make([]Array, len(roles)), fresh: true}
	cells := make([]Text, n*len(roles))
	for i := range b.columns {
		b.columns[i].values = cells[i*n : (i+1)*n : (i+1)*n]
	}
	if !w.columns[roleID].Generated {
		b.ids = make([]UUID, n)
	}
	c := w.encoder(ctx)
	for i := range events {
		if refused := c.encode(&events[i]); refused != nil {
			return nil, refused.at(i)
		}
		if b.ids != nil {
			b.ids[i] = c.row.id
		}
		b.sizes[i] = c.row.bytes
		b.fresh = b.fresh && events[i].IdempotencyKey == "" && events[i].ID == UUID{}
		for at, r := range roles {
			b.columns[at].values[i] = c.row.cells[r]
		}
	}
	for at, r := range roles {
		if r == roleID || w.columns[roleID].Generated && r == roleIdempotencyKey {
			b.keys = b.columns[at].values
		}
	}
	return b, nil
}

// statementEnd is where the statement that begins with the event from ends.
func (b *encoded) statementEnd(from int) int {
	bytes := 0
	for i := from; i < len(b.sizes); i++ {
		bytes += b.sizes[i]
		if i > from && (bytes > statementBytes || i-from == statementEvents) {
			return i
		}
	}
	return len(b.sizes)
}

func (w *Writer) insert(ctx context.Context, tx Tx, b *encoded, from, to int, written *Written) error {
	args := make([]any, len(b.columns))
	run := make([]Statement, 1, 2)
	run[0] = Statement{w.statements.skipMany, args}
	switch one := to-from == 1; {
	case one && b.fresh:
		run[0].SQL = w.statements.insertOne
	case one:
		run[0].SQL = w.statements.skipOne
	case b.fresh:
		run[0].SQL = w.statements.insertMany
	}
	if to-from == 1 {
		for i := range args {
			if cell := b.columns[i].At(from); !cell.Null {
				args[i] = &cell.String
			}
		}
	} else {
		arrays := make([]Array, len(b.columns))
		for i := range args {
			arrays[i].values = b.columns[i].values[from:to]
			args[i] = &arrays[i]
		}
	}
	if w.cfg.Store == DeleteRow {
		run = append(run, Statement{w.statements.deleteMany, args[:1]}) // the id comes first
		if to-from == 1 {
			run[1].SQL = w.statements.deleteOne
		}
	}
	if b.fresh {
		return tx.Run(ctx, run, func(func(...any) error) error { return nil })
	}
	next := from
	err := tx.Run(ctx, run, func(scan func(...any) error) error {
		var key *string
		if err := scan(&key); err != nil {
			return err
		}
		for ; next < to; next++ {
			if b.keys == nil || b.keys[next].Null == (key == nil) && (key == nil || *key == b.keys[next].String) {
				next++
				return nil
			}
			written.Duplicates = append(written.Duplicates, next)
		}
		return errors.New("the table returned an id that was not written; does a trigger change it?")
	})
	for ; next < to; next++ {
		written.Duplicates = append(written.Duplicates, next)
	}
	return err
}
