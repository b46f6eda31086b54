package router

import (
	"time"

	"github.com/cdc-relay/cdc-relay/replication"
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

	// Row is where the record comes from, for errors and positions.
	Row *replication.Row
}

// Buffer collects records. Reset keeps its memory, so one Buffer per batch in
// flight makes routing free of allocations in the steady state. Owned by one
// goroutine at a time.
type Buffer struct {
	Records []Record

	// headers and bytes are the chunks in use. A chunk that is full is replaced,
	// never grown in place: records keep pointing into the one they were made in.
	headers []Header
	bytes   []byte
	first   int // where the headers of the record in the making begin
	retired int // bytes in replaced chunks
}

// What a Record and a Header take, for accounting.
const (
	recordSize = 160
	headerSize = 40
)

// Chunks begin at these sizes and double. Reset gives back a chunk that one
// unusual batch has blown up beyond maxKept bytes.
const (
	minHeaders = 64
	minBytes   = 4 << 10
	maxKept    = 4 << 20
)

// Size is the memory, in bytes, that the records hold beside their batch.
func (b *Buffer) Size() int {
	return len(b.Records)*recordSize + len(b.headers)*headerSize + len(b.bytes) + b.retired
}

// Reset empties the buffer. Records taken from it before become invalid.
func (b *Buffer) Reset() {
	clear(b.Records)
	clear(b.headers)
	b.Records, b.headers, b.bytes = b.Records[:0], b.headers[:0], b.bytes[:0]
	b.first, b.retired = 0, 0
	if cap(b.bytes) > maxKept {
		b.bytes = nil
	}
	if cap(b.headers)*headerSize > maxKept {
		b.headers = nil
	}
	if cap(b.Records)*recordSize > maxKept {
		b.Records = nil
	}
}

// header adds one header to the record in the making.
func (b *Buffer) header(key string, value []byte) {
	if len(b.headers) == cap(b.headers) {
		open := b.headers[b.first:]
		b.retired += b.first * headerSize
		chunk := make([]Header, 0, max(minHeaders, 2*cap(b.headers)))
		b.headers, b.first = append(chunk, open...), 0
	}
	b.headers = append(b.headers, Header{Key: key, Value: value})
}

// takeHeaders ends the record in the making.
func (b *Buffer) takeHeaders() []Header {
	end := len(b.headers)
	h := b.headers[b.first:end:end]
	b.first = end
	return h
}

// dropHeaders abandons the record in the making.
func (b *Buffer) dropHeaders() {
	clear(b.headers[b.first:])
	b.headers = b.headers[:b.first]
}

// tail returns an empty slice with room for at least n bytes behind the bytes in
// use. Append to it, then hand it to keep, before the next call of tail or keep.
func (b *Buffer) tail(n int) []byte {
	if cap(b.bytes)-len(b.bytes) < n || b.bytes == nil {
		b.retired += len(b.bytes)
		b.bytes = make([]byte, 0, max(minBytes, 2*cap(b.bytes), n))
	}
	return b.bytes[len(b.bytes):len(b.bytes):cap(b.bytes)]
}

// keep takes what was appended to the slice that tail gave. The result is never
// nil and stays valid until Reset.
func (b *Buffer) keep(p []byte) []byte {
	room := cap(b.bytes) - len(b.bytes)
	if cap(p) != room || (len(p) > 0 && &p[0] != &b.bytes[:len(b.bytes)+1][len(b.bytes)]) {
		b.retired += len(p) // append outgrew the tail, p has memory of its own
		return p[:len(p):len(p)]
	}
	start := len(b.bytes)
	b.bytes = b.bytes[:start+len(p)]
	return b.bytes[start:len(b.bytes):len(b.bytes)]
}

// copy keeps a copy of p.
func (b *Buffer) copy(p []byte) []byte {
	return b.keep(append(b.tail(len(p)), p...))
}
