package sink

import (
	"bytes"
	"encoding/binary"
	"sync"

	"github.com/pierrec/lz4/v4"
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
type lz4Compressor struct{ pool sync.Pool }

func newLz4Compressor() *lz4Compressor {
	return &lz4Compressor{sync.Pool{New: func() any { return new(lz4.Compressor) }}}
}

// Compress implements kgo.Compressor.
func (c *lz4Compressor) Compress(dst *bytes.Buffer, src []byte, _ ...kgo.CompressFlag) ([]byte, kgo.CompressionCodecType) {
	blocks := (len(src) + lz4Block - 1) / lz4Block
	dst.Grow(len(lz4Frame) + len(src) + 4*(blocks+1) + lz4Block/255 + 16)
	block := c.pool.Get().(*lz4.Compressor)
	defer c.pool.Put(block)
	out := append(dst.AvailableBuffer(), lz4Frame[:]...)
	for len(src) > 0 {
		part := src[:min(lz4Block, len(src))]
		src = src[len(part):]
		at := len(out)
		out = append(out, 0, 0, 0, 0) // the block's length
		n, err := block.CompressBlock(part, out[len(out):cap(out)])
		if err != nil {
			return nil, kgo.CodecError
		}
		if n == 0 || n >= len(part) { // it does not compress
			binary.LittleEndian.PutUint32(out[at:], uint32(len(part))|lz4Raw)
			out = append(out, part...)
			continue
		}
		binary.LittleEndian.PutUint32(out[at:], uint32(n))
		out = out[:len(out)+n]
	}
	return append(out, 0, 0, 0, 0), kgo.CodecLz4
}
