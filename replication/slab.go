package replication

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// What one row costs beside its bytes, for Batch.Bytes.
const (
	rowSize   = int(unsafe.Sizeof(Row{}))
	valueSize = int(unsafe.Sizeof(Value{}))
	txnSize   = int(unsafe.Sizeof(Txn{}))
)

const (
	// arenaSlack lets the row that crosses MaxBatchBytes still fit the arena.
	arenaSlack = 16 << 10

	// valuesPerRow sizes a slab's values for tables of usual width. A wider one
	// ends batches sooner.
	valuesPerRow = 8
)

// slab is the memory of one or more batches: a full batch takes all of it, the
// single-row batches of a quiet stream share it. So what a waiting batch pins is
// near what Batch.Bytes says, whatever the size of transactions.
//
//  1. Nothing in it ever moves: its slices have fixed capacity, and what does not
//     fit gets an allocation of its own.
//  2. The decoder appends; batches already handed out read other ranges.
//  3. It goes back to its pool when the decoder and every batch have let go.
type slab struct {
	arena  []byte
	rows   []Row
	values []Value
	txns   []Txn

	refs atomic.Int32 // the decoder while it appends, and every batch with rows
	pool *sync.Pool
}

func newSlab(rows, bytes int) *slab {
	return &slab{
		arena:  make([]byte, 0, bytes+arenaSlack),
		rows:   make([]Row, 0, rows),
		values: make([]Value, 0, rows*valuesPerRow),
		txns:   make([]Txn, 0, rows),
	}
}

// worn says that a new batch would soon run out of room here.
func (s *slab) worn() bool {
	return cap(s.rows)-len(s.rows) < max(1, cap(s.rows)/4) ||
		cap(s.arena)-len(s.arena) < cap(s.arena)/4 ||
		cap(s.values)-len(s.values) < cap(s.values)/4
}

// full says that no further row of n columns fits.
func (s *slab) full(columns int) bool {
	return len(s.rows) == cap(s.rows) || cap(s.values)-len(s.values) < columns
}

// bytes gives n bytes that stay put. They count as used only after keep.
func (s *slab) bytes(n int) []byte {
	if free := cap(s.arena) - len(s.arena); n <= free {
		return s.arena[len(s.arena) : len(s.arena)+n : len(s.arena)+n]
	}
	return make([]byte, n)
}

// columns gives n values that stay put. They count as used only after keep.
func (s *slab) columns(n int) []Value {
	if free := cap(s.values) - len(s.values); n <= free {
		return s.values[len(s.values) : len(s.values)+n : len(s.values)+n]
	}
	return make([]Value, n)
}

// keep marks what bytes and columns gave as used.
func (s *slab) keep(data []byte, values []Value) {
	if n := len(data); n <= cap(s.arena)-len(s.arena) {
		s.arena = s.arena[:len(s.arena)+n]
	}
	if n := len(values); n <= cap(s.values)-len(s.values) {
		s.values = s.values[:len(s.values)+n]
	}
}

// stamp gives txn an address that lasts as long as the slab.
func (s *slab) stamp(txn Txn) *Txn {
	s.txns = append(s.txns, txn) // never moves: there are at most as many as rows
	return &s.txns[len(s.txns)-1]
}

func (s *slab) unref() {
	if s.refs.Add(-1) > 0 {
		return
	}
	clear(s.rows) // large values and relations must not live on in the pool
	clear(s.values)
	s.arena, s.rows, s.values, s.txns = s.arena[:0], s.rows[:0], s.values[:0], s.txns[:0]
	s.pool.Put(s)
}

var batches = sync.Pool{New: func() any { return new(Batch) }}

func newBatch() *Batch {
	b := batches.Get().(*Batch)
	b.release = releaseBatch
	return b
}

func releaseBatch(b *Batch) {
	s := b.slab
	*b = Batch{}
	batches.Put(b)
	if s != nil {
		s.unref()
	}
}
