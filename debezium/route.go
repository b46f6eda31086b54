package debezium

import (
	"errors"

	"github.com/cdc-relay/cdc-relay/debezium/connect"
	"github.com/cdc-relay/cdc-relay/debezium/transform"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// Route appends the records that Debezium would write for a row: none, one, or
// more where the row passes the EventRouter unrouted.
func (p *plan) Route(b *record.Buffer, row *wal.Row) error {
	records := len(b.Records)
	p.row = row
	err := p.send(b, row)
	if err != nil {
		clear(b.Records[records:])
		b.Records = b.Records[:records]
	}
	p.row, p.data = nil, nil
	return err
}

func (p *plan) send(b *record.Buffer, row *wal.Row) error {
	d := p.d
	if p.rel.IsMessages() {
		return p.message(b, row)
	}
	if row.Change != nil && row.Change.Op == wal.Commit {
		return d.transactions.end(b, d, row)
	}
	if row.Change == nil && len(row.Values) != len(p.rel.Columns) {
		return record.Reject(fault.ReasonSchema, "", "the row has %d values, and its table %d columns", len(row.Values), len(p.rel.Columns))
	}
	if err := d.transactions.begin(b, d, row); err != nil {
		return err
	}
	var err error
	switch {
	case row.Change == nil:
		err = p.created(b, row, row.Values, nil)
	case row.Change.Op == wal.Update:
		err = p.updated(b, row)
	case row.Change.Op == wal.Delete:
		err = p.deleted(b, row, row.Change.Old, nil)
	case row.Change.Op == wal.Truncate:
		err = p.change(b, row, 't', nil, nil, nil)
	default:
		err = record.Reject(fault.ReasonSchema, "", "change %q is not one that Debezium knows", byte(row.Change.Op))
	}
	if err != nil {
		return err
	}
	d.transactions.count(row)
	return nil
}

// Headers of the two halves of an update that changed the primary key.
const (
	newKeyHeader = "__debezium.newkey"
	oldKeyHeader = "__debezium.oldkey"
)

func (p *plan) created(b *record.Buffer, row *wal.Row, values []wal.Value, first *transform.Header) error {
	return p.change(b, row, 'c', values, values, first)
}

// updated is an update, or a delete and an insert when the primary key changed.
func (p *plan) updated(b *record.Buffer, row *wal.Row) error {
	if old := row.Change.Old; old != nil && p.keyChanged(old, row.Values) {
		oldKey, err := p.keyOf(old)
		if err != nil {
			return err
		}
		newKey, err := p.keyOf(row.Values)
		if err != nil {
			return err
		}
		if err := p.deleted(b, row, old, &transform.Header{Key: newKeyHeader, Schema: newKey.Schema, Value: newKey.Value}); err != nil {
			return err
		}
		return p.created(b, row, row.Values, &transform.Header{Key: oldKeyHeader, Schema: oldKey.Schema, Value: oldKey.Value})
	}
	return p.change(b, row, 'u', row.Values, row.Values, nil)
}

// keyChanged compares the columns of the primary key. An identity that does not
// hold them says nothing about them.
func (p *plan) keyChanged(old, values []wal.Value) bool {
	for _, i := range p.key {
		was, is := old[p.cols[i].index], values[p.cols[i].index]
		if was.Kind != wal.Null && (was.Kind != is.Kind || string(was.Data) != string(is.Data)) {
			return true
		}
	}
	return false
}

// deleted is a delete with the tombstone after it.
func (p *plan) deleted(b *record.Buffer, row *wal.Row, old []wal.Value, first *transform.Header) error {
	if err := p.change(b, row, 'd', old, nil, first); err != nil {
		return err
	}
	return p.pass(b, p.begin(old, first), row)
}

// begin starts a record of this table, with its key and headers and no value.
func (p *plan) begin(key []wal.Value, first *transform.Header) *transform.Record {
	r := &p.d.scratch
	r.Reset()
	r.Topic = p.topic
	if first != nil {
		r.Headers = append(r.Headers, *first)
	}
	r.Headers = append(r.Headers, p.d.context...)
	p.data = key
	return r
}

// change sends one change record through the chain.
func (p *plan) change(b *record.Buffer, row *wal.Row, op byte, key, after []wal.Value, first *transform.Header) error {
	r := p.begin(key, first)
	c := &transform.Change{Op: op, Shape: p.shape, Row: row, Table: p}
	if after != nil {
		c.After = func(i int) (connect.Value, error) { return p.value(after, i) }
	}
	r.Source = c
	return p.pass(b, r, row)
}

// pass runs the chain. The table's own key, which an EventRouter replaces, is made
// only for a chain that may not reach one.
func (p *plan) pass(b *record.Buffer, r *transform.Record, row *wal.Row) error {
	if p.keySchema != nil && p.data != nil && p.d.chain.NeedsKey() {
		key, err := p.keyOf(p.data)
		if err != nil {
			return err
		}
		r.Key = key
	}
	keep, err := p.d.chain.Pass(r)
	if err != nil || !keep {
		return err
	}
	return p.d.emit(b, r, row)
}

// keyOf is the struct of the primary key's columns; nothing for a table without.
func (p *plan) keyOf(values []wal.Value) (transform.Field, error) {
	if p.keySchema == nil || values == nil {
		return transform.Field{}, nil
	}
	items := make([]connect.Value, len(p.key))
	for n, i := range p.key {
		v, err := p.value(values, i)
		if err != nil {
			return transform.Field{}, err
		}
		items[n] = v
	}
	return transform.StructOf(p.keySchema, items...)
}

// value decodes one column of a row. Debezium writes null for what it cannot
// convert, as event.converting.failure.handling.mode says.
func (p *plan) value(values []wal.Value, i int) (connect.Value, error) {
	c := &p.cols[i]
	v := values[c.index]
	switch v.Kind {
	case wal.Null:
		return connect.Null, nil
	case wal.Text:
	case wal.Unchanged:
		return p.placeholder(i)
	default:
		return connect.Null, record.RejectBinary(p.rel.Columns[c.index].Name)
	}
	out, err := c.codec.Decode(v.Data)
	if err != nil {
		if e, ok := errors.AsType[*connect.ConvertError](err); ok && e.Tolerated {
			if !c.codec.Quiet() {
				p.d.chain.Warn(p.row, p.rel.Columns[c.index].Name, "the value is none that can be converted and is sent as null, as Debezium sends it (event.converting.failure.handling.mode)")
			}
			return out, nil
		}
		return connect.Null, record.Reject(fault.ReasonEncode, p.rel.Columns[c.index].Name, "%v", err)
	}
	return out, nil
}

// placeholder stands for a value that the log does not have.
func (p *plan) placeholder(i int) (connect.Value, error) {
	switch s := p.shape.Fields[i].Schema; {
	case s.Type == connect.String:
		return connect.StringValue(p.d.modes.Placeholder), nil
	case s.Type == connect.Bytes && s.Name == "":
		return connect.BufferValue([]byte(p.d.modes.Placeholder)), nil
	}
	name := p.shape.Fields[i].Name
	return connect.Null, record.Reject(fault.ReasonMapping, name, "column %q is not in the log: the update left its TOASTed value alone; ALTER TABLE %s REPLICA IDENTITY FULL makes the log hold it", name, column.TableName(p.rel))
}

// ReadsAll reports whether a record may have every column of its row.
func (p *plan) ReadsAll() bool { return p.d.chain.Passes() || p.renames() }

// Salvage gives the bytes of key and payload as PostgreSQL prints them.
func (p *plan) Salvage(b *record.Buffer, row *wal.Row) record.Record {
	rec := record.Record{Partition: record.AutoPartition, Row: row}
	text := func(name string) []byte {
		i := column.Index(p.rel, name)
		if i < 0 || i >= len(row.Values) || row.Values[i].Kind != wal.Text {
			return nil
		}
		return row.Values[i].Data
	}
	if p.rel.IsMessages() {
		rec.Value = text(column.MessageBody)
		return rec
	}
	rec.Key, rec.Value = text(p.d.router.Key), text(p.d.router.Payload)
	b.Header(record.IdHeader, text(p.d.router.ID))
	rec.Headers = b.TakeHeaders()
	return rec
}
