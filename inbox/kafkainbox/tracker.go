package kafkainbox

// tracker knows up to where everything of a partition is done. It is pure. Offsets are taken in the
// order of the log and are done in any order. They have gaps where a topic is compacted, and go
// back where an unclean election of a leader cut the log; so places are counted, not offsets.
type tracker struct {
	next  int64 // offset before which everything is done; -1 until something is
	epoch int32 // leader epoch of the record before next
	first uint64
	open  []taken // from the place first on
}

type taken struct {
	offset int64
	epoch  int32
	done   bool
}

func newTracker() tracker { return tracker{next: -1, epoch: -1} }

// take returns the place of the record, for done.
func (t *tracker) take(offset int64, epoch int32) uint64 {
	t.open = append(t.open, taken{offset: offset, epoch: epoch})
	return t.first + uint64(len(t.open)) - 1
}

// done panics for a place that is not open, as that would move next past what is not done.
func (t *tracker) done(place uint64) {
	i := place - t.first
	if place < t.first || i >= uint64(len(t.open)) || t.open[i].done {
		panic("kafkainbox: a record is done that is not open") //nolint:forbidigo // our own invariant
	}
	t.open[i].done = true
	n := 0
	for n < len(t.open) && t.open[n].done {
		t.next, t.epoch = t.open[n].offset+1, t.open[n].epoch
		n++
	}
	t.open, t.first = t.open[n:], t.first+uint64(n)
}

// idle reports whether nothing is taken that is not done.
func (t *tracker) idle() bool { return len(t.open) == 0 }

// lowest is next, and before there is any the first offset that was taken; -1 where none was.
func (t *tracker) lowest() int64 {
	if t.next < 0 && len(t.open) > 0 {
		return t.open[0].offset
	}
	return t.next
}
