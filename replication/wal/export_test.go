package wal

// Held is the slab that a batch's rows live in, and the memory that it has taken.
func (b *Batch) Held() (slab *Slab, bytes int) {
	s := b.slab
	return s, cap(s.rows)*rowSize + len(s.byteChunks)*byteChunk + len(s.valueChunks)*valueChunk*ValueSize + len(s.txnChunks)*txnChunk*TxnSize
}
