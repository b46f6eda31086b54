package status

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/wording"
	"github.com/rs/zerolog"
)

// Monitor is what the relay shows of itself. Every method is safe from any goroutine; no server
// is waited for while the lock is held.
type Monitor struct {
	Counters

	log     zerolog.Logger
	changed func(from, to State, reason string) // may be nil
	of      Pipeline

	mu sync.Mutex // guards the following

	state      State // by the relay; what is shown may differ, see view
	reason     string
	message    string
	announced  announced
	blockedRow *blockedRow // nil: none is known
	tries      tries

	session Session  // nil between sessions
	read    progress // of the session, or of the last one
	reading openTransaction
	backlog backlog // of the session
	density density
	ended   lastKnown // of the last session
	waiting unconfirmed

	sink     sink.Sink // nil: it was dropped
	brokers  brokers
	snapshot *watch.Snapshot // nil: nobody looked yet
	budget   budget
	source   bool      // PostgreSQL was good once
	looked   time.Time // when snapshot was seen
	silent   bool      // PostgreSQL did not answer at the last look
	counted  counted
}

// Counters are counted by the relay, by any goroutine of it.
type Counters struct {
	Published   atomic.Int64 // records that were acknowledged
	rowsRead    atomic.Int64
	Rejected    atomic.Int64
	DeadLetters atomic.Int64
	Reconnects  atomic.Int64
	LostForks   atomic.Int64 // forks behind which something was delivered: rows that exist in Kafka alone
	LastEvent   atomic.Int64 // unix nanoseconds of the last acknowledgement
	LastTick    atomic.Int64 // unix nanoseconds at which the loops were last seen turning
}

// Pipeline is what of a relay's status never changes.
type Pipeline struct {
	Name        string
	Version     string
	Guarantee   string
	Slot        string
	Publication string
	WindowBytes int
	LookEvery   time.Duration // how often PostgreSQL is looked at; zero: not known
}

// Session is what the monitor asks of the session that runs, with its lock held.
type Session interface {
	Lineage() wal.Lineage
	StartLSN() wal.LSN
	Positions() LSNs
	Stats() checkpoint.Stats

	// ToRepeat counts rows that are acknowledged, and that a start sends again.
	ToRepeat(stats checkpoint.Stats) int

	// Acked counts the records of unfinished batches that are durable.
	Acked() int

	// NewestCommit is the commit time of the row that was read last, and how long ago that was;
	// the zero time: none was.
	NewestCommit(now time.Time) (commit time.Time, ago time.Duration)

	// LastConfirm is when the confirmed position moved last; the zero time: it did not.
	LastConfirm() time.Time

	// Silent is how long the stream has heard nothing of the server; zero: it does not listen, as its
	// rows are not taken.
	Silent() time.Duration

	// BlockedFor is how long nothing more can be taken, and whether that is because a topic's
	// partitions are not known.
	BlockedFor(now time.Time) (full time.Duration, loading bool)
}

// announced is the state that log and events had last.
type announced struct {
	state    State
	reason   string
	since    time.Time // of state
	whySince time.Time // of reason; zero when that is empty
	logged   time.Time // when the log had it last
	skipHint bool      // the log has how the row is given up, which is known only once those before it are delivered
}

// lastKnown is what is shown of a session that is over.
type lastKnown struct {
	positions LSNs
	toRepeat  int
}

// brokers is what is known of Kafka.
type brokers struct {
	reached   bool      // it was good once
	away      time.Time // when no broker was last seen to answer
	incidents incidents // of sinks that were dropped
}

// incidents are what a sink counts of the brokers' misbehaviour.
type incidents struct{ recreated, dataLoss, overtaken int64 }

// NewMonitor returns one of a relay that starts now. changed, which may be nil, is called for
// each change that users see.
func NewMonitor(of Pipeline, log zerolog.Logger, changed func(from, to State, reason string)) *Monitor {
	now := time.Now()
	b := &Monitor{
		log: log, changed: changed, of: of, state: Starting,
		announced: announced{state: Starting, since: now},
		counted:   newCounted(),
	}
	b.LastTick.Store(now.UnixNano())
	return b
}

// maxTopics bounds the list of topics in the status.
const maxTopics = 1000

// Reached remembers that PostgreSQL, or Kafka, was good once.
func (b *Monitor) Reached(source, brokers bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.source, b.brokers.reached = b.source || source, b.brokers.reached || brokers
}

// SinkReached reports whether Kafka was good once.
func (b *Monitor) SinkReached() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.brokers.reached
}

// SetSink shows a sink from now on; nil: it was dropped.
func (b *Monitor) SetSink(s sink.Sink) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s == nil {
		b.brokers.incidents = b.allIncidents()
	}
	b.sink = s
}

// Sink is the sink that is shown; nil: there is none.
func (b *Monitor) Sink() sink.Sink {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sink
}

// allIncidents adds those of the present sink to those of dropped ones. Call it
// with the lock held.
func (b *Monitor) allIncidents() incidents {
	all := b.brokers.incidents
	if s, ok := b.sink.(sink.Incidents); ok {
		all.recreated += s.TopicsRecreated()
		all.dataLoss += s.DataLoss()
		all.overtaken += s.Overtaken()
	}
	return all
}

// SetSession shows a session from now on; nil: it is over.
func (b *Monitor) SetSession(s Session) {
	b.mu.Lock()
	switch {
	case s != nil:
		b.enter(s)
	case b.session != nil:
		b.leave(b.session)
	}
	b.session = s
	b.mu.Unlock()
	if s != nil {
		b.sayBehind(s)
	}
}

// muchBehind is from how much WAL on the log has how far a slot is behind when a session begins.
const muchBehind = 1 << 20

func (b *Monitor) sayBehind(s Session) {
	start, at := s.StartLSN(), s.Positions()
	if behind := int64(at.Server) - int64(start); behind >= muchBehind {
		b.log.Info().Str("slot", b.of.Slot).Stringer("lsn", start).Int64("lag_bytes", behind).
			Msg("slot is " + wording.Bytes(behind) + " behind the end of the WAL; reading on from its position")
	}
}

// SawTopics counts records that are durable, by topic.
func (b *Monitor) SawTopics(records []record.Record) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for begin := 0; begin < len(records); {
		topic, end := records[begin].Topic, begin+1
		for end < len(records) && records[end].Topic == topic {
			end++
		}
		b.counted.topics.of(topic).add(end-begin, now)
		begin = end
	}
}
