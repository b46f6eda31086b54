package wal

import "sync"

// ChunkPool has free chunks of one size.
type ChunkPool[T any] struct {
	size     int
	pointers bool
	free     sync.Pool // of *[]T, each with a length of size
}

// NewChunkPool makes a pool of chunks with size elements. Elements with pointers are cleared before
// a chunk goes back, so that what they point to does not live on in the pool.
func NewChunkPool[T any](size int, pointers bool) *ChunkPool[T] {
	p := &ChunkPool[T]{size: size, pointers: pointers}
	p.free.New = func() any {
		chunk := make([]T, size)
		return &chunk
	}
	return p
}

// Chunks are the chunks that one owner has taken from pools. The zero value has none.
type Chunks[T any] struct{ taken []takenChunk[T] }

type takenChunk[T any] struct {
	from  *ChunkPool[T]
	chunk *[]T
}

// Take takes a chunk, as an empty slice. It is the owner's until Release.
func (c *Chunks[T]) Take(p *ChunkPool[T]) []T {
	chunk := p.free.Get().(*[]T)
	c.taken = append(c.taken, takenChunk[T]{p, chunk})
	return (*chunk)[:0]
}

// Release gives all chunks back.
func (c *Chunks[T]) Release() {
	for i, t := range c.taken {
		if t.from.pointers {
			clear(*t.chunk)
		}
		t.from.free.Put(t.chunk)
		c.taken[i] = takenChunk[T]{}
	}
	c.taken = c.taken[:0]
}

// Sizes are those of the taken chunks, in elements.
func (c *Chunks[T]) Sizes() []int {
	sizes := make([]int, len(c.taken))
	for i, t := range c.taken {
		sizes[i] = t.from.size
	}
	return sizes
}
