package replication

import "sync"

// slabPool gives slabs of one size.
type slabPool struct{ sync.Pool }

func newSlabPool(rows, bytes int) *slabPool {
	p := new(slabPool)
	p.New = func() any {
		s := newSlab(rows, bytes)
		s.pool = &p.Pool
		return s
	}
	return p
}

func (p *slabPool) get() *slab {
	s := p.Get().(*slab)
	s.refs.Store(1)
	return s
}

// InTransaction says that a Begin came and its Commit has not.
func (d *Decoder) InTransaction() bool { return d.open }

// Full says that the batch should be taken before the next Decode. Decoding on is
// safe but lets the batch grow past its limits.
func (d *Decoder) Full() bool { return d.full }

// Empty says that Take would give nothing worth handing on.
func (d *Decoder) Empty() bool {
	b := d.batch
	return b == nil || b.slab == nil && b.Through == 0
}

// Take gives the rows and the position collected since the last Take; nil when
// nothing was read. The caller owns the batch.
func (d *Decoder) Take() *Batch {
	b := d.batch
	if b == nil {
		return nil
	}
	if s := b.slab; s != nil {
		b.Rows = s.rows[d.first:len(s.rows):len(s.rows)]
	}
	b.Open, d.carried = d.open, d.open
	// The next batch may outlive this one's slab, so it gets its own Txn.
	d.batch, d.stamped, d.full = nil, nil, false
	return b
}

func (d *Decoder) current() *Batch {
	if d.batch == nil {
		d.batch = newBatch()
	}
	return d.batch
}

// place gives b room for rows.
func (d *Decoder) place(b *Batch) {
	if d.slab != nil && d.slab.worn() {
		d.slab.unref()
		d.slab = nil
	}
	if d.slab == nil {
		d.slab = d.pool.get()
	}
	d.slab.refs.Add(1)
	b.slab, d.first = d.slab, len(d.slab.rows)
}
