package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/relay/resume"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/rs/zerolog"
)

// Memory is what the deliveries of one relay leave to each other. One goroutine uses it, but
// for ParkedKeys and RunJournal. What is named by a position is of one history only, and is
// forgotten on another one.
type Memory struct {
	cfg     Config
	router  *router.Router
	journal Journal // of the dead-letter topic
	board   *status.Board
	ev      Events
	log     zerolog.Logger

	seen     rejects
	ends     knownEnd
	verdicts verdicts
	source   string // for dead letters
	part     fragment
	apart    wal.LSN     // of a transaction that shares no Kafka transaction with those before it
	of       wal.Lineage // the history that part, seen and apart are of
	asides   map[asideKind]*aside
	finished atomic.Int64       // records of batches that are delivered
	parked   *deadletter.Parked // nil without Config.ParkKey
}

// New returns the memory of a relay that starts. journal is needed with Config.ParkKey.
func New(cfg Config, routes *router.Router, journal Journal, board *status.Board, ev Events, log zerolog.Logger) *Memory {
	m := &Memory{cfg: cfg, router: routes, journal: journal, board: board, ev: ev, log: log}
	if cfg.OnReject == DeadLetterOnReject && cfg.ParkKey {
		m.parked = deadletter.NewParked(cmp.Or(cfg.MaxParked, deadletter.MaxParked), cfg.Resume.Slot)
	}
	return m
}

// RunJournal reads the dead-letter topic until ctx ends, if keys are parked.
func (m *Memory) RunJournal(ctx context.Context) {
	if m.parked != nil {
		defer m.journal.Close()
		m.journal.Run(ctx, m.parked.Read)
	}
}

// ParkedKeys counts the keys whose rows go to the dead-letter topic.
func (m *Memory) ParkedKeys() int {
	if m.parked == nil {
		return 0
	}
	return m.parked.Len()
}

// Finished counts records of batches that are delivered.
func (m *Memory) Finished() int64 { return m.finished.Load() }

// Source names the server and slot in dead letters.
func (m *Memory) Source(id string) {
	m.source = id
	if m.parked != nil {
		m.parked.Source(id)
	}
}

// Forked takes note of a failover between two sessions.
func (m *Memory) Forked(was resume.Known, now wal.Origin, fork wal.Fork) {
	m.sayForked(was, now, fork)
	m.router.Forked()
	if m.parked != nil {
		m.parked.Gone(func(id deadletter.ID) bool { return id.Commit >= fork.At && id.Timeline <= fork.Timeline })
	}
}

// sayForked tells of a failover, and of rows that exist in Kafka alone since.
func (m *Memory) sayForked(was resume.Known, now wal.Origin, fork wal.Fork) {
	line := m.log.Info()
	text := "the server is on a new timeline; everything that was confirmed is part of it"
	if was.Told > fork.At {
		m.board.LostForks.Add(1)
		line = m.log.Error()
		text = "the server is on a new timeline, and rows that were delivered are no part of it: what committed between the two positions exists in Kafka alone"
	}
	line.Int32("from", was.Origin.Timeline).Int32("timeline", now.Timeline).Stringer("fork", fork.At).Stringer("told", was.Told).Msg(text)
}

// ReadAhead bounds one wait for the dead-letter topic; reading goes on beside it, so
// the next wait is shorter.
const ReadAhead = 30 * time.Second

// AwaitDeadLetters makes sure that the parked keys are all that the dead-letter topic
// knows of. It runs before the slot is taken, and once more when it is and whoever held
// it before is shut out, for what that one parked last: that has to be quick, as nobody
// answers the server meanwhile.
//
// A letter of an earlier relay of the slot may lie behind another pipeline's transaction that is
// not over. It is waited for (all); but with exactly-once not before the slot is taken, as the transaction
// may be that of the relay which held the slot, and ends when that one is shut out.
func (m *Memory) AwaitDeadLetters(ctx context.Context, limit time.Duration, all bool) error {
	if m.parked == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := m.journal.CatchUp(ctx, all)
	if e, ok := errors.AsType[*sink.Error](err); ok && e.Reason == "unknown_topic" && m.cfg.CreateTopics {
		return nil // it is made with the first dead letter
	}
	if err != nil {
		return err
	}
	if err := m.parked.Err(); err != nil {
		return &sink.Error{Class: sink.Blocked, Reason: ReasonParkedKeysFull, Err: fmt.Errorf("read the dead-letter topic: %w, then restart the relay", err)}
	}
	return nil
}

// rejects remembers the rows that were counted last, more of them than a session
// that is lost can bring again in practice.
type rejects struct {
	known map[deadletter.Row]struct{}
	ring  []deadletter.Row
	next  int
}

const maxRejects = 4096

func (r *rejects) first(row deadletter.Row) bool {
	if _, ok := r.known[row]; ok {
		return false
	}
	if r.known == nil {
		r.known = make(map[deadletter.Row]struct{})
	}
	if len(r.ring) < maxRejects {
		r.ring = append(r.ring, row)
	} else {
		delete(r.known, r.ring[r.next])
		r.ring[r.next] = row
		r.next = (r.next + 1) % maxRejects
	}
	r.known[row] = struct{}{}
	return true
}
