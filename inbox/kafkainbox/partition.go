package kafkainbox

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox"
)

// partition is one that this member owns, from its assignment until it goes.
type partition struct {
	c       *Consumer
	topic   string
	number  int32
	queues  []*queue
	atStart progress // what the database knew at the assignment; written before the queues run

	stopping chan struct{} // closed: take nothing more
	ended    chan struct{} // closed when its goroutines are gone
	ctx      context.Context
	cancel   context.CancelCauseFunc // ends rounds

	mu      sync.Mutex // guards the following
	tracker tracker
	clock   time.Time // see advance
	loaded  bool      // atStart is known
	queued  int       // records taken and not done
	bytes   int
	paused  bool
	stored  progress // what the database and Kafka were told last
	behind  bool     // the group's offset was before the one at which the partition begins
	source  source

	opened opened
}

// opened is what begin found in the database.
type opened struct {
	mu       sync.Mutex   // held while begin asks
	begun    bool         // guarded by mu
	next     int64        // with Offsets what the database has; guarded by mu, then its one queue's
	suspects atomic.Int64 // so many records are handled on their own, see suspect.go
}

// progress is how far a partition is.
type progress struct {
	next  int64 // -1: nowhere yet
	epoch int32
	at    time.Time
	id    pgtype.UUID // of the topic
}

// item is a record on its way.
type item struct {
	record *kgo.Record
	place  uint64 // in the tracker
	size   int    // of the record, as it was read
	key    inbox.Key
	at     time.Time // of the key
	err    error     // why it cannot be handled

	losses    int           // rounds that it was the first of, and that lost their connection
	watched   bool          // see lost.go
	lostAfter time.Duration // how long its last attempt took that was watched and lost its connection
}

// claimed is a key that was claimed and is committed. Without text it is none.
type claimed struct {
	text string
	at   time.Time
}

// queue holds the records of some keys, which one goroutine handles in order.
type queue struct {
	mu    sync.Mutex
	items []item
	wake  chan struct{} // has room for one

	newest claimed // the one that was claimed last; guarded by mu

	returned returned // its goroutine's
}

// newest are the keys that were claimed last, one of each queue that has claimed any.
func (p *partition) newest() []claimed {
	var keys []claimed
	for _, q := range p.queues {
		if key := q.lastKey(); key.text != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

func (q *queue) lastKey() claimed {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.newest
}

func (q *queue) claimed(it item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.newest = claimed{it.key.String(), it.at}
}

func newPartition(c *Consumer, topic string, number int32) *partition {
	p := &partition{c: c, topic: topic, number: number, stopping: make(chan struct{}), ended: make(chan struct{}), tracker: newTracker(), stored: progress{next: -1}, source: source{unread: -1, still: still{assigned: time.Now(), start: -1, unread: -1}}}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	for range c.cfg.Parallel {
		p.queues = append(p.queues, &queue{wake: make(chan struct{}, 1)})
	}
	return p
}

var seed = maphash.MakeSeed()

// add takes records in the order of their offsets, and reports whether the queues are full. Topic
// is the id of their topic; zero where the brokers do not tell it.
func (p *partition) add(topic [16]byte, fetched *kgo.FetchPartition) (full bool) {
	sorted := make([][]item, len(p.queues))
	p.mu.Lock()
	p.examine(topic, fetched.LogStartOffset)
	for _, r := range fetched.Records {
		p.follow(r.Offset)
		at := p.tracker.take(r.Offset, r.LeaderEpoch)
		// The end of a Kafka transaction is no event. Offsets in the database go past it with a round.
		if r.Attrs.IsControl() && !p.c.cfg.Offsets && p.source.wrong == nil {
			p.tracker.done(at)
			continue
		}
		p.queued++
		bytes := size(r)
		p.bytes += bytes
		q := 0
		if len(sorted) > 1 {
			q = int(maphash.Bytes(seed, r.Key) % uint64(len(sorted)))
		}
		sorted[q] = append(sorted[q], item{record: r, place: at, size: bytes, err: p.source.wrong})
	}
	full = p.queued > 8*p.c.cfg.RoundEvents || p.bytes > 8*p.c.cfg.RoundBytes
	p.paused = p.paused || full
	p.mu.Unlock()
	for i, items := range sorted {
		if len(items) > 0 {
			p.queues[i].push(items)
		}
	}
	return full
}

// size is what a record takes in memory, about.
func size(r *kgo.Record) int {
	n := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return n
}

func (q *queue) push(items []item) {
	q.mu.Lock()
	q.items = append(q.items, items...)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default: // it will look
	}
}

// pull takes what a round may have, at least one where there is one.
func (q *queue) pull(events, bytes int) []item {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for size := 0; n < len(q.items) && n < events; n++ {
		if size += q.items[n].size; n > 0 && size > bytes {
			break
		}
	}
	items := q.items[:n:n]
	if q.items = q.items[n:]; len(q.items) == 0 {
		q.items = nil
	}
	return items
}

// run handles the queues until the partition is stopped.
func (p *partition) run() {
	defer close(p.ended)
	defer p.cancel(nil)
	if !p.load() {
		return
	}
	var wait sync.WaitGroup
	for _, q := range p.queues {
		wait.Go(func() { p.work(q) })
	}
	wait.Wait()
}

// load reads what the database knows of the partition, and reports whether it could.
func (p *partition) load() bool {
	for failures := 1; ; failures++ {
		since, err := p.c.load(p.ctx, p.topic, p.number)
		if err == nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.atStart, p.clock, p.source.row, p.loaded = since, since.at, since.id, true
			return true
		}
		p.c.trouble(p.ctx, err)
		if !p.pause(p.c.cfg.Retry.delay(failures, p.c.share())) {
			return false
		}
	}
}

func (p *partition) work(q *queue) {
	for {
		select {
		case <-p.stopping:
			return
		default:
		}
		items := q.pull(p.c.cfg.RoundEvents, p.c.cfg.RoundBytes)
		if len(items) == 0 {
			select {
			case <-p.stopping:
				return
			case <-q.wake:
			}
			continue
		}
		at := p.advance(items)
		if !p.begin(at) {
			return
		}
		for i := range items {
			p.admit(&items[i], at)
		}
		for len(items) > 0 {
			n := 0
			for n < len(items) && items[n].err == nil {
				n++
			}
			n = max(n, 1)
			if !p.handle(q, items[:n]) {
				return
			}
			items = items[n:]
		}
	}
}

// advance moves the partition's clock: the largest timestamp of a record so far, but none of a
// time to come. Old times that a producer sets, and a wrong clock ahead, do not move it.
func (p *partition) advance(items []item) time.Time {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, it := range items {
		if at := it.record.Timestamp; at.After(p.clock) && !at.After(now) {
			p.clock = at
		}
	}
	if p.clock.IsZero() {
		return now // every record so far is of a time to come
	}
	return p.clock
}

// admit gives a record its key, or the reason why it cannot be handled.
func (p *partition) admit(it *item, at time.Time) {
	if it.err != nil {
		return
	}
	if p.c.cfg.Offsets { // follow knows where fetching began; whoever moved the offset since then has overtaken the round
		return
	}
	if since := p.atStart.at.Add(-p.c.cfg.Keep); !p.c.cfg.AllowRewind && it.record.Offset < p.atStart.next && it.record.Timestamp.Before(since) {
		it.err = &RewindError{Next: p.atStart.next, Since: since}
		return
	}
	key, err := p.key(it.record)
	if err == nil && key.IsZero() {
		err = inbox.ErrNoKey
	}
	if err != nil {
		it.err = &handlerError{Permanent(err)}
		return
	}
	it.key, it.at = key.At(at), at
}

// finish counts items as done, and has more fetched where the queues have room again.
func (p *partition) finish(items []item) {
	p.mu.Lock()
	for _, it := range items {
		p.tracker.done(it.place)
		p.queued--
		p.bytes -= it.size
	}
	resume := p.paused && p.roomy()
	if resume {
		p.paused = false
	}
	p.mu.Unlock()
	if resume {
		p.resume()
	}
}

func (p *partition) roomy() bool {
	return p.queued <= 2*p.c.cfg.RoundEvents && p.bytes <= 2*p.c.cfg.RoundBytes
}

func (p *partition) resume() {
	p.c.client.ResumeFetchPartitions(map[string][]int32{p.topic: {p.number}})
}

// pausedLate undoes a pause that came after the finish which would have ended it.
func (p *partition) pausedLate() {
	p.mu.Lock()
	p.paused = p.paused && !p.roomy()
	paused := p.paused
	p.mu.Unlock()
	if !paused {
		p.resume()
	}
}

// stop has the partition take nothing more.
func (p *partition) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.stopping:
	default:
		close(p.stopping)
	}
}

// await waits for the round in hand, and ends it where it takes longer than limit. It reports
// whether the goroutines are gone.
func (p *partition) await(limit time.Duration) bool {
	select {
	case <-p.ended:
		return true
	case <-time.After(limit):
	}
	p.cancel(errStillHandling)
	select {
	case <-p.ended:
		return true
	case <-time.After(cancelGrace):
		return false // a handler that does not look at its context; its round may still commit, and is claimed then
	}
}

// reached is how far the partition is, whether that was reached since its assignment, and whether
// it is news. Where every record so far is of a time to come its clock is zero, and moves nothing.
func (p *partition) reached() (now progress, moved, news bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, moved = progress{next: p.tracker.next, epoch: p.tracker.epoch, at: p.clock, id: p.source.row}, p.tracker.next >= 0
	if !moved {
		moved = p.behind                         // the group has to be told all the same
		now.next, now.epoch = p.atStart.next, -1 // the clock alone may have moved
	}
	return now, moved, p.loaded && now.next >= 0 && now != p.stored
}

func (p *partition) isBehind() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.behind = true
}

func (p *partition) noteStored(told progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stored = told
}

// drained moves the clock of a partition that has nothing left before the end of its log, as it
// was at a time.
func (p *partition) drained(end int64, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := p.tracker.next
	if next < 0 {
		next = p.atStart.next
	}
	if p.loaded && p.tracker.idle() && next >= 0 && next == end && at.After(p.clock) {
		p.clock = at
	}
}

// lowest is the offset before which everything is done, or nothing was ever taken or lost.
func (p *partition) lowest() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	var lost *LostError
	if p.tracker.next < 0 && errors.As(p.source.wrong, &lost) {
		return lost.Next
	}
	return p.tracker.lowest()
}

// isIdle reports whether everything taken is done.
func (p *partition) isIdle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.loaded && p.tracker.idle()
}

// isNew reports whether the database knew nothing of the partition at its assignment.
func (p *partition) isNew() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.atStart.next < 0
}

// pause waits, and reports false when the partition is to stop.
func (p *partition) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.stopping:
	case <-p.ctx.Done():
	}
	return false
}
