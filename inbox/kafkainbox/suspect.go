package kafkainbox

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/inbox/pgxinbox"
)

// A record that ends the process (it takes all memory, the handler exits) leaves no error behind.
// What it leaves is a partition that begins at the same offset again and again. Such a partition
// has its records handled one by one, one of them at a time in this process, each with a row in
// inbox_attempts meanwhile; so the row of the one that ends the process stays.
const (
	suspectStarts = 3 // from this start at an offset on
	crashTries    = 3 // attempts at a record that did not come back; then its handler is not called
)

// begin marks in the database that the partition's first record since its assignment is about to
// be handled, and reports whether it could. From then on the partition's clock holds keys, too.
// The next offset of a partition that is new there is the lowest: records of other queues may lie
// before those that are handled first.
func (p *partition) begin(at time.Time) bool {
	p.opened.mu.Lock()
	defer p.opened.mu.Unlock()
	for failures := 1; !p.opened.begun; failures++ {
		var starts int
		var next int64
		var topic pgtype.UUID
		err := p.writeStart(at, &starts, &next, &topic)
		if err == nil {
			if other := p.meets(topic); other != nil {
				p.c.endSession(other)
				return false
			}
			p.opened.begun, p.opened.next = true, next
			if starts == 1 && p.isNew() {
				p.c.began(place{p.topic, p.number}, next)
			}
			if starts >= suspectStarts {
				p.opened.suspects.Store(int64(p.c.cfg.Parallel * p.c.cfg.RoundEvents)) // as many as may have been on their way
			}
			return true
		}
		p.c.trouble(p.ctx, progressError("write", err))
		if !p.pause(p.c.cfg.Retry.delay(failures, p.c.share())) {
			return false
		}
	}
	return true
}

// writeStart waits for the row of the progress where the transaction of another owner has it.
func (p *partition) writeStart(at time.Time, into ...any) error {
	w := p.timed("write progress")
	defer w.end()
	conn, err := p.c.cfg.DB.Acquire(p.ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	w.in(conn.Conn())
	return conn.QueryRow(p.ctx, p.c.sql.begin, p.c.cfg.Consumer, p.topic, p.number, p.lowest(), at, p.topicID()).Scan(into...)
}

// handleAlone handles items one by one, except those that are known to be done.
func (p *partition) handleAlone(q *queue, items []item) bool {
	known := make([]bool, len(items))
	if !p.c.cfg.Offsets {
		// Without an answer each is tried.
		ctx, cancel := context.WithTimeout(p.ctx, commitLimit)
		if tx, err := p.c.cfg.DB.Begin(ctx); err == nil {
			if found, err := p.c.box.Known(ctx, pgxinbox.Tx(tx), keysOf(items)); err == nil {
				known = found
			}
			_ = tx.Rollback(context.WithoutCancel(p.ctx))
		}
		cancel()
	}
	for i := range items {
		if known[i] {
			p.finish(items[i : i+1])
			continue
		}
		if !p.handle(q, items[i:i+1]) {
			return false
		}
	}
	return true
}

// guarded is a round. That of a suspect partition, or of a record that is watched, is marked while
// it lasts.
func (p *partition) guarded(q *queue, items []item) error {
	if p.opened.suspects.Load() <= 0 && !items[0].watched || len(items) > 1 {
		return p.round(q, items, nil)
	}
	select {
	case p.c.suspect <- struct{}{}:
		defer func() { <-p.c.suspect }()
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
	w := p.probe(&items[0])
	defer w.close()
	var tries int
	offset := items[0].record.Offset
	if q.returned.offset != offset {
		q.returned = returned{offset: offset}
	}
	if q.returned.times > 0 {
		_ = p.cameBack(q) // else another process takes them for ends of this one
	}
	wait := p.timed("write the attempt")
	err := p.c.cfg.DB.QueryRow(p.ctx, p.c.sql.try, p.c.cfg.Consumer, p.topic, p.number, offset, crashTries).Scan(&tries)
	wait.end()
	if err != nil {
		return progressError("write", err)
	}
	if tries-q.returned.times > crashTries {
		return &CrashError{Times: crashTries}
	}
	began := time.Now()
	failed := p.round(q, items, w)
	items[0].lostAfter = 0
	if gone := (*lostError)(nil); errors.As(failed, &gone) {
		items[0].lostAfter = time.Since(began)
		failed = p.judged(w, gone)
	}
	if failed == nil && p.opened.suspects.Load() > 0 { // a record that is watched need not be of a suspect partition
		p.opened.suspects.Add(-1)
	}
	q.returned.times++ // whatever came of it
	if err := p.cameBack(q); err != nil {
		p.c.trouble(p.ctx, progressError("write", err))
	}
	return failed
}

// cameBack has the database count no attempt at a record.
func (p *partition) cameBack(q *queue) error {
	w := p.timed("delete the attempt")
	defer w.end()
	_, err := p.c.cfg.DB.Exec(context.WithoutCancel(p.ctx), p.c.sql.tried, p.c.cfg.Consumer, p.topic, p.number, q.returned.offset)
	if err == nil {
		q.returned.times = 0
	}
	return err
}

// returned is how many attempts at a record came back that the database still counts: it did not
// answer. They are no ends of the process.
type returned struct {
	offset int64
	times  int
}

// forgive takes away the attempts at a record that became a dead letter because of them.
func (p *partition) forgive(it item, why error) {
	var crash *CrashError
	var ended *ConnectionError
	if !errors.As(why, &crash) && !errors.As(why, &ended) {
		return
	}
	if _, err := p.c.cfg.DB.Exec(p.ctx, p.c.sql.tried, p.c.cfg.Consumer, p.topic, p.number, it.record.Offset); err != nil {
		p.c.trouble(p.ctx, progressError("write", err)) // the row is left, for a record that does not come again
	}
}
