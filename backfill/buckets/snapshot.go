package buckets

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Snapshot is what pg_current_snapshot shows: which transactions are visible.
type Snapshot struct {
	min, max uint64 // all before min are visible, and none from max on
	open     []uint64
}

// ParseSnapshot reads min:max:open,open,…
func ParseSnapshot(text string) (s Snapshot, err error) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return s, fmt.Errorf("snapshot %q has not three parts", text)
	}
	number := func(digits string) (n uint64) {
		if err == nil {
			n, err = strconv.ParseUint(digits, 10, 64)
		}
		return n
	}
	s.min, s.max = number(parts[0]), number(parts[1])
	if parts[2] != "" {
		for _, each := range strings.Split(parts[2], ",") {
			s.open = append(s.open, number(each))
		}
	}
	if err == nil && s.min == 0 {
		err = fmt.Errorf("no transaction has the id 0")
	}
	if err != nil {
		return s, fmt.Errorf("snapshot %q: %w", text, err)
	}
	// The snapshot of a slot may have a greater min: its max is moved by some commits only (snapbuild.c). What lies
	// before min is visible all the same.
	s.max = max(s.max, s.min)
	return s, nil
}

// Sees reports whether a transaction that has committed is visible. xid is that of the transaction itself, as a
// commit in the stream has it: a snapshot does not list the subtransactions of an open one, so for their ids
// the answer would be wrong. It is within 2^31 transactions of the snapshot, as all that a server can tell apart are.
func (s *Snapshot) Sees(xid uint32) bool {
	id := uint64(int64(s.max) + int64(int32(xid-uint32(s.max))))
	return id < s.min || id < s.max && !slices.Contains(s.open, id)
}

// Has reports whether a snapshot sees every transaction that another one sees.
func (s *Snapshot) Has(other *Snapshot) bool {
	for id := s.min; id < other.max; id++ {
		if (id < other.min || !slices.Contains(other.open, id)) && (id >= s.max || slices.Contains(s.open, id)) {
			return false
		}
	}
	return true
}
