package match

import (
	"bufio"
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"unsafe"
)

// sorter sorts more entries than fit into memory: by key, topic and table, then those with a
// record in the order of the commits as far as that is known, then those without, newest first.
// Rows of one rank are in the order of their records: so none of them seems to be out of order beside
// another, and each is compared with the record of a lower rank that is furthest behind.
type sorter struct {
	budget *budget
	limit  int // entries in memory
	held   []seen
	runs   []*run
}

type run struct {
	file   *os.File
	length int64
	reader *bufio.Reader
	head   seen
}

func newSorter(b *budget, memory int) *sorter {
	return &sorter{budget: b, limit: max(1, memory/int(unsafe.Sizeof(seen{})))}
}

func compare(a, b *seen) int {
	if n := cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Table, b.Table)); n != 0 {
		return n
	}
	switch {
	case a.found && b.found:
		return cmp.Or(cmp.Compare(a.lsn, b.lsn), cmp.Compare(a.seq, b.seq), cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.offset, b.offset))
	case a.found:
		return -1
	case b.found:
		return 1
	}
	if n := cmp.Compare(b.Rank, a.Rank); n != 0 || a.NoValue == b.NoValue {
		return cmp.Or(n, cmp.Compare(b.Number, a.Number))
	}
	if a.NoValue { // compaction may have removed the others of its rank
		return -1
	}
	return 1
}

func (s *sorter) add(e *seen) error {
	if len(s.held) >= s.limit {
		if err := s.spill(); err != nil {
			return err
		}
	}
	s.held = append(s.held, *e)
	return nil
}

func (s *sorter) sort() {
	slices.SortFunc(s.held, func(a, b seen) int { return compare(&a, &b) })
}

// spill writes what is held as one sorted run.
func (s *sorter) spill() error {
	s.sort()
	file, err := s.budget.file()
	if err != nil {
		return err
	}
	r := &run{file: file}
	s.runs = append(s.runs, r)
	buf := make([]byte, 0, 256<<10)
	for i := range s.held {
		buf = s.held[i].append(buf)
		if len(buf)+seenSize <= cap(buf) && i+1 < len(s.held) {
			continue
		}
		n, err := file.Write(buf)
		r.length += int64(n)
		if err := s.budget.wrote(n, err); err != nil {
			return err
		}
		buf = buf[:0]
	}
	s.held = s.held[:0]
	return nil
}

// each visits all entries in order.
func (s *sorter) each(visit func(*seen) error) error {
	defer s.close()
	if len(s.runs) == 0 {
		s.sort()
		for i := range s.held {
			if err := visit(&s.held[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if err := s.spill(); err != nil {
		return err
	}
	s.held = nil
	var merged runs
	for _, r := range s.runs {
		if _, err := r.file.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("read entries: %w", err)
		}
		r.reader = bufio.NewReaderSize(r.file, 64<<10)
		if more, err := r.next(); err != nil {
			return err
		} else if more {
			merged = append(merged, r)
		}
	}
	heap.Init(&merged)
	for len(merged) > 0 {
		if err := visit(&merged[0].head); err != nil {
			return err
		}
		more, err := merged[0].next()
		if err != nil {
			return err
		}
		if more {
			heap.Fix(&merged, 0)
		} else {
			heap.Pop(&merged)
		}
	}
	return nil
}

func (r *run) next() (bool, error) {
	var entry [seenSize]byte
	if _, err := io.ReadFull(r.reader, entry[:]); errors.Is(err, io.EOF) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("read entries: %w", err)
	}
	r.head.parse(entry[:])
	return true, nil
}

func (s *sorter) close() {
	for _, r := range s.runs {
		s.budget.done(r.file, r.length)
	}
	s.runs, s.held = nil, nil
}

// runs is a heap.
type runs []*run

func (r runs) Len() int           { return len(r) }
func (r runs) Less(i, j int) bool { return compare(&r[i].head, &r[j].head) < 0 }
func (r runs) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *runs) Push(x any)        { *r = append(*r, x.(*run)) }
func (r *runs) Pop() any {
	last := len(*r) - 1
	x := (*r)[last]
	*r = (*r)[:last]
	return x
}
