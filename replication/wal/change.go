package wal

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

// Noun names the change with its article.
func (o Op) Noun() string {
	switch o {
	case Update:
		return "an update"
	case Delete:
		return "a delete"
	case Truncate:
		return "a truncate"
	case Commit:
		return "the end of a transaction"
	}
	return "a change of kind " + string(o)
}

// Change describes a row that is not an insert.
type Change struct {
	Op Op

	// Old is the row before, parallel to Relation.Columns: whole, or the columns of the
	// replica identity and NULL for the rest; nil for an update that left the identity
	// alone, and for a truncate. Values of a delete are empty.
	Old   []Value
	Whole bool
}

// Operations names what is wanted beyond inserts, as publish has it.
func (w Wants) Operations() []string {
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
