package progress

import (
	"encoding/binary"
	"maps"
	"sync"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Position is where a relay stands that has delivered so many rows: the n-th row commits at n and
// ends at n+1, so no position is zero.
func Position(rows uint64) wal.LSN { return wal.LSN(rows + 1) }

// RowsBefore is the number of rows that are delivered at a position.
func RowsBefore(at wal.LSN) uint64 { return uint64(at) - 1 }

// Track knows the places of the rows that are in flight. Any goroutine may use it.
type Track struct {
	mu      sync.Mutex
	place   Place             // everything up to here is acknowledged
	flights []*Spot           // after it, in order; the first may be partly acknowledged
	skipped map[uint64]string // rows after it that are left out, and why
}

// Spot is where the rows of one batch are.
type Spot struct {
	Table int
	First uint64 // number of the first row
	ends  []int  // of each row's tuple in data
	data  []byte
}

// Add appends a row's values in the order's columns.
func (s *Spot) Add(values [][]byte) {
	for _, v := range values {
		if v == nil {
			s.data = append(s.data, 0)
			continue
		}
		s.data = binary.AppendUvarint(s.data, uint64(len(v))+1)
		s.data = append(s.data, v...)
	}
	s.ends = append(s.ends, len(s.data))
}

// Last is the number of the last row.
func (s *Spot) Last() uint64 { return s.First + uint64(len(s.ends)) - 1 }

// Key distinguishes rows by their values in an order's columns.
func Key(values [][]byte) string {
	var s Spot
	s.Add(values)
	return string(s.data)
}

// KeyOf is Key of values that were taken out.
func KeyOf(at Tuple) string {
	values := make([][]byte, len(at))
	for i, v := range at {
		if v != nil {
			values[i] = append([]byte{}, *v...)
		}
	}
	return Key(values)
}

// At takes a row's values out again. It has none in an order without columns.
func (s *Spot) At(row uint64) Tuple {
	i := int(row - s.First)
	from := 0
	if i > 0 {
		from = s.ends[i-1]
	}
	var at Tuple
	for data := s.data[from:s.ends[i]]; len(data) > 0; {
		n, size := binary.Uvarint(data)
		data = data[size:]
		if n == 0 {
			at = append(at, nil)
			continue
		}
		text := string(data[:n-1])
		at, data = append(at, &text), data[n-1:]
	}
	return at
}

// Begin forgets what is in flight, and continues from a place.
func (t *Track) Begin(place Place) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.place, t.flights = place, nil
	t.forget(place.Rows)
}

// LeaveOut takes note of a row that is left out, and why. It may be called again for the row.
func (t *Track) LeaveOut(row uint64, why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if row <= t.place.Rows {
		return
	}
	if t.skipped == nil {
		t.skipped = make(map[uint64]string)
	}
	t.skipped[row] = why
}

// forget forgets the rows that were left out up to one: a place counts them.
func (t *Track) forget(rows uint64) {
	maps.DeleteFunc(t.skipped, func(row uint64, _ string) bool { return row <= rows })
}

// Fly takes note of a batch before it is handed on.
func (t *Track) Fly(s *Spot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.flights = append(t.flights, s)
}

// Now is the place up to which everything is acknowledged.
func (t *Track) Now() Place {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.place
}

// At is the place after so many rows. It is Now or after it, and no further than what is in flight.
func (t *Track) At(rows uint64) (Place, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.find(rows)
}

func (t *Track) find(rows uint64) (Place, bool) {
	if rows == t.place.Rows {
		return t.place, true
	}
	for _, s := range t.flights {
		if rows >= s.First && rows <= s.Last() {
			return t.count(Place{Rows: rows, Table: s.Table, Done: s.At(rows)}), true
		}
	}
	return Place{}, false
}

// count adds what was left out up to a place.
func (t *Track) count(place Place) Place {
	place.Skipped, place.First = t.place.Skipped, t.place.First
	first := place.Rows + 1
	for row, why := range t.skipped {
		if row > place.Rows {
			continue
		}
		if place.Skipped++; t.place.First == "" && row < first {
			first, place.First = row, why
		}
	}
	return place
}

// Confirm moves the place past so many rows.
func (t *Track) Confirm(rows uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	place, ok := t.find(rows)
	if !ok || place.Rows < t.place.Rows {
		return
	}
	t.place = place
	t.forget(rows)
	for len(t.flights) > 0 && t.flights[0].Last() <= rows {
		t.flights = t.flights[1:]
	}
}
