package pgoutput

import (
	"fmt"
	"slices"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// change takes an update or a delete: a row for a table that asked, read past
// for the others.
func (d *Decoder) change(kind byte, f *fields, walStart wal.LSN) error {
	r, err := d.lookup(f.uint32())
	if f.err != nil {
		return f.err
	}
	if err != nil {
		return err
	}
	wants := d.wanted(r)
	deliver := kind == 'U' && wants.Update || kind == 'D' && wants.Delete
	if deliver && r.drift != nil {
		return d.drifted(r, "decode update or delete", walStart)
	}
	c := &wal.Change{Op: wal.Op(kind)}
	var values []wal.Value
	tag := f.byte()
	if tag == 'K' || tag == 'O' {
		c.Whole = tag == 'O'
		c.Old = f.values(len(r.Columns), deliver)
		if kind == 'U' {
			tag = f.byte()
		}
	}
	switch {
	case f.err != nil:
	case kind == 'U' && tag == 'N':
		values = f.values(len(r.Columns), deliver)
	case kind == 'D' && tag != 'N':
	default:
		f.fail(fmt.Errorf("tuple kind %q", tag))
	}
	if err := f.done(); err != nil {
		return err
	}
	if !deliver {
		d.current().OtherOps++
		return nil
	}
	if c.Whole {
		for i := range values { // the old row has what the new one leaves out
			if values[i].Kind == wal.Unchanged && c.Old[i].Kind != wal.Null {
				values[i] = c.Old[i]
			}
		}
	}
	return d.keepChange(r.Relation, c, values, walStart)
}

// keepChange appends a row that is not an insert. It is inside a transaction, or the
// message is refused.
func (d *Decoder) keepChange(r *wal.Relation, c *wal.Change, values []wal.Value, walStart wal.LSN) error {
	if err := d.inside(nil); err != nil {
		return err
	}
	b := d.current()
	own := d.room(b).Columns(len(values))
	copy(own, values)
	d.addRow(r, nil, own, walStart).Change = c
	size := 0
	for _, v := range slices.Concat(values, c.Old) {
		size += len(v.Data)
	}
	b.Bytes += size + len(c.Old)*wal.ValueSize
	return nil
}

func (d *Decoder) truncate(f *fields, walStart wal.LSN) error {
	n, _ := int32(f.uint32()), f.byte()
	if n < 0 {
		return errShort
	}
	oids := fields{rest: f.take(4 * int(n))}
	if err := f.done(); err != nil {
		return err
	}
	delivered := false
	for len(oids.rest) > 0 {
		r := d.relations[oids.uint32()]
		if r == nil || !d.wanted(r).Truncate {
			continue
		}
		if r.drift != nil {
			return d.drifted(r, "decode truncate", walStart)
		}
		delivered = true
		if err := d.keepChange(r.Relation, &wal.Change{Op: wal.Truncate}, nil, walStart); err != nil {
			return err
		}
	}
	if !delivered {
		d.current().OtherOps++
	}
	return nil
}

// commitRow adds the row by which a table learns of the transaction's end (wal.Commit), to the
// batch that carries the commit's position.
func (d *Decoder) commitRow(commit wal.LSN) {
	if d.atCommit == nil || d.ordinal == 0 {
		return
	}
	d.room(d.current())
	d.addRow(d.atCommit, nil, nil, commit).Change = &wal.Change{Op: wal.Commit}
}

// values reads a TupleData; its bytes are copied when they are to be kept.
func (f *fields) values(columns int, keep bool) []wal.Value {
	if !keep {
		f.tuple(columns)
		return nil
	}
	n := f.uint16()
	if f.err == nil && n != columns {
		f.fail(fmt.Errorf("row has %d columns, its relation %d", n, columns))
	}
	if f.err != nil {
		return nil
	}
	values := make([]wal.Value, n)
	for i := range values {
		switch kind := wal.Kind(f.byte()); {
		case f.err != nil:
			return nil
		case kind == wal.Null, kind == wal.Unchanged:
			values[i].Kind = kind
		case kind == wal.Text, kind == wal.Binary:
			data := f.take(int(int32(f.uint32())))
			values[i] = wal.Value{Kind: kind, Data: append(make([]byte, 0, len(data)), data...)}
		default:
			f.fail(fmt.Errorf("column kind %q", byte(kind)))
			return nil
		}
	}
	return values
}
