package wal

import (
	"cmp"
	"fmt"
	"time"
)

// Kind says how a Value is represented.
type Kind byte

// The kinds of a column value, by their byte in pgoutput's TupleData.
const (
	Null   Kind = 'n' // SQL NULL; Data is nil
	Text   Kind = 't' // Data is the type's text form under the pinned session settings
	Binary Kind = 'b' // Data is the type's send format

	// Unchanged is a TOASTed value that an update left alone, so that the log has
	// neither the old nor the new one; Data is nil. Inserts have none.
	Unchanged Kind = 'u'
)

// Value is one column of a Row.
type Value struct {
	Kind Kind
	Data []byte // non-nil unless Kind is Null
}

// Column describes one column as the server announced it.
type Column struct {
	Name     string
	Type     uint32 // type OID
	TypeMod  int32
	TypeName string // from a Type message or the catalog; empty for built-in types seen only on the stream

	// Known from the catalog alone.
	Composite bool // a row type
	Array     bool
}

// Relation is one version of a table's shape. It is immutable: a changed table
// gets a new Relation, so comparing pointers shows whether the shape changed.
type Relation struct {
	OID       uint32
	Namespace string
	Name      string
	Columns   []Column
	Table     int // index into postgres.Config.Tables; -1 for a table that the configuration does not name

	// Hidden has the table's columns that the stream lacks: `why; the way out`, to be
	// read after the column's name. It is known from the catalog alone.
	Hidden map[string]string

	// Meta is parallel to Columns, and nil for a table that did not ask for it.
	Meta []ColumnMeta
}

// Txn is the transaction that a row belongs to.
type Txn struct {
	XID    uint32
	Commit LSN       // start of the commit record; strictly increasing on one timeline. Of a message outside any transaction: see Place
	End    LSN       // end of the commit record; zero when the commit is not in the batch
	Time   time.Time // commit time by the server's clock; not monotone, never an order; zero for a message outside any transaction
}

// Row is one decoded insert, or another change for which its table asked. It is
// valid until its Batch is released; nothing in it aliases the receive buffer.
type Row struct {
	Txn      *Txn
	LSN      LSN    // WAL position of the change; not an identity: rows of one COPY share it
	Ordinal  uint64 // position of the row in its transaction over all tables, counted from 1
	Relation *Relation
	Values   []Value // parallel to Relation.Columns

	Change *Change // nil: an insert
}

// Outside reports whether the row is a message outside any transaction.
func (r *Row) Outside() bool { return r.Txn.Time.IsZero() }

// Place names a row of one history by its commit and its number in the transaction. Rows of one
// transaction, whose table may change inside it, share the commit.
type Place struct {
	Commit  LSN
	Ordinal uint64
}

// Place names the row. The position of a message outside any
// transaction is the end of its record, and there the next commit record may begin:
// `BEGIN; INSERT …; SELECT pg_logical_emit_message(false, …); COMMIT`. So it is named by
// its last byte, where nothing commits. A row that was read from its table has none.
func (r *Row) Place() Place {
	if r.Outside() && r.Txn.Commit > 0 {
		return Place{r.Txn.Commit - 1, r.Ordinal}
	}
	return Place{r.Txn.Commit, r.Ordinal}
}

// Compare orders places as their rows come in the stream.
func (p Place) Compare(q Place) int {
	return cmp.Or(cmp.Compare(p.Commit, q.Commit), cmp.Compare(p.Ordinal, q.Ordinal))
}

func (p Place) String() string { return fmt.Sprintf("%s/%d", p.Commit, p.Ordinal) }

// Batch is a slice of the stream: rows of one or more committed transactions.
//
//  1. Rows follow commit order, and WAL order within a transaction.
//  2. Batches of one Stream arrive in stream order, and every byte before a
//     batch's end was in that batch or an earlier one.
//  3. Through is the end of the last transaction or keep-alive that lies wholly
//     at or before this batch, or zero when there is none: rows after it belong
//     to a transaction that continues in the next batch. Once this and every
//     earlier batch is delivered, Through may be confirmed, and nothing else.
//  4. A batch without rows carries only Through and counts: the server is idle,
//     or the transactions touched other tables.
//
// A Batch has one owner at a time. The last one calls Release, after which the
// rows, their values and the batch itself must not be touched.
type Batch struct {
	Rows    []Row
	Bytes   int // memory that the rows hold until Release
	Through LSN

	ThroughTime  time.Time // commit time of the transaction that ends at Through; zero when that is a keep-alive
	Transactions int       // commits that ended in this batch
	Received     int       // bytes of the replication stream
	Foreign      int       // inserts into tables that the configuration does not name, skipped
	OtherOps     int       // updates, deletes and truncates, skipped
	Open         bool      // ends inside a transaction
	Backlog      bool      // the stream is far behind: more comes at once

	// Closes is the end of the transaction that the batch before left open; zero when
	// there was none, or it continues.
	Closes LSN

	slab    *Slab // where the rows live; nil without rows
	first   int   // of them, in the slab
	release func(*Batch)
}

// Release gives the batch's memory back. Call it once, when nothing refers to
// the rows any more.
func (b *Batch) Release() {
	if b.release != nil {
		b.release(b)
	}
}

// Qualified is the table's name without quotes, as messages, records and dead letters have it.
func (r *Relation) Qualified() string { return r.Namespace + "." + r.Name }

// ColumnMeta is what only the catalog knows about a column, as it is when the
// server announces the table: at the first row of a session, and after a change.
type ColumnMeta struct {
	NotNull bool
	Default string // expression, as pg_get_expr prints it; empty: none
	Key     int    // position in the primary key, or else in a unique index, from 1; 0: none

	// The type, beneath any domains.
	Base     uint32
	BaseMod  int32
	TypeName string
	TypeKind byte   // pg_type.typtype: b, e (an enum), c, r, m, p
	Labels   string // of an enum or of an array's, joined with commas, in the order in which they were made

	Elem     uint32 // of an array; zero: none
	ElemName string
	ElemKind byte
}

// OpenRows counts the rows at the end of a batch whose transaction continues after it.
func (b *Batch) OpenRows() int {
	n := len(b.Rows)
	switch {
	case !b.Open || n == 0 || b.Rows[n-1].Txn.End != 0: // the rows of the open one may have been removed
		return 0
	case b.Rows[0].Txn == b.Rows[n-1].Txn:
		return n
	}
	for b.Rows[n-1].Txn == b.Rows[len(b.Rows)-1].Txn {
		n--
	}
	return len(b.Rows) - n
}

// EndBefore is the end of what precedes a row in its batch.
func EndBefore(rows []Row, i int) LSN {
	row := &rows[i-1]
	if row.Outside() {
		return row.Txn.Commit // it has no other
	}
	return row.Txn.End
}

// RowFrom is the index of the first row that commits at a position or later.
func RowFrom(rows []Row, commit LSN) int {
	for i := range rows {
		if rows[i].Place().Commit >= commit {
			return i
		}
	}
	return len(rows)
}
