// Package tail shows delivered rows as they pass, a sample of them, to whoever looks. It has
// nothing of a row but its event id and a hash of its key, and costs one look at a number for each
// batch while nobody looks.
package tail

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// Line is a row that was delivered.
type Line struct {
	Number  int64     `json:"number"`
	Time    time.Time `json:"time"` // of the acknowledgement
	Table   string    `json:"table"`
	Topic   string    `json:"topic"`
	Key     string    `json:"key_hash"` // equal for equal keys until the process ends; empty: there is none
	EventID string    `json:"event_id"`
	Bytes   int       `json:"value_bytes"`
	Age     *float64  `json:"age_ms"` // since the commit; null for what has no commit
}

const (
	window   = 100 * time.Millisecond
	perLook  = 5 // lines of a window: 50 a second
	maxLines = 200
	maxFlows = 1000
	maxID    = 200 // bytes of an event id
)

// flow is what is sampled apart.
type flow struct {
	relation *wal.Relation
	topic    string
}

// counts of a flow.
type counts struct {
	table string
	seen  int64
	last  time.Time // window of its last line
}

// Tail is made with new. Its methods are safe from any goroutine.
type Tail struct {
	looking atomic.Int32 // how many look

	mu     sync.Mutex
	secret []byte // of the hashes
	lines  []Line // oldest first
	number int64
	flows  map[flow]*counts
	others int64 // rows of flows beyond maxFlows
	opened time.Time
	within int // lines of the window

	now func() time.Time // nil: time.Now
}

// Delivered takes what became durable. It keeps nothing of it.
func (t *Tail) Delivered(records []record.Record) {
	if t.looking.Load() == 0 {
		return
	}
	now := time.Now()
	if t.now != nil {
		now = t.now()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.flows == nil {
		return // who looked has left meanwhile
	}
	at := now.Truncate(window)
	if !at.Equal(t.opened) {
		t.opened, t.within = at, 0
	}
	var of flow
	var c *counts
	for i := range records {
		r := &records[i]
		if r.Row == nil {
			continue
		}
		if c == nil || r.Row.Relation != of.relation || r.Topic != of.topic {
			of = flow{r.Row.Relation, r.Topic}
			if c = t.flows[of]; c == nil {
				if len(t.flows) >= maxFlows {
					t.others++
					continue
				}
				c = &counts{table: of.relation.Qualified()}
				of.topic = string([]byte(of.topic)) // its memory is used again
				t.flows[of] = c
			}
		}
		c.seen++
		if t.within < perLook && !c.last.Equal(at) {
			c.last = at
			t.within++
			t.add(now, c.table, of.topic, r)
		}
	}
}

func (t *Tail) add(now time.Time, table, topic string, r *record.Record) {
	t.number++
	line := Line{Number: t.number, Time: now.UTC(), Table: table, Topic: topic, Bytes: len(r.Value)}
	if r.Key != nil {
		h := hmac.New(sha256.New, t.secret)
		h.Write(r.Key)
		line.Key = hex.EncodeToString(h.Sum(nil)[:6])
	}
	for _, header := range r.Headers {
		if header.Key == "id" {
			line.EventID = string(header.Value[:min(len(header.Value), maxID)])
			break
		}
	}
	if txn := r.Row.Txn; txn != nil && !txn.Time.IsZero() {
		age := max(0, float64(now.Sub(txn.Time))/float64(time.Millisecond))
		line.Age = &age
	}
	t.lines = append(t.lines, line)
	if over := len(t.lines) - maxLines; over > 0 {
		t.lines = append(t.lines[:0:0], t.lines[over:]...)
	}
}

// Viewer is one who looks, at all or at one table or topic. Close it.
type Viewer struct {
	tail         *Tail
	table, topic string // empty: all
	number, seen int64
	closed       bool
}

// Open begins to look; an empty name is any.
func (t *Tail) Open(table, topic string) *Viewer {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.flows == nil {
		t.flows = make(map[flow]*counts)
	}
	if t.secret == nil {
		t.secret = make([]byte, 32)
		_, _ = rand.Read(t.secret) // which never fails
	}
	t.looking.Add(1)
	l := &Viewer{tail: t, table: table, topic: topic, number: t.number}
	l.seen = l.count()
	return l
}

func (l *Viewer) wants(table, topic string) bool {
	return (l.table == "" || l.table == table) && (l.topic == "" || l.topic == topic)
}

// count is called with the lock held.
func (l *Viewer) count() (n int64) {
	for of, c := range l.tail.flows {
		if l.wants(c.table, of.topic) {
			n += c.seen
		}
	}
	if l.table == "" && l.topic == "" {
		n += l.tail.others
	}
	return n
}

// Next gives the lines since the last call, and how many rows passed since then in all.
func (l *Viewer) Next() (lines []Line, passed int64) {
	l.tail.mu.Lock()
	defer l.tail.mu.Unlock()
	for _, line := range l.tail.lines {
		if line.Number > l.number && l.wants(line.Table, line.Topic) {
			lines = append(lines, line)
		}
	}
	l.number = l.tail.number
	now := l.count()
	passed, l.seen = now-l.seen, now
	return lines, passed
}

// Close ends it. With the last one everything is forgotten.
func (l *Viewer) Close() {
	t := l.tail
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	if t.looking.Add(-1) == 0 {
		t.flows, t.lines, t.others = nil, nil, 0
	}
}
