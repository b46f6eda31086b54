package admin

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/figures"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/tail"
	"github.com/cdc-relay/cdc-relay/ways"
	"github.com/rs/zerolog"
)

// Tools are what the console shows beside the status. A nil function is a page that says so.
type Tools struct {
	Timings       func() (ages, produce figures.Buckets)
	Configuration func() (string, error)             // every value with its origin, secrets as ***
	Check         func(context.Context) (any, error) // what `check --json` prints
	// Explain is what `explain --json` prints of a table, without the record unless values is set; nil: there is
	// no such table.
	Explain    func(ctx context.Context, table string, values bool) (any, error)
	Source     string     // host and database of PostgreSQL
	Tables     []string   // that are configured
	Facts      ways.Facts // what commands are made of, besides the obstacle
	Log        *LogTail
	TopicLimit func(ctx context.Context, topic string) (int, error) // max.message.bytes of a topic
	Letters    *LetterTools                                         // nil: the relay has no dead-letter topic
	Retry      func() bool                                          // cuts the present pause short; false: there is none
	Tail       *tail.Tail                                           // of delivered rows
	Waker      *Waker                                               // of a console that samples less often while nothing happens; nil: each second
	Audit      zerolog.Logger                                       // what operators do
}

// Console is what a page needs beyond the status: the figures of the last hour, changes of the
// state, sessions, and streams. Its methods are safe from any goroutine.
type Console struct {
	status  func() status.Status
	tools   Tools
	keep    time.Duration
	started time.Time

	sessions sessions
	streams  streams
	checks   singly // check
	explains singly // explain
	planning singly // plans of what to do with dead letters
	actions  pace   // of operators
	desk     desk   // dead letters: what was read of them, plans and jobs

	mu      sync.Mutex
	ring    *figures.Ring // nil: none is kept
	flows   flows
	changes []Change // oldest first
	checked report   // the last one
	sampled sampled
	limit   topicLimit

	refusals    int // since the last line about them
	refusalSaid time.Time
}

// Change is a change of the state that the console saw.
type Change struct {
	At       time.Time    `json:"at"`
	State    status.State `json:"state"`
	Reason   string       `json:"reason,omitempty"`
	Headline string       `json:"headline"`
}

const maxChanges = 50

// NewConsole makes one. keep is how long figures are kept; 0: not at all.
func NewConsole(status func() status.Status, tools Tools, keep time.Duration) *Console {
	c := &Console{status: status, tools: tools, keep: keep, started: time.Now()}
	if keep > 0 {
		c.ring, c.flows = figures.NewRing(keep), newFlows(keep)
	}
	if c.tools.Log == nil {
		c.tools.Log = new(LogTail)
	}
	return c
}

// Run takes the figures once a second until ctx ends, and with them the jobs of operators.
func (c *Console) Run(ctx context.Context) {
	defer c.desk.open(ctx)()
	pause := sampleEvery
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.tools.Waker.calls():
			c.wake(time.Now())
		case now := <-tick.C:
			c.Sample(now)
			c.desk.forget(now)
		}
		if next := c.pause(); next != pause {
			pause = next
			tick.Reset(pause)
		}
	}
}

// sampled is what the last sample was made of.
type sampled struct {
	at            time.Time
	read, acked   int64
	ages, produce []figures.Buckets // of the last windows, oldest first
	cpu           time.Duration
	cpuAt         time.Time
	last          figures.Sample
	state         status.State
	reason        string
	still         int       // samples in which nothing happened, one after the other
	quiet         bool      // the next one comes after quietEvery
	delivered     time.Time // what committed before is confirmed; zero: not known
}

// quantileOver is over how many seconds percentiles are: one second alone has few transactions.
const quantileOver = 10

// Sample takes the figures of a moment. Run calls it.
func (c *Console) Sample(now time.Time) {
	s := figures.Unknown()
	set := func(i figures.Series, v float64) { s[i] = float32(v) }
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tools.Waker.set(true) // before the status is read, or an event between the two would wake nobody
	st := c.status()
	p := &c.sampled
	c.bridge(now)
	if passed := now.Sub(p.at).Seconds(); !p.at.IsZero() && passed > 0 {
		set(figures.Received, max(0, float64(st.RowsRead-p.read))/passed)
		set(figures.Acknowledged, max(0, float64(st.EventsPublished-p.acked))/passed)
	}
	used := processCPU()
	if passed := now.Sub(p.cpuAt).Seconds(); !p.cpuAt.IsZero() && passed > 0 && used > 0 {
		set(figures.CPU, (used-p.cpu).Seconds()/passed)
	}
	c.weigh(&st)
	p.at, p.read, p.acked, p.cpu, p.cpuAt = now, st.RowsRead, st.EventsPublished, used, now
	c.percentiles(set)
	if st.LagSeconds != nil {
		set(figures.LagSeconds, *st.LagSeconds)
		if st.State == status.Streaming {
			p.delivered = now.Add(-time.Duration(*st.LagSeconds * float64(time.Second)))
		}
	}
	if st.LagBytes != nil {
		set(figures.LagBytes, float64(*st.LagBytes))
	}
	if st.SlotState != nil || len(st.Shards) > 0 && st.LastLook == nil {
		set(figures.RetainedBytes, float64(st.RetainedWALBytes))
	}
	if slot := st.SlotState; slot != nil && slot.SafeWALBytes != nil {
		set(figures.SafeBytes, float64(max(0, *slot.SafeWALBytes)))
	}
	set(figures.InFlightRows, float64(st.InFlightEvents))
	set(figures.InFlightBytes, float64(st.InFlightBytes))
	if st.OldestUnacked != nil {
		set(figures.OldestUnacked, *st.OldestUnacked)
	}
	resident, heap := processMemory()
	set(figures.ResidentBytes, resident)
	set(figures.HeapBytes, heap)
	set(figures.StateSeries, float64(slices.Index(worsening, st.State)))
	p.last = s
	if c.ring != nil {
		c.ring.Add(now, s)
		c.flows.sample(now, &st)
	}
	if st.State != p.state || st.Reason != p.reason {
		p.state, p.reason = st.State, st.Reason
		c.changes = append(c.changes, Change{now.UTC(), st.State, st.Reason, st.Headline})
		if over := len(c.changes) - maxChanges; over > 0 {
			c.changes = slices.Delete(c.changes, 0, over)
		}
	}
}

// percentiles are of what the histograms counted in the last seconds. Call it with the lock held.
func (c *Console) percentiles(set func(figures.Series, float64)) {
	if c.tools.Timings == nil {
		return
	}
	p := &c.sampled
	ages, produce := c.tools.Timings()
	for _, of := range []struct {
		window *[]figures.Buckets
		now    figures.Buckets
		shown  map[figures.Series]float64
	}{
		{&p.ages, ages, map[figures.Series]float64{figures.AgeP50: 0.5, figures.AgeP95: 0.95, figures.AgeP99: 0.99}},
		{&p.produce, produce, map[figures.Series]float64{figures.ProduceP95: 0.95}},
	} {
		if len(*of.window) > 0 {
			for series, q := range of.shown {
				set(series, figures.Quantile(q, (*of.window)[0], of.now))
			}
		}
		if *of.window = append(*of.window, of.now); len(*of.window) > quantileOver {
			*of.window = (*of.window)[1:]
		}
	}
}

// worsening are the states as numbers of the series `state`.
var worsening = []status.State{status.Standby, status.Streaming, status.Starting, status.Reconnecting, status.Blocked, status.Stopping}

// rowsBefore is how long before its commit a row may have been written, for the time from which rows are sent again.
const rowsBefore = 5 * time.Minute

// runsShort reports whether a slot may soon lose WAL that it holds back.
func runsShort(slot *status.Slot) bool {
	return slot.SafeWALBytes != nil && slot.RetainedBytes > 16<<20 && (*slot.SafeWALBytes <= 0 || slot.SafeSeconds != nil && *slot.SafeSeconds < 3600)
}

// facts are those of the relay at hand, with what stands in its way.
func (c *Console) facts(st *status.Status) ways.Facts {
	f := c.tools.Facts
	f.Slot, f.Publication = st.Slot, st.Publication
	if slot := st.SlotState; slot != nil && runsShort(slot) {
		f.WALLimit = 2 * (slot.RetainedBytes + max(0, *slot.SafeWALBytes))
	}
	c.mu.Lock()
	if at := c.sampled.delivered; !at.IsZero() {
		f.Streamed, f.Since = true, at.Add(-rowsBefore).UTC().Format("2006-01-02T15:04:05Z")
	}
	c.mu.Unlock()
	if o := st.Obstacle; o != nil {
		f.Slot = o.Slot
		if o.Row != nil {
			f.Table, f.Topic, f.Bytes, f.OwnLimit = o.Row.Table, o.Row.Topic, o.Row.Bytes, o.Row.Limit > 0
			if o.Row.Commit != 0 {
				at, _ := (o.Row.Commit + 1).MarshalText()
				f.Position = string(at)
			}
		}
	}
	return f
}

// singly runs one thing at a time, and not too often.
type singly struct {
	mu      sync.Mutex
	running bool
	ended   time.Time
}

// begin reports whether it may run now, and if not, whether it runs and how long to wait.
func (s *singly) begin(now time.Time, pause time.Duration) (ok, running bool, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running {
		return false, true, pause
	}
	if wait := pause - now.Sub(s.ended); !s.ended.IsZero() && wait > 0 {
		return false, false, wait
	}
	s.running = true
	return true, false, 0
}

func (s *singly) end(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.ended = false, now
}
