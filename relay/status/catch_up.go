package status

import (
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/wording"
)

// CatchUp is how fast a backlog is read.
type CatchUp struct {
	LeftBytes int64    `json:"left_bytes"`               // of WAL that is not read
	ReadPace  int64    `json:"read_bytes_per_second"`    // 0 until it is known
	WALPace   int64    `json:"written_bytes_per_second"` // by all sessions of the server
	Seconds   *float64 `json:"seconds"`                  // until the backlog is read; nil: not known, or it does not shrink

	paced bool // the paces are known
}

// shrinks reports whether the backlog gets smaller, as far as that is known.
func (c *CatchUp) shrinks() bool { return !c.paced || c.Seconds != nil }

// longer reports whether this backlog takes longer than another.
func (c *CatchUp) longer(other *CatchUp) bool {
	switch {
	case !other.shrinks() || !c.shrinks():
		return other.shrinks()
	case c.Seconds != nil && other.Seconds != nil:
		return *c.Seconds > *other.Seconds
	}
	return c.LeftBytes > other.LeftBytes
}

const (
	paceOver   = 30 * time.Second // of which the paces are the average
	paceAfter  = 10 * time.Second // of a backlog: nothing is said before
	backlogLog = 30 * time.Second // between two lines in the log
	logAfter   = 2 * time.Second  // a backlog that is read within it is not logged
)

// backlog follows how far the stream is behind the end of the WAL. It has no clock and is
// guarded by the monitor's lock.
type backlog struct {
	seen   seenEnd
	began  time.Time // zero: the relay is caught up, or has no session
	told   time.Time // when the log had it last
	points []point   // oldest first, a second apart, of the last paceOver
}

type point struct {
	at             time.Time
	server, reader wal.LSN
}

// observe takes where the server's WAL ends and how far it is read, while there is more to read.
func (b *backlog) observe(now time.Time, server, reader wal.LSN) {
	if b.began.IsZero() {
		b.began = now
	}
	if n := len(b.points); n > 0 && now.Sub(b.points[n-1].at) < time.Second {
		return
	}
	for len(b.points) > 0 && now.Sub(b.points[0].at) > paceOver {
		b.points = b.points[1:]
	}
	b.points = append(b.points, point{now, server, reader})
}

// catchUp is nil while there is no backlog, or only a short one.
func (b *backlog) catchUp() *CatchUp {
	if len(b.points) == 0 {
		return nil
	}
	first, last := b.points[0], b.points[len(b.points)-1]
	if last.at.Sub(b.began) < logAfter {
		return nil
	}
	c := &CatchUp{LeftBytes: max(0, int64(last.server)-int64(last.reader))}
	took := last.at.Sub(first.at)
	if took < paceAfter {
		return c
	}
	read, written := float64(last.reader-first.reader)/took.Seconds(), float64(last.server-first.server)/took.Seconds()
	c.ReadPace, c.WALPace, c.paced = int64(read), int64(written), true
	if gain := read - written; gain > read/20 {
		seconds := float64(c.LeftBytes) / gain
		c.Seconds = &seconds
	}
	return c
}

// text describes the backlog for people.
func (c *CatchUp) text() string {
	left := wording.Bytes(c.LeftBytes) + " of WAL left"
	switch {
	case c.Seconds != nil:
		return left + ", " + roughly(*c.Seconds)
	case c.shrinks():
		return left
	}
	return left + ", and it does not shrink: " + wording.Bytes(c.WALPace) + "/s are written, " + wording.Bytes(c.ReadPace) + "/s are read"
}

// roughly rounds a time as far as an estimate is worth.
func roughly(seconds float64) string {
	switch {
	case seconds < 60:
		return "less than a minute"
	case seconds < 3600:
		return "about " + wording.Count(int(seconds/60+0.5), "minute")
	case seconds < 48*3600:
		return "about " + wording.Count(int(seconds/3600+0.5), "hour")
	}
	return "more than two days"
}

// follow looks at how far the session is behind, and logs a backlog: once it is one, every half
// minute, and when it is read.
func (b *Monitor) follow(now time.Time) {
	b.mu.Lock()
	say := b.behind(now)
	b.mu.Unlock()
	if say != "" {
		b.log.Info().Msg(say)
	}
}

// behind returns what is to be logged. Call it with the lock held.
func (b *Monitor) behind(now time.Time) string {
	was := b.backlog
	if b.session == nil || b.caughtUp(now) {
		b.backlog = backlog{seen: was.seen}
		if b.session == nil || was.told.IsZero() {
			return ""
		}
		return "caught up, after " + now.Sub(was.began).Round(time.Second).String()
	}
	at := b.session.Positions()
	server := max(wal.LSN(at.Server), b.backlog.seen.end)
	if b.snapshot != nil {
		server = max(server, b.snapshot.WALEnd)
	}
	b.backlog.observe(now, server, wal.LSN(at.Received))
	c := b.backlog.catchUp()
	if c == nil || now.Sub(b.backlog.told) < backlogLog || b.state != Streaming {
		return ""
	}
	b.backlog.told = now
	return "catching up: " + c.text()
}
