package kafkainbox

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// A member that was frozen, or cut off, in the middle of a round leaves a transaction that holds its
// keys, and with Offsets the partition's row of progress. The partition's next owner waits for its
// locks: that keeps the order, and each event is handled once. PostgreSQL waits without limit and reports
// nothing. So each step of a partition is timed, and reported if it takes long.
//
// Only a round and a dead letter's mark hold locks over more than one statement. Whatever else writes
// is one statement that commits itself, which the server does without its client.
const (
	waitAfter = 5 * time.Second  // then the wait is reported
	waitEvery = 10 * time.Second // then it is reported again
	askLimit  = 2 * time.Second  // for the question who holds the lock
)

// Blocker is a transaction that holds a lock.
type Blocker struct {
	PID   int32 // of the server's process; 0 is a prepared transaction
	State string
	Since time.Duration // in that state
}

// WaitError is a partition that waits for an answer. It goes on by itself.
type WaitError struct {
	Topic     string
	Partition int32
	Step      string // what has no answer
	Waited    time.Duration
	Blockers  []Blocker // who holds the lock that it waits for; empty if it waits for no lock, or the server does not show it
}

func (e *WaitError) Error() string {
	text := fmt.Sprintf("topic %s, partition %d: %s: no answer for %s", e.Topic, e.Partition, e.Step, e.Waited.Round(time.Second))
	if len(e.Blockers) == 0 {
		return text
	}
	var held []string
	next := ""
	for _, b := range e.Blockers {
		if b.PID == 0 {
			held = append(held, "a prepared transaction (see pg_prepared_xacts)")
			continue
		}
		one := fmt.Sprintf("server process %d", b.PID)
		if b.State != "" {
			one += fmt.Sprintf(" (%s for %s)", b.State, b.Since.Round(time.Second))
		}
		held = append(held, one)
		if next == "" {
			next = fmt.Sprintf("; if that is of a member that is frozen or cut off, SELECT pg_terminate_backend(%d) ends it, and settings of the server do so from then on: idle_in_transaction_session_timeout, tcp_keepalives_idle", b.PID)
		}
	}
	return text + ": it waits for a lock of " + strings.Join(held, ", ") + next
}

// wait times the steps of a partition.
type wait struct {
	p *partition

	mu    sync.Mutex // guards the following
	timer *time.Timer
	pid   uint32 // of the server's process that is asked; 0 where it is not known
	step  string // empty: the handler, which may take its time, but not wait for a lock
	since time.Time
	steps int
	shown bool // the wait was reported
	ended bool
}

// timed begins with a step.
func (p *partition) timed(step string) *wait {
	w := &wait{p: p, step: step, since: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(waitAfter, w.report)
	return w
}

// in names the connection that is asked.
func (w *wait) in(conn *pgx.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pid = conn.PgConn().PID()
}

// next ends a step, and begins one.
func (w *wait) next(step string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over()
	w.step, w.since = step, time.Now()
	w.steps++
	w.timer.Reset(waitAfter)
}

func (w *wait) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over()
	w.ended = true
	w.timer.Stop()
}

// over reports the end of a wait that was reported. The caller holds mu.
func (w *wait) over() {
	if w.shown {
		w.shown = false
		w.p.c.waited(w.p, time.Since(w.since))
	}
}

func (w *wait) report() {
	w.mu.Lock()
	pid, steps := w.pid, w.steps
	w.mu.Unlock()
	blockers := w.p.c.blockers(w.p.ctx, pid)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || w.steps != steps {
		return // the timer was stopped or set meanwhile
	}
	w.timer.Reset(waitEvery)
	if w.step == "" && len(blockers) == 0 {
		w.over()
		return
	}
	step := w.step
	if step == "" {
		step = "a statement of the handler"
	}
	w.shown = true
	w.p.c.trouble(w.p.ctx, &WaitError{Topic: w.p.topic, Partition: w.p.number, Step: step, Waited: time.Since(w.since), Blockers: blockers})
}

// blockers are transactions that hold the lock which a server's process waits for. A pooler makes up
// process ids, so the process has to be one of this user that waits for a lock.
func (c *Consumer) blockers(ctx context.Context, pid uint32) []Blocker {
	if pid == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	rows, _ := c.cfg.DB.Query(ctx, "SELECT DISTINCT b.pid, coalesce(a.state, ''), coalesce(extract(epoch FROM now() - a.state_change), 0)::float8"+
		" FROM pg_catalog.pg_stat_activity AS w, pg_catalog.unnest(pg_catalog.pg_blocking_pids(w.pid)) AS b(pid) LEFT JOIN pg_catalog.pg_stat_activity AS a USING (pid)"+
		" WHERE w.pid = $1 AND w.usename = session_user AND w.datname = current_database() AND w.wait_event_type = 'Lock' ORDER BY 1 LIMIT 3", int64(pid)) // its error is that of the rows
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (b Blocker, err error) {
		var seconds float64
		err = row.Scan(&b.PID, &b.State, &seconds)
		b.Since = time.Duration(seconds * float64(time.Second))
		return b, err
	})
	if err != nil {
		return nil // the wait is reported all the same
	}
	return found
}

func (c *Consumer) waited(p *partition, took time.Duration) {
	c.cfg.Logger.Info("partition goes on after it waited", "topic", p.topic, "partition", p.number, "waited", took)
	if c.cfg.Events.Waited != nil {
		c.cfg.Events.Waited(p.topic, p.number, took)
	}
}
