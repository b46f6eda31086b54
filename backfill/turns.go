package backfill

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/backfill/progress"
	"github.com/cdc-relay/cdc-relay/wording"
)

// turns know whether an online backfill sends a bucket or streams, and for how long it has streamed. Any goroutine may
// use them.
type turns struct {
	mu        sync.Mutex
	streaming bool
	since     time.Time     // when it began to stream, while it does
	before    time.Duration // that it streamed for, in earlier turns
	sent      int           // buckets, when it began to stream
	rows      int           // that it has streamed since
}

// stream begins a turn of the stream, after so many buckets.
func (t *turns) stream(sent int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.streaming, t.since, t.sent, t.rows = true, time.Now(), sent, 0
}

// send ends it.
func (t *turns) send() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.streaming {
		t.before += time.Since(t.since)
	}
	t.streaming = false
}

// add takes note of rows that are streamed.
func (t *turns) add(rows int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows += rows
}

// turn is what turns are like at one moment.
type turn struct {
	streaming bool
	sent      int           // while it streams: buckets that are sent
	rows      int           // while it streams: those of this turn
	streamed  time.Duration // in all turns
}

func (t *turns) now() turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := turn{t.streaming, t.sent, t.rows, t.before}
	if t.streaming {
		now.streamed += time.Since(t.since)
	}
	return now
}

// pace is how far the reporting call came. The time in which it streams from the slot is none of sending rows.
type pace struct {
	sent, before uint64 // rows, now and at the beginning of the call
	took         time.Duration
}

// rate is the rows a second; zero: not known.
func (p pace) rate() float64 {
	if p.took <= 0 {
		return 0
	}
	return float64(p.sent-p.before) / p.took.Seconds()
}

// progressLine says how far it is since the beginning of the call.
func (w *work) progressLine(p pace, seen, last walSeen) Line {
	var total int64
	for _, n := range w.counts {
		total += n.rows
	}
	if w.online == nil && w.resumed { // resumed changes between buckets
		total += int64(w.progress.Rows)
	}
	line := Line{What: "progress", Rows: p.sent, Of: total, WALHeld: seen.held}
	var now turn
	bucket := ""
	if w.online != nil {
		now = w.online.turns.now()
		p.took -= now.streamed
		line.State, line.Bucket, line.Buckets = "sending", int(w.online.at.Load())+1, w.online.filter.Buckets
		if now.streaming {
			line.State, line.Bucket, line.Streamed = "streaming", now.sent, now.rows
		}
		bucket = fmt.Sprintf("bucket %d of %d", line.Bucket, line.Buckets)
	}
	rate := p.rate()
	rows := fmt.Sprintf("%s of %d", wording.Count(p.sent, "row"), max(total, int64(p.sent)))
	switch {
	case now.streaming:
		line.Text = fmt.Sprintf("%s sent · %s · streaming what was written meanwhile: %s", bucket, rows, wording.Count(now.rows, "row"))
	case w.online != nil:
		line.Text, line.Rate = fmt.Sprintf("%s · %s · %.0f/s", bucket, rows, rate), rate
	default:
		line.Text, line.Rate = fmt.Sprintf("%s · %.0f/s", rows, rate), rate
	}
	if left := total - int64(p.sent); rate > 0 && left > 0 {
		eta := progress.Seconds(math.Ceil(float64(left) / rate))
		line.ETA = int64(eta.Seconds())
		line.Text += " · ETA " + progress.Shown(eta)
		if w.online != nil {
			line.Text += " without streaming"
		}
	}
	line.Text += " · WAL held " + progress.Size(float64(seen.held))
	if seen.free >= 0 && !last.at.IsZero() {
		if lasts, ends := (progress.Budget{Limit: seen.free, WAL: float64(seen.held-last.held) / seen.at.Sub(last.at).Seconds()}).Lasts(); ends {
			line.Text += ", lasts " + progress.Shown(lasts)
		}
		if seen.free < seen.limit/4 {
			line.What, line.Text = "warning", line.Text+": less than a quarter of max_slot_wal_keep_size is left"
		}
	}
	return line
}
