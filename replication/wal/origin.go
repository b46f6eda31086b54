package wal

import (
	"slices"
)

// Origin says where a position was taken: the same number means other rows on
// another cluster, and after a fork on another timeline.
type Origin struct {
	SystemID string
	Database string // OID of the database that the session is in: it outlives a rename
	Timeline int32
	Forks    []Fork // of the timelines before this one, oldest first
}

// Lineage is what a position belongs to: the same number is another row on another cluster
// or timeline.
type Lineage struct {
	SystemID string
	Timeline int32
}

// Lineage is that of positions taken here.
func (o Origin) Lineage() Lineage { return Lineage{o.SystemID, o.Timeline} }

// Fork is the end of a timeline: what was written after At is no part of the
// timelines after it.
type Fork struct {
	Timeline int32
	At       LSN
}

// Fork finds where the history that led to here left a timeline. It is false for
// one that is no part of it.
func (o Origin) Fork(timeline int32) (Fork, bool) {
	for _, f := range o.Forks {
		if f.Timeline == timeline {
			return f, true
		}
	}
	return Fork{}, false
}

// Begin is where a timeline of the history begins. It is zero for the first one, and for one that is no
// part of it.
func (o Origin) Begin(timeline int32) LSN {
	line := o.line()
	for i, f := range line[1:] {
		if f.Timeline == timeline {
			return line[i].At
		}
	}
	return 0
}

// TimelineOf is the timeline that a position was written on, as the server's history has
// it. A row that was committed before a fork keeps its timeline after it.
func (o Origin) TimelineOf(position LSN) int32 {
	for _, f := range o.Forks {
		if position < f.At {
			return f.Timeline
		}
	}
	return o.Timeline
}

// Common is the position up to which two histories have the same WAL: what commits before it
// is the same on both. It is zero for different clusters, and the highest position where
// both are of one timeline. Two servers that were promoted from one history may have given
// their timelines the same number, so the forks count too.
func (o Origin) Common(other Origin) LSN {
	if o.SystemID == "" || o.SystemID != other.SystemID {
		return 0
	}
	a, b := o.line(), other.line()
	var common LSN
	for i := range min(len(a), len(b)) {
		if a[i].Timeline != b[i].Timeline {
			break
		}
		common = min(a[i].At, b[i].At)
		if a[i].At != b[i].At {
			break
		}
	}
	return common
}

// line is the history with its present timeline, which has no end yet.
func (o Origin) line() []Fork {
	return append(slices.Clip(o.Forks), Fork{Timeline: o.Timeline, At: ^LSN(0)})
}
