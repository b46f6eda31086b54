package sink

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// lz4Block is the block size of the Java producer, which every consumer knows.
const lz4Block = 64 << 10

// lz4Frame is the head of a frame: version 1, independent blocks of 64 KiB at
// most, no checksums (the record batch has its own), and the head's checksum.
var lz4Frame = [...]byte{0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82}

// lz4Raw marks a block that is stored as it is.
const lz4Raw = 1 << 31

// lz4Compressor writes lz4 frames straight from the records into the client's
// buffer. The library's own writer copies them into a block of 4 MiB first, keeps
// one such block for each batch under way, and checksums everything once more.
// Compression is the largest part of what a row costs, hence the block of our own too.
type lz4Compressor struct{ tables sync.Pool }

func newLz4Compressor() *lz4Compressor {
	return &lz4Compressor{sync.Pool{New: func() any { return new(lz4Table) }}}
}

// Compress implements kgo.Compressor.
func (c *lz4Compressor) Compress(dst *bytes.Buffer, src []byte, _ ...kgo.CompressFlag) ([]byte, kgo.CompressionCodecType) {
	blocks := (len(src) + lz4Block - 1) / lz4Block
	dst.Grow(len(lz4Frame) + len(src) + len(src)/255 + blocks*(4+16) + 4)
	table := c.tables.Get().(*lz4Table)
	defer c.tables.Put(table)
	out := append(dst.AvailableBuffer(), lz4Frame[:]...)
	for part := range slices.Chunk(src, lz4Block) {
		at := len(out)
		out = table.appendBlock(append(out, 0, 0, 0, 0), part)
		size := uint32(len(out) - at - 4)
		if int(size) >= len(part) { // it does not compress
			out = append(out[:at+4], part...)
			size = uint32(len(part)) | lz4Raw
		}
		binary.LittleEndian.PutUint32(out[at:], size)
	}
	return append(out, 0, 0, 0, 0), kgo.CodecLz4
}
