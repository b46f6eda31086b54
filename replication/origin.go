package replication

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
)

// Origin says where a position was taken: the same number means other rows on
// another cluster, and behind a fork on another timeline.
type Origin struct {
	SystemID string
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

// Fork is the end of a timeline: what was written behind At is no part of the
// timelines after it.
type Fork struct {
	Timeline int32
	At       pglogrepl.LSN
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

// TimelineOf is the timeline that a position was written on, as the server's history has
// it. A row that was committed before a fork keeps its timeline behind it.
func (o Origin) TimelineOf(position pglogrepl.LSN) int32 {
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
func (o Origin) Common(other Origin) pglogrepl.LSN {
	if o.SystemID == "" || o.SystemID != other.SystemID {
		return 0
	}
	a, b := o.line(), other.line()
	var common pglogrepl.LSN
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
	return append(slices.Clip(o.Forks), Fork{Timeline: o.Timeline, At: ^pglogrepl.LSN(0)})
}

func (c *Catalog) origin() Origin {
	return Origin{SystemID: c.SystemID, Timeline: c.Timeline, Forks: c.forks}
}

// readHistory asks for the forks before the present timeline.
func (c *Catalog) readHistory(ctx context.Context, conn *pgconn.PgConn) error {
	if c.Timeline <= 1 {
		return nil
	}
	history, err := pglogrepl.TimelineHistory(ctx, conn, c.Timeline)
	if err != nil {
		return classify("read the history of timeline "+strconv.Itoa(int(c.Timeline)), err)
	}
	c.forks, err = parseHistory(string(history.Content))
	if err != nil {
		return &Error{Kind: KindProtocol, Op: "read the history of timeline", Subject: strconv.Itoa(int(c.Timeline)), Err: err}
	}
	return nil
}

// parseHistory reads a timeline history file: a line for each timeline that was
// left, with its number, the position of the fork and a reason.
func parseHistory(content string) ([]Fork, error) {
	var forks []Fork
	for i, line := range strings.Split(content, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		words := strings.Fields(line)
		if len(words) < 2 {
			return nil, fmt.Errorf("line %d has no position", i+1)
		}
		timeline, err := strconv.ParseInt(words[0], 10, 32)
		if err != nil || timeline < 1 {
			return nil, fmt.Errorf("line %d begins with no timeline", i+1)
		}
		at, err := pglogrepl.ParseLSN(words[1])
		if err != nil {
			return nil, fmt.Errorf("line %d has no position: %w", i+1, err)
		}
		if n := len(forks); n > 0 && (int32(timeline) <= forks[n-1].Timeline || at < forks[n-1].At) {
			return nil, fmt.Errorf("line %d goes back", i+1)
		}
		forks = append(forks, Fork{int32(timeline), at})
	}
	return forks, nil
}
