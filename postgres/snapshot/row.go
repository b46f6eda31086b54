package snapshot

import (
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// NewRow is a row of the table as the stream would have it, for SetValues.
func (t *Table) NewRow() *wal.Row {
	return &wal.Row{Txn: &wal.Txn{Time: time.Now()}, Ordinal: 1, Relation: t.Relation, Values: make([]wal.Value, len(t.Relation.Columns))}
}

// SetValues makes the values of a row of the columns that Rows.Next gave. It copies none.
func SetValues(row *wal.Row, columns [][]byte) {
	for i, c := range columns {
		row.Values[i] = wal.Value{Kind: wal.Null}
		if c != nil {
			row.Values[i] = wal.Value{Kind: wal.Text, Data: c}
		}
	}
}

// TupleOf copies the values of an order that Rows.Next gave.
func TupleOf(values [][]byte) Tuple {
	at := make(Tuple, len(values))
	for i, v := range values {
		if v != nil {
			text := string(v)
			at[i] = &text
		}
	}
	return at
}
