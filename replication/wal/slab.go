package wal

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// What one row costs beside its bytes, for Batch.Bytes.
const (
	rowSize   = int(unsafe.Sizeof(Row{}))
	ValueSize = int(unsafe.Sizeof(Value{}))
	TxnSize   = int(unsafe.Sizeof(Txn{}))
)

// Rows take their memory from chunks of these sizes: small enough that what is
// left over in a slab's last ones is little beside its rows, large enough that
// fetching one costs nothing for a row.
const (
	byteChunk  = 32 << 10
	valueChunk = 256
	txnChunk   = 64
)

var (
	byteChunks  = NewChunkPool[byte](byteChunk, false)
	valueChunks = NewChunkPool[Value](valueChunk, true)
	txnChunks   = NewChunkPool[Txn](txnChunk, false)
)

// Slab is the memory of one or more batches: a full batch takes all of it, the
// single-row batches of a quiet stream share it. It takes chunks as rows need
// them, so what a waiting batch pins is near what Batch.Bytes says, whatever the
// size of rows and transactions.
//
//  1. Nothing in it ever moves: rows and chunks have fixed capacity, and what does
//     not fit a chunk gets an allocation of its own.
//  2. The decoder appends; batches already handed out read other ranges.
//  3. It goes back to its pool, and its chunks to theirs, when the decoder and
//     every batch have let go.
type Slab struct {
	rows   []Row
	arena  []byte  // of the last chunk, as far as it is used
	values []Value // likewise
	txns   []Txn   // likewise
	used   int     // Bytes that rows were charged with
	limit  int     // of used
	lost   int     // Bytes at the end of a chunk that were too few for a row, not yet charged

	byteChunks  Chunks[byte]
	valueChunks Chunks[Value]
	txnChunks   Chunks[Txn]

	refs atomic.Int32 // the decoder while it appends, and every batch with rows
	pool *sync.Pool
}

// SlabPool gives slabs of one size.
type SlabPool struct{ pool sync.Pool }

// NewSlabPool makes slabs. A slab takes at most rows rows and is retired after bytes bytes.
func NewSlabPool(rows, bytes int) *SlabPool {
	p := new(SlabPool)
	p.pool.New = func() any {
		s := newSlab(rows, bytes)
		s.pool = &p.pool
		return s
	}
	return p
}

// Get gives a slab that nobody else appends to.
func (p *SlabPool) Get() *Slab {
	s := p.pool.Get().(*Slab)
	s.refs.Store(1)
	return s
}

func newSlab(rows, bytes int) *Slab { return &Slab{rows: make([]Row, 0, rows), limit: bytes} }

// NearlyFull reports whether a new batch would soon have to end here.
func (s *Slab) NearlyFull() bool {
	return cap(s.rows)-len(s.rows) < max(1, cap(s.rows)/4) || s.used > s.limit-s.limit/4
}

// Full reports whether no further row fits.
func (s *Slab) Full() bool { return len(s.rows) == cap(s.rows) }

// Bytes gives n bytes that stay put. They count as used only after Claim.
func (s *Slab) Bytes(n int) []byte {
	if n > byteChunk {
		return make([]byte, n)
	}
	if n > cap(s.arena)-len(s.arena) || s.arena == nil {
		s.lost += cap(s.arena) - len(s.arena)
		s.arena = s.byteChunks.Take(byteChunks)
	}
	return s.arena[len(s.arena) : len(s.arena)+n : len(s.arena)+n]
}

// Columns gives n values that stay put. They count as used only after Claim.
func (s *Slab) Columns(n int) []Value {
	if n > valueChunk {
		return make([]Value, n)
	}
	if n > cap(s.values)-len(s.values) || s.values == nil {
		s.lost += (cap(s.values) - len(s.values)) * ValueSize
		s.values = s.valueChunks.Take(valueChunks)
	}
	return s.values[len(s.values) : len(s.values)+n : len(s.values)+n]
}

// Claim marks what Bytes and Columns gave as used, and says what the row takes.
func (s *Slab) Claim(data []byte, values []Value) int {
	if n := len(data); n <= byteChunk {
		s.arena = s.arena[:len(s.arena)+n]
	}
	if n := len(values); n <= valueChunk {
		s.values = s.values[:len(s.values)+n]
	}
	size := len(data) + len(values)*ValueSize + rowSize + s.lost
	s.used += size
	s.lost = 0
	return size
}

// Stamp gives txn an address that lasts as long as the slab.
func (s *Slab) Stamp(txn Txn) *Txn {
	if len(s.txns) == cap(s.txns) {
		s.txns = s.txnChunks.Take(txnChunks)
	}
	s.txns = append(s.txns, txn)
	return &s.txns[len(s.txns)-1]
}

// Add appends a row, for the batch that was attached last.
func (s *Slab) Add(row Row) *Row {
	s.rows = append(s.rows, row)
	return &s.rows[len(s.rows)-1]
}

// Release drops one reference: that of Get, or that of a batch.
func (s *Slab) Release() {
	if s.refs.Add(-1) > 0 {
		return
	}
	clear(s.rows) // relations and large values must not live on in the pool
	s.byteChunks.Release()
	s.valueChunks.Release()
	s.txnChunks.Release()
	s.rows, s.arena, s.values, s.txns, s.used = s.rows[:0], nil, nil, nil, 0
	s.pool.Put(s)
}

var batches = sync.Pool{New: func() any { return new(Batch) }}

// NewBatch gives an empty batch, for one owner.
func NewBatch() *Batch {
	b := batches.Get().(*Batch)
	b.release = releaseBatch
	return b
}

// Attach gives the batch the rows that are added to s from now on.
func (b *Batch) Attach(s *Slab) {
	s.refs.Add(1)
	b.slab, b.first = s, len(s.rows)
}

// Attached reports whether the batch has room for rows.
func (b *Batch) Attached() bool { return b.slab != nil }

// Count is the number of rows so far.
func (b *Batch) Count() int { return len(b.slab.rows) - b.first }

// Seal sets Rows: nothing more is added to the batch.
func (b *Batch) Seal() {
	if s := b.slab; s != nil {
		b.Rows = s.rows[b.first:len(s.rows):len(s.rows)]
	}
}

func releaseBatch(b *Batch) {
	s := b.slab
	*b = Batch{}
	batches.Put(b)
	if s != nil {
		s.Release()
	}
}
