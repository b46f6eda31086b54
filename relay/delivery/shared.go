package delivery

import (
	"cmp"
	"maps"
	"sync/atomic"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/relay/rejected"
	"github.com/cdc-relay/cdc-relay/relay/resume"
	"github.com/cdc-relay/cdc-relay/relay/schemas"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/relay/traces"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/rs/zerolog"
)

// Shared outlives a session: settings and services of one relay's deliveries, and what each
// delivery leaves to the next. One goroutine uses it, except Finished and committed. What names a
// position belongs to one history and is forgotten on another, except committed, which names its own.
type Shared struct {
	cfg     Config
	router  *router.Router
	schemas *schemas.Keeper // nil: no table needs any
	monitor *status.Monitor
	ev      Events
	log     zerolog.Logger

	hints    rejected.Hints
	Rejected rejected.Log
	Letters  *rejected.Letters

	ends       map[wal.LSN]wal.LSN // of transactions that were read through: start of the commit record to its end
	rejections rejections
	traces     *traces.Open
	partial    resume.Partial
	isolated   wal.LSN                         // commit of the transaction that shares no Kafka transaction with earlier rows
	history    wal.Lineage                     // the history that partial, isolated, rejections and the counts of Rejected are of
	finished   atomic.Int64                    // records of batches that are delivered
	committed  atomic.Pointer[stored.Position] // the newest checkpoint of this process, of whatever history; nil: none
	Loss       resume.Loss                     // the last that was seen
}

// New makes what the sessions of a relay share. With a journal of the dead-letter topic keys are parked.
func New(cfg Config, routes *router.Router, keeper *schemas.Keeper, journal rejected.Journal, monitor *status.Monitor, ev Events, log zerolog.Logger) *Shared {
	s := &Shared{cfg: cfg, router: routes, schemas: keeper, monitor: monitor, ev: ev, log: log, rejections: newRejections(), traces: traces.New(cfg.DeadLetterTopic)}
	s.hints = rejected.Hints{Stops: cfg.OnReject == StopOnReject, KeepsPositions: cfg.KeepsPositions, Slot: cfg.Resume.Slot}
	s.Rejected = rejected.Log{Out: log, Count: func(reason, table string, row wal.Place, err error) {
		monitor.RejectedRow(table)
		if ev.RowRejected != nil {
			ev.RowRejected(reason, rejected.Named(reason, table, row, err))
		}
	}}
	if cfg.OnReject != SkipOnReject {
		s.Rejected.Topic = cfg.DeadLetterTopic
	}
	s.Letters = rejected.NewLetters(cfg.DeadLetterTopic, cfg.CreateTopics, cfg.Resume.Slot, journal, cmp.Or(cfg.MaxParked, deadletter.MaxParked))
	s.Letters.Fences, s.Letters.IDColumn = cfg.Guarantee == ExactlyOnce, routes.IDColumn
	return s
}

// forget drops what belongs to another history: in this one the same positions are other rows'.
// If the slot went back, earlier rows are sent again, and the partial transaction has to follow them.
func (s *Shared) forget(to wal.Lineage, start wal.LSN) {
	if start < s.partial.After {
		s.ForgetPartial()
	}
	if s.history != to {
		s.history, s.partial, s.isolated, s.ends = to, resume.Partial{}, 0, nil
		s.rejections = newRejections()
		s.Rejected.Forget()
	}
	maps.DeleteFunc(s.ends, func(commit, _ wal.LSN) bool { return commit < start })
}

// ForgetPartial forgets that the beginning of a transaction was delivered: another relay may send
// it again.
func (s *Shared) ForgetPartial() { s.partial = resume.Partial{} }

// Finished counts records of batches that are delivered.
func (s *Shared) Finished() int64 { return s.finished.Load() }

// Forked takes note of a failover between two sessions.
func (s *Shared) Forked(was resume.Known, now wal.Origin, fork wal.Fork) {
	s.logForked(was, now, fork)
	s.router.Forked()
	s.Letters.Forked(fork)
}

// logForked logs a failover, and whether it left rows that exist in Kafka alone.
func (s *Shared) logForked(was resume.Known, now wal.Origin, fork wal.Fork) {
	line := s.log.Info()
	text := "the server is on a new timeline; it includes everything that was confirmed"
	if was.Reported > fork.At {
		s.monitor.LostForks.Add(1)
		line = s.log.Error()
		text = "the server is on a new timeline that lacks delivered rows: transactions that committed between the two positions exist only in Kafka"
	}
	line.Int32("from", was.Origin.Timeline).Int32("timeline", now.Timeline).Stringer("fork", fork.At).Stringer("reported", was.Reported).Msg(text)
}
