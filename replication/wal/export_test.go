package wal

// Held is the slab that a batch's rows live in, and the memory that it has taken.
func (b *Batch) Held() (slab *Slab, bytes int) {
	s := b.slab
	return s, cap(s.rows)*rowSize + total(s.byteChunks.Sizes()) + total(s.valueChunks.Sizes())*ValueSize + total(s.txnChunks.Sizes())*TxnSize
}

func total(sizes []int) (n int) {
	for _, size := range sizes {
		n += size
	}
	return n
}
