package pgoutput

import "github.com/cdc-relay/cdc-relay/replication/wal"

// InTransaction reports whether a Begin came and its Commit has not.
func (d *Decoder) InTransaction() bool { return d.open }

// Full reports whether the batch should be taken before the next Decode. Decoding on is
// safe but lets the batch grow past its limits.
func (d *Decoder) Full() bool { return d.full }

// Empty reports whether Take would give nothing worth handing on.
func (d *Decoder) Empty() bool {
	b := d.batch
	return b == nil || !b.Attached() && b.Through == 0
}

// Take gives the rows and the position collected since the last Take; nil when
// nothing was read. The caller owns the batch.
func (d *Decoder) Take() *wal.Batch {
	b := d.batch
	if b == nil {
		return nil
	}
	b.Seal()
	b.Open, d.carried = d.open, d.open
	// The next batch may outlive this one's slab, so it gets its own Txn.
	d.batch, d.stamped, d.full = nil, nil, false
	return b
}

func (d *Decoder) current() *wal.Batch {
	if d.batch == nil {
		d.batch = wal.NewBatch()
	}
	return d.batch
}

// room gives b a slab to put rows into.
func (d *Decoder) room(b *wal.Batch) *wal.Slab {
	if b.Attached() {
		return d.slab
	}
	if d.slab != nil && d.slab.NearlyFull() {
		d.slab.Release()
		d.slab = nil
	}
	if d.slab == nil {
		d.slab = d.pool.Get()
	}
	b.Attach(d.slab)
	return d.slab
}
