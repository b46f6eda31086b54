package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
)

// A row that can never be delivered is one that the router refuses, or whose record
// the brokers refused when it was sent alone. With StopOnReject the session waits at
// it (hold, guilty). Otherwise this file decides what becomes of it, and the flight
// goes on: a dead letter takes the place of the record, so that it is acknowledged
// before the position moves like any other, in the order of the stream.

// rejectionReason is the reason of a row that the router refuses.
func rejectionReason(rejection error) string {
	if row, ok := errors.AsType[*record.RowError](rejection); ok {
		return row.Reason
	}
	if errors.Is(rejection, deadletter.ErrFull) {
		return ReasonParkedKeysFull
	}
	return record.ReasonMapping
}

// ReasonParkedKeysFull blocks: the row cannot be set aside without its followers.
const ReasonParkedKeysFull = "parked_keys_full"

// keepOut refuses a row whose record would go among the dead letters by itself.
func (s *session) keepOut(f *flight, n int) error {
	if s.r.cfg.OnReject != DeadLetterOnReject {
		return nil
	}
	for i := n; i < len(f.buf.Records); i++ {
		if f.buf.Records[i].Topic == s.r.cfg.DeadLetterTopic {
			row := f.buf.Records[i].Row
			f.buf.Records = f.buf.Records[:n]
			return &record.RowError{
				Reason: record.ReasonRoute, Table: row.Relation.Namespace + "." + row.Relation.Name,
				LSN: row.LSN, Commit: deadletter.RowOf(row).Commit, Ordinal: row.Ordinal,
				Err: fmt.Errorf("its topic is %s, which is kept for dead letters; choose another relay.dead_letter_topic, or another topic", s.r.cfg.DeadLetterTopic),
			}
		}
	}
	return nil
}

// setAside takes a row that the router refuses out of the way, or returns why the
// session has to wait at it. A table that changed is no fault of the row: every
// later one would be refused too.
func (s *session) setAside(f *flight, row *wal.Row, rejection error) error {
	refused, ok := errors.AsType[*record.RowError](rejection)
	if !ok || s.r.cfg.OnReject == StopOnReject || refused.Reason == record.ReasonSchema || errors.Is(rejection, record.ErrBinary) {
		return rejection
	}
	if s.r.cfg.OnReject == DeadLetterOnReject {
		rec, missing := s.r.parts.Router.Salvage(f.buf, row)
		if s.overtakes(f, &rec) {
			return errUnsettled
		}
		if err := s.park(&rec); err != nil {
			return fmt.Errorf("%w; the row: %w", err, rejection)
		}
		f.buf.Records = append(f.buf.Records, s.letter(&rec, refused.Reason, rejection, missing...))
		f.letters = append(f.letters, refused.Reason)
	}
	s.reject(refused.Reason, deadletter.RowOf(row), rejection)
	s.tell(refused.Reason, row, rejection)
	return nil
}

// errUnsettled stops the routing at a row whose letter would overtake.
var errUnsettled = errors.New("earlier rows of its key are not acknowledged yet")

// overtakes reports whether the letter of a parked key may be durable before earlier records of
// the key are. Whoever re-drives it then puts it ahead of them. With position headers it
// still may, within a transaction that is sent as a whole at its end.
//
// What the brokers refuse has nothing before it.
func (s *session) overtakes(f *flight, letter *record.Record) bool {
	if s.delivery.rules().ordered || s.r.parked == nil || letter.Topic == "" || letter.Key == nil || f.waited == f.routed+1 {
		return false
	}
	return f.waited == 0 && (s.sends.outstanding.Load() > 0 || s.hasFailed()) ||
		slices.ContainsFunc(f.buf.Records[f.durable:], func(r record.Record) bool {
			return r.Topic == letter.Topic && bytes.Equal(r.Key, letter.Key)
		})
}

func (s *session) letter(rec *record.Record, reason string, cause error, missing ...string) record.Record {
	return deadletter.Wrap(rec, s.r.cfg.DeadLetterTopic, deadletter.Cause{
		Reason: reason, Err: cause, Source: s.r.source, Timeline: s.letterID(rec).Timeline, Missing: missing,
	})
}

// letterID names a record among the letters of all sessions.
func (s *session) letterID(rec *record.Record) deadletter.ID {
	row := deadletter.RowOf(rec.Row)
	return deadletter.ID{Timeline: s.history.TimelineOf(row.Commit), Row: row, Nth: int(rec.Nth)}
}

// park has later rows of the record's key follow it.
func (s *session) park(rec *record.Record) error {
	if s.r.parked == nil || rec.Topic == "" || rec.Key == nil {
		return nil
	}
	return s.r.parked.Park(deadletter.KeyGroup(rec.Topic, rec.Key), s.letterID(rec))
}

var errFollows = errors.New("an earlier row of its topic and key is in the dead-letter topic; it goes there behind that one")

// follow replaces the records of parked keys by dead letters. It runs before a
// record is first handed to the sink, and when a key was parked before it is durable.
func (s *session) follow(f *flight, records []record.Record) {
	if s.r.parked == nil || s.r.parked.Len() == 0 {
		return
	}
	for i := range records {
		rec := &records[i]
		if rec.Key == nil || rec.Topic == "" || rec.Topic == s.r.cfg.DeadLetterTopic {
			continue
		}
		if s.r.parked.Follow(deadletter.KeyGroup(rec.Topic, rec.Key), s.letterID(rec)) {
			*rec = s.letter(rec, deadletter.CauseParked, errFollows)
			f.letters = append(f.letters, deadletter.CauseParked)
		}
	}
}

func (s *session) followAll(queue []undelivered) {
	if s.r.parked == nil || s.r.parked.Len() == 0 {
		return
	}
	for _, u := range queue {
		s.follow(u.p.f, u.p.records[u.index:u.index+1])
	}
}

// delivered are the records of a flight without those that were skipped.
func (f *flight) delivered() []record.Record {
	if !f.skipped {
		return f.buf.Records
	}
	kept := f.buf.Records[:0]
	for _, rec := range f.buf.Records {
		if rec.Topic != "" {
			kept = append(kept, rec)
		}
	}
	return kept
}

// readAhead bounds one wait for the dead-letter topic; reading goes on beside it, so
// the next wait is shorter.
const readAhead = 30 * time.Second

// awaitDeadLetters makes sure that the parked keys are all that the dead-letter topic
// knows of. It runs before the slot is taken, and once more when it is and whoever held
// it before is shut out, for what that one parked last: that has to be quick, as nobody
// answers the server meanwhile.
//
// A letter of an earlier relay of the slot may lie behind another pipeline's transaction that is
// not over. It is waited for (all); but with exactly-once not before the slot is taken, as the transaction
// may be that of the relay which held the slot, and ends when that one is shut out.
func (r *Relay) awaitDeadLetters(ctx context.Context, limit time.Duration, all bool) error {
	if r.parked == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := r.parts.Journal.CatchUp(ctx, all)
	if e, ok := errors.AsType[*sink.Error](err); ok && e.Reason == "unknown_topic" && r.cfg.Kafka.CreateTopics.Enabled {
		return nil // it is made with the first dead letter
	}
	if err != nil {
		return err
	}
	if err := r.parked.Err(); err != nil {
		return &sink.Error{Class: sink.Blocked, Reason: ReasonParkedKeysFull, Err: fmt.Errorf("read the dead-letter topic: %w, then restart the relay", err)}
	}
	return nil
}

func (r *Relay) parkedKeys() int {
	if r.parked == nil {
		return 0
	}
	return r.parked.Len()
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
