package buckets

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Filter decides which streamed rows are sent. One goroutine uses it at a time.
type Filter struct {
	Keys    []Key // by table, as in the configuration
	Buckets int
	Next    int      // the first pending bucket; those before it are done
	Taken   Snapshot // of bucket Next-1. Older ones are not needed: what they see commits before the position from which is streamed

	Streamed Streamed // of the publication whose stream is filtered

	// LeftOut are the transactions of which rows of pending buckets were left out. Each run of a transaction's rows
	// adds it, so that one may be there more than once. The snapshot in which such a bucket is read has to see them:
	// a commit is in the stream as soon as it is in the WAL, and visible some time later.
	LeftOut []uint32

	Kept func(rows int) // is called with the number of rows of a batch that are sent; may be nil

	known map[*wal.Relation]columns
}

// Done notes that bucket Next is acknowledged. s is the snapshot in which it was read.
func (f *Filter) Done(s Snapshot) { f.Next, f.Taken = f.Next+1, s }

// Apply removes from a batch the rows that are not sent, and notes the last transaction in last. What the batch says of
// positions stays as it is: rows that are removed are as good as delivered.
func (f *Filter) Apply(b *wal.Batch, last *Txn) error {
	kept := b.Rows[:0]
	for i := range b.Rows {
		row := &b.Rows[i]
		if !f.divides(row) { // of a table that the backfill is not about
			kept = append(kept, *row)
			continue
		}
		sends, err := f.sends(row)
		if err != nil {
			return err
		}
		*last = TxnOf(row)
		if sends {
			kept = append(kept, *row)
		}
	}
	clear(b.Rows[len(kept):])
	b.Rows = kept
	if f.Kept != nil {
		f.Kept(len(kept))
	}
	return nil
}

func (f *Filter) sends(row *wal.Row) (bool, error) {
	bucket, err := f.Bucket(row)
	switch {
	case err != nil:
		return false, err
	case bucket >= f.Next:
		if xid := row.Txn.XID; len(f.LeftOut) == 0 || f.LeftOut[len(f.LeftOut)-1] != xid {
			f.LeftOut = append(f.LeftOut, xid)
		}
		return false, nil
	case bucket == f.Next-1:
		return !f.Streamed.shows(&f.Taken, row), nil
	}
	return true, nil
}

// divides reports whether a row is of a table that the backfill is about.
func (f *Filter) divides(row *wal.Row) bool {
	at := row.Relation.Table
	return at >= 0 && at < len(f.Keys) && f.Keys[at].Column != ""
}

// Late reports whether a streamed row is of bucket Next, which is read in s, and not in that: the stream sends it.
func (f *Filter) Late(s *Snapshot, row *wal.Row) (bool, error) {
	if !f.divides(row) {
		return false, nil
	}
	bucket, err := f.Bucket(row)
	if err != nil {
		return false, err
	}
	return bucket == f.Next && !f.Streamed.shows(s, row), nil
}

// Bucket is the bucket of a row, streamed or read.
func (f *Filter) Bucket(row *wal.Row) (int, error) {
	c, err := f.columns(row.Relation)
	if err != nil {
		return 0, err
	}
	return c.of(row, f.Buckets), nil
}

func (f *Filter) columns(rel *wal.Relation) (columns, error) {
	if c, ok := f.known[rel]; ok {
		return c, nil
	}
	if rel.Table < 0 || rel.Table >= len(f.Keys) {
		return columns{}, fmt.Errorf("table %s is not divided into buckets", rel.Qualified())
	}
	c, err := f.Keys[rel.Table].in(rel)
	if err != nil {
		return c, err
	}
	if f.known == nil {
		f.known = make(map[*wal.Relation]columns)
	}
	f.known[rel] = c
	return c, nil
}

// Forget drops from LeftOut what a snapshot sees: every later one does too.
func (f *Filter) Forget(s *Snapshot) {
	kept := f.LeftOut[:0]
	for _, xid := range f.LeftOut {
		if !s.Sees(xid) {
			kept = append(kept, xid)
		}
	}
	f.LeftOut = kept
}
