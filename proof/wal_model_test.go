package proof

import "github.com/cdc-relay/cdc-relay/replication/wal"

// segmentSize is that of the simulated server: four pages, so that segments begin often.
const segmentSize = 4 * 8192

// Bytes of records in a page, in the first page of a segment, and in a segment.
const (
	pageUsable    = 8192 - 24
	firstUsable   = 8192 - 40
	segmentUsable = firstUsable + (segmentSize/8192-1)*pageUsable
)

// insertPosition is XLogBytePosToRecPtr of xlog.c: where the next record begins when n bytes
// of records were written.
func insertPosition(n uint64) wal.LSN { return position(n, true) }

// endPosition is XLogBytePosToEndRecPtr: where the last of them ends.
func endPosition(n uint64) wal.LSN { return position(n, false) }

func position(n uint64, header bool) wal.LSN {
	start, left := n/segmentUsable*segmentSize, n%segmentUsable
	size := uint64(40)
	if left >= firstUsable {
		start, left, size = start+8192, left-firstUsable, 24
		start, left = start+left/pageUsable*8192, left%pageUsable
	}
	if left == 0 && !header {
		return wal.LSN(start)
	}
	return wal.LSN(start + left + size)
}

// pageLeft are the bytes that fit into the page where the next record begins.
func pageLeft(n uint64) uint64 {
	left := n % segmentUsable
	if left < firstUsable {
		return firstUsable - left
	}
	return pageUsable - (left-firstUsable)%pageUsable
}
