package rejected

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/rs/zerolog"
)

// Journal reads the dead-letter topic from its beginning and continues with it;
// *topics.Follower satisfies it.
type Journal interface {
	// Run gives visit nil when the topic was recreated.
	Run(ctx context.Context, visit func(*topics.Message))
	// CatchUp returns once everything was visited that is there now. With all that includes
	// what a Kafka transaction hides that is not over.
	CatchUp(ctx context.Context, all bool) error
	Close()
}

// Letters makes dead letters, and parks their keys: later rows of a parked key become dead
// letters after the first one. One goroutine uses it; Run, Keys and Waiting are safe from any.
type Letters struct {
	Fences bool // a start shuts the slot's last holder out of Kafka (delivery.Rules)

	IDColumn func(*wal.Row) record.IDColumn // of the router that makes the records; nil: none is known

	topic   string
	creates bool   // the topic is made with the first letter
	source  string // of the letters

	journal Journal
	parked  *deadletter.Parked // nil: keys are not parked
}

// NewLetters returns those of a topic. With a journal of it keys are parked, at most limit at a
// time.
func NewLetters(topic string, creates bool, slot string, journal Journal, limit int) *Letters {
	l := &Letters{topic: topic, creates: creates, journal: journal}
	if journal != nil {
		l.parked = deadletter.NewParked(limit, slot)
	}
	return l
}

// Run reads the dead-letter topic until ctx ends, if keys are parked, and logs how many were
// where the topic was replaced. Retention and marks find that out by themselves.
func (l *Letters) Run(ctx context.Context, log zerolog.Logger) {
	if l.parked == nil {
		return
	}
	defer l.journal.Close()
	l.journal.Run(ctx, func(m *topics.Message) {
		if n := l.Keys(); m == nil && n > 0 {
			log.Warn().Int("keys", n).Str("topic", l.topic).
				Msg("the dead-letter topic was deleted and created again while keys were parked: the dead letters of these keys are lost, and later rows of these keys are sent. Send the rows again with `cdc-relay replay`")
		}
		l.parked.Read(m)
	})
}

// Parks reports whether keys are parked.
func (l *Letters) Parks() bool { return l.parked != nil }

// Keys counts the parked keys.
func (l *Letters) Keys() int {
	if l.parked == nil {
		return 0
	}
	return l.parked.Len()
}

// Waiting counts the parked keys that have a letter in the topic.
func (l *Letters) Waiting() int {
	if l.parked == nil {
		return 0
	}
	return l.parked.Waiting()
}

// Source names the server and slot in letters from now on.
func (l *Letters) Source(id string) {
	l.source = id
	if l.parked != nil {
		l.parked.Source(id)
		l.parked.Settled() // nothing of an earlier session is on its way
	}
}

// Forked frees keys whose first letter is of a row that a failover lost.
func (l *Letters) Forked(fork wal.Fork) {
	if l.parked != nil {
		l.parked.Gone(func(id deadletter.ID) bool { return id.Commit >= fork.At && id.Timeline <= fork.Timeline })
	}
}

// Wait bounds one wait for the dead-letter topic; reading continues beside it, so the next wait
// is shorter.
const Wait = 30 * time.Second

// CatchUp makes sure that the parked keys are all that the dead-letter topic knows of. It runs
// before the slot is taken, and once more when the slot is taken and its last holder is shut
// out, for the letters that that relay wrote last: the second run has to be quick, as nobody
// answers the server meanwhile.
//
// A letter of an earlier relay of the slot may lie after another pipeline's open transaction: CatchUp
// waits for the end of that. With Fences the first run does not wait: the transaction may be that of
// the slot's present holder, and ends only when that relay is shut out.
func (l *Letters) CatchUp(ctx context.Context, limit time.Duration, taken bool) error {
	if l.parked == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := l.journal.CatchUp(ctx, taken || !l.Fences)
	if e, ok := errors.AsType[*sink.Error](err); ok && e.Reason == fault.ReasonUnknownTopic && l.creates {
		return nil // it is made with the first dead letter
	}
	if err != nil {
		return err
	}
	if err := l.parked.Err(); err != nil {
		return &sink.Error{Class: sink.Blocked, Reason: fault.ReasonParkedKeysFull, Err: fmt.Errorf("read the dead-letter topic: %w, then restart the relay", err)}
	}
	return nil
}

// Wrap makes the dead letter of a record. of is the history of the record's row.
func (l *Letters) Wrap(of wal.Origin, rec *record.Record, reason string, cause error, missing ...string) record.Record {
	timeline := id(of, rec).Timeline
	why := deadletter.Cause{Reason: reason, Err: cause, Source: l.source, Timeline: timeline, Began: of.Begin(timeline), Missing: missing, Parks: l.Parks()}
	if l.IDColumn != nil {
		why.ID = l.IDColumn(rec.Row)
	}
	return deadletter.Wrap(rec, l.topic, why)
}

// id names a record among the letters of all sessions.
func id(of wal.Origin, rec *record.Record) deadletter.ID {
	row := rec.Row.Place()
	return deadletter.ID{Timeline: of.TimelineOf(row.Commit), Place: row, Nth: int(rec.Nth)}
}

// Park parks the record's key.
func (l *Letters) Park(of wal.Origin, rec *record.Record) error {
	if l.parked == nil || rec.Topic == "" || rec.Key == nil {
		return nil
	}
	return l.parked.Park(deadletter.KeyGroup(rec.Topic, rec.Key), id(of, rec))
}

// Overtake reports whether dead letters of the records of one row would be durable before repeated
// records of their keys, which are on their way to their own topics. A record that Overtake was asked
// about counts as on its way until Settled is called.
func (l *Letters) Overtake(of wal.Origin, records []record.Record) (overtake bool) {
	if l.Keys() == 0 {
		return false
	}
	for i := range records {
		if rec := &records[i]; rec.Key != nil && rec.Topic != "" && l.parked.Overtakes(deadletter.KeyGroup(rec.Topic, rec.Key), id(of, rec)) {
			overtake = true
		}
	}
	return overtake
}

// Settled notes that all records that were routed are durable.
func (l *Letters) Settled() {
	if l.parked != nil {
		l.parked.Settled()
	}
}

var errFollows = errors.New("an earlier row of its topic and key is in the dead-letter topic; it goes there after that one")

// Divert replaces the records of parked keys by dead letters, and counts them.
func (l *Letters) Divert(of wal.Origin, records []record.Record) (letters int) {
	if l.Keys() == 0 {
		return 0
	}
	for i := range records {
		rec := &records[i]
		if rec.Key == nil || rec.Topic == "" || rec.Topic == l.topic {
			continue
		}
		if l.parked.Follow(deadletter.KeyGroup(rec.Topic, rec.Key), id(of, rec)) {
			*rec = l.Wrap(of, rec, deadletter.CauseParked, errFollows)
			letters++
		}
	}
	return letters
}
