package record

import (
	"math/bits"
	"time"
	"unsafe"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/tracing"
)

// AutoPartition leaves the choice of partition to the key.
const AutoPartition int32 = -1

// Header is one record header. The order of headers is part of the record.
type Header struct {
	Key   string
	Value []byte // nil is a null value
}

// Record is what goes to Kafka for one row. Key, Value and header values may
// alias the row's batch, so a Record lives no longer than the batch.
type Record struct {
	Topic     string
	Key       []byte // nil is a null key
	Value     []byte // nil is a null value (a tombstone on a compacted topic)
	Headers   []Header
	Timestamp time.Time // zero: the time of producing
	Partition int32     // AutoPartition: murmur2 of the key, as the Java client does
	Nth       uint8     // among the records of its row, from 0 on
	Span      uint16    // its place in the buffer's Spans, from 1 on; zero: the record is not traced

	// Row is where the record comes from, for errors and positions. It is nil for a heartbeat.
	Row *wal.Row
}

// Buffer collects records. It takes memory in chunks from pools and gives it back
// with Reset, so routing allocates nothing in the steady state, and what a Buffer
// holds is near what Size says. Owned by one goroutine at a time.
type Buffer struct {
	Records []Record

	// Spans are those of the records that are traced.
	Spans []*tracing.Span

	// headers and bytes are the chunks in use, the last of those below. A chunk that
	// is full is replaced, never grown in place: records keep pointing into the one
	// they were made in.
	headers []Header
	bytes   []byte
	first   int // where the headers of the record in the making begin

	headerChunks wal.Chunks[Header]
	byteChunks   wal.Chunks[byte]
	used         int  // bytes and headers of the records, in bytes
	few          bool // Reserve was called for few records: the chunks are small
}

// What a Record and a Header take, for accounting.
const (
	recordSize = int(unsafe.Sizeof(Record{}))
	headerSize = int(unsafe.Sizeof(Header{}))
)

const (
	headerChunk = 256
	byteChunk   = 16 << 10

	// While the relay is caught up a buffer has one row, and during an outage thousands of
	// such buffers wait. With the chunks of a full one each would hold 25 times what Size
	// says.
	fewRecords = 4
	fewHeaders = 8
	fewBytes   = 1 << 10

	// maxKept bounds the memory for records that Reset keeps.
	maxKept = 4 << 20
)

var (
	headerChunks = wal.NewChunkPool[Header](headerChunk, true)
	byteChunks   = wal.NewChunkPool[byte](byteChunk, false)

	fewHeadersChunks = wal.NewChunkPool[Header](fewHeaders, true)
	fewBytesChunks   = wal.NewChunkPool[byte](fewBytes, false)
)

// Size is the memory, in bytes, that the records hold beside their batch.
func (b *Buffer) Size() int { return len(b.Records)*recordSize + b.used }

// Reserve makes room for n records more, so that Records grows to no more than is
// needed. An empty buffer takes less memory where few are reserved.
func (b *Buffer) Reserve(n int) {
	b.few = len(b.Records) == 0 && n <= fewRecords
	if cap(b.Records)-len(b.Records) < n {
		b.Records = append(make([]Record, 0, Room(len(b.Records)+n)), b.Records...)
	}
}

// Room is the capacity of an array that is kept for other batches of n elements or fewer.
func Room(n int) int {
	if n <= 64 {
		return 1 << bits.Len(uint(max(n, 1)-1))
	}
	return (n + 63) &^ 63
}

// Reset empties the buffer. Records taken from it before become invalid.
func (b *Buffer) Reset() {
	clear(b.Records)
	b.Records = b.Records[:0]
	if cap(b.Records)*recordSize > maxKept {
		b.Records = nil
	}
	b.headerChunks.Release()
	b.byteChunks.Release()
	b.Spans = nil // whoever sent records may still hold it
	b.headers, b.bytes, b.first, b.used, b.few = nil, nil, 0, 0, false
}

// Header adds one header to the record in the making.
func (b *Buffer) Header(key string, value []byte) {
	if len(b.headers) == cap(b.headers) {
		b.moreHeaders()
	}
	b.headers = append(b.headers, Header{Key: key, Value: value})
	b.used += headerSize
}

// moreHeaders moves the headers of the record in the making to where there is
// room.
func (b *Buffer) moreHeaders() {
	open := b.headers[b.first:]
	switch {
	case b.few && len(open) < fewHeaders/2:
		b.headers = append(b.headerChunks.Take(fewHeadersChunks), open...)
	case !b.few && len(open) < headerChunk/2:
		b.headers = append(b.headerChunks.Take(headerChunks), open...)
	default:
		b.headers = append(make([]Header, 0, 4*len(open)), open...)
	}
	b.first = 0
}

// TakeHeaders ends the record in the making.
func (b *Buffer) TakeHeaders() []Header {
	end := len(b.headers)
	h := b.headers[b.first:end:end]
	b.first = end
	return h
}

// DropHeaders abandons the record in the making.
func (b *Buffer) DropHeaders() {
	b.used -= (len(b.headers) - b.first) * headerSize
	clear(b.headers[b.first:])
	b.headers = b.headers[:b.first]
}

// Tail returns an empty slice with room for at least n bytes after the bytes in
// use. Append to it, then hand it to Claim, before the next call of Tail or Claim.
func (b *Buffer) Tail(n int) []byte {
	if n > byteChunk || b.few && n > fewBytes {
		return make([]byte, 0, n)
	}
	switch {
	case b.bytes != nil && cap(b.bytes)-len(b.bytes) >= n:
	case b.few:
		b.bytes = b.byteChunks.Take(fewBytesChunks)
	default:
		b.bytes = b.byteChunks.Take(byteChunks)
	}
	return b.bytes[len(b.bytes):len(b.bytes):cap(b.bytes)]
}

// Claim takes what was appended to the slice that Tail gave. The result is never
// nil and stays valid until Reset.
func (b *Buffer) Claim(p []byte) []byte {
	b.used += len(p)
	room := cap(b.bytes) - len(b.bytes)
	if cap(p) != room || (len(p) > 0 && &p[0] != &b.bytes[:len(b.bytes)+1][len(b.bytes)]) {
		return p[:len(p):len(p)] // memory of its own: too long for a chunk, or append outgrew the tail
	}
	start := len(b.bytes)
	b.bytes = b.bytes[:start+len(p)]
	return b.bytes[start:len(b.bytes):len(b.bytes)]
}

// Copy keeps a copy of p.
func (b *Buffer) Copy(p []byte) []byte {
	return b.Claim(append(b.Tail(len(p)), p...))
}

// IdHeader carries the event id; no headers column can add to it or replace it.
const IdHeader = "id"

// IDColumn is the column whose text the header id is. Zero: it is not the text of one column.
type IDColumn struct {
	Name string
	Type uint32 // type OID
}

// OwnPrefix begins the names of headers that say where a record comes from: its position, its run, why it is a
// dead letter. A headers column sets none of them: a consumer would take what a row says for the relay's word.
const OwnPrefix = "cdc-relay-"
