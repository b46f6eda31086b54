package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Topics come from rows, so their number is not ours to bound; past maxTopics
// they share the label otherTopics.
const (
	maxTopics   = 100
	otherTopics = "__other__"
)

// counters caches one counter for each value of a label, so that a row costs no
// label hashing and a run of rows with one value costs one addition.
// Safe for concurrent use.
type counters struct {
	limit int // 0: none
	make  func(value string) prometheus.Counter

	mu     sync.Mutex
	known  map[string]*pending
	other  *pending
	dirty  []*pending // those with n > 0
	newest string     // the value of last
	last   *pending
}

type pending struct {
	counter prometheus.Counter
	n       int
}

func newCounters(limit int, make func(string) prometheus.Counter) *counters {
	return &counters{limit: limit, make: make, known: map[string]*pending{}}
}

// add counts what count reports. count calls its argument for each item; the
// counters move when it returns.
func (c *counters) add(count func(item func(value string))) {
	c.mu.Lock()
	defer c.mu.Unlock()
	count(c.item)
	for _, p := range c.dirty {
		p.counter.Add(float64(p.n))
		p.n = 0
	}
	c.dirty = c.dirty[:0]
}

func (c *counters) item(value string) {
	if c.last == nil || c.newest != value {
		c.last, c.newest = c.find(value), value
	}
	if c.last.n == 0 {
		c.dirty = append(c.dirty, c.last)
	}
	c.last.n++
}

func (c *counters) find(value string) *pending {
	if p, ok := c.known[value]; ok {
		return p
	}
	if c.limit > 0 && len(c.known) >= c.limit {
		if c.other == nil {
			c.other = &pending{counter: c.make(otherTopics)}
		}
		return c.other
	}
	p := &pending{counter: c.make(value)}
	c.known[value] = p
	return p
}
