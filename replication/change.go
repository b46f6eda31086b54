package replication

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pglogrepl"
)

// AnyPrefix is an entry of Config.Messages that stands for every prefix. Its rows
// have the prefix as their second column.
const AnyPrefix = "*"

// textOID is the type of the prefix column.
const textOID = 25

// Wants is what a table asks for beyond the inserts. The publication has to send it.
type Wants struct {
	Update, Delete, Truncate bool

	Commit bool // a row at the end of each transaction with rows, once the table was announced
	Meta   bool // Relation.Meta
}

// Op is what a change does.
type Op byte

// The changes that are no inserts, by their byte in pgoutput.
const (
	Update   Op = 'U'
	Delete   Op = 'D'
	Truncate Op = 'T'
	Commit   Op = 'C' // no row, the end of a transaction; it has no values
)

// Change is what a row is that is no insert.
type Change struct {
	Op Op

	// Old is the row before, parallel to Relation.Columns: whole, or the columns of the
	// replica identity and NULL for the rest; nil for an update that left the identity
	// alone, and for a truncate. Values of a delete are empty.
	Old   []Value
	Whole bool
}

func (c *Config) wants(table int) Wants {
	if table < len(c.Wants) {
		return c.Wants[table]
	}
	return Wants{}
}

// operations names what the tables want beyond inserts, as publish has it.
func (c *Config) operations() []string {
	var all Wants
	for _, w := range c.Wants {
		all.Update, all.Delete, all.Truncate = all.Update || w.Update, all.Delete || w.Delete, all.Truncate || w.Truncate
	}
	return all.operations()
}

func (w Wants) operations() []string {
	var ops []string
	for _, op := range []struct {
		name string
		want bool
	}{{"update", w.Update}, {"delete", w.Delete}, {"truncate", w.Truncate}} {
		if op.want {
			ops = append(ops, op.name)
		}
	}
	return ops
}

// published is the publication's option publish that brings all that is wanted.
func (c *Config) published() string {
	return strings.Join(append([]string{"insert"}, c.operations()...), ", ")
}

// unwanted are the published operations that no table asks for.
func (c *Config) unwanted(published []string) []string {
	wanted := c.operations()
	return slices.DeleteFunc(slices.Clone(published), func(op string) bool { return slices.Contains(wanted, op) })
}

// missing warns of operations that a table asks for and the publication does not send.
func (p *publicationRow) missing(w Wants, table Table) []string {
	lacks := slices.DeleteFunc(w.operations(), func(op string) bool { return slices.Contains(p.others, op) })
	if len(lacks) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s does not publish %s, which the mapping of table %s would look at: such changes are not seen",
		publicationSubject(p.name), strings.Join(lacks, " and "), table)}
}

// change takes an update or a delete: a row for a table that asked, read past
// for the others.
func (d *Decoder) change(kind byte, f *fields, walStart pglogrepl.LSN) error {
	r, err := d.lookup(f.uint32())
	if f.err != nil {
		return f.err
	}
	if err != nil {
		return err
	}
	deliver := r.Table >= 0 && (kind == 'U' && d.wants[r.Table].Update || kind == 'D' && d.wants[r.Table].Delete)
	if deliver && r.drift != nil {
		return &Error{
			Kind: KindDrift, Reason: ReasonTableChanged, Op: "decode update or delete", Subject: r.drift.subject,
			LSN: d.position(walStart), Err: r.drift.err, Hint: r.drift.hint,
		}
	}
	c := &Change{Op: Op(kind)}
	var values []Value
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
			if values[i].Kind == Unchanged && c.Old[i].Kind != Null {
				values[i] = c.Old[i]
			}
		}
	}
	return d.keepChange(r.Relation, c, values, walStart)
}

// keepChange appends a row that is no insert. It is inside a transaction, or the
// message is refused.
func (d *Decoder) keepChange(r *Relation, c *Change, values []Value, walStart pglogrepl.LSN) error {
	if err := d.inside(nil); err != nil {
		return err
	}
	b := d.current()
	if b.slab == nil {
		d.place(b)
	}
	own := b.slab.columns(len(values))
	copy(own, values)
	d.keep(r, nil, own, walStart)
	row := &b.slab.rows[len(b.slab.rows)-1]
	row.Change = c
	size := 0
	for _, v := range slices.Concat(values, c.Old) {
		size += len(v.Data)
	}
	b.Bytes += size + len(c.Old)*valueSize
	return nil
}

func (d *Decoder) truncate(f *fields, walStart pglogrepl.LSN) error {
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
		if r == nil || r.Table < 0 || !d.wants[r.Table].Truncate {
			continue
		}
		delivered = true
		if err := d.keepChange(r.Relation, &Change{Op: Truncate}, nil, walStart); err != nil {
			return err
		}
	}
	if !delivered {
		d.current().OtherOps++
	}
	return nil
}

// commitRow ends a transaction for a table that wants to know. It comes before
// the commit's position is given out, in the batch that carries it.
func (d *Decoder) commitRow(commit pglogrepl.LSN) {
	if d.ender == nil || d.ordinal == 0 {
		return
	}
	b := d.current()
	if b.slab == nil {
		d.place(b)
	}
	d.keep(d.ender, nil, nil, commit)
	b.slab.rows[len(b.slab.rows)-1].Change = &Change{Op: Commit}
}

// values reads a TupleData; its bytes are copied when they are to be kept.
func (f *fields) values(columns int, keep bool) []Value {
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
	values := make([]Value, n)
	for i := range values {
		switch kind := Kind(f.byte()); {
		case f.err != nil:
			return nil
		case kind == Null, kind == Unchanged:
			values[i].Kind = kind
		case kind == Text, kind == Binary:
			data := f.take(int(int32(f.uint32())))
			values[i] = Value{Kind: kind, Data: append(make([]byte, 0, len(data)), data...)}
		default:
			f.fail(fmt.Errorf("column kind %q", byte(kind)))
			return nil
		}
	}
	return values
}
