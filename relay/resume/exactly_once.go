package resume

import (
	"bytes"
	"fmt"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Point is where a relay with exactly-once continues.
type Point struct {
	Position stored.Position // covers what is delivered
	Unproven bool            // the stream has to show that it has the checkpoint's last transaction (Prove)
	Renew    bool            // the topic has to get Position
	Gone     bool            // the topic has no checkpoint, but this process committed one
	First    bool            // nobody knows of one
	Lost     bool            // the server's WAL ends before Was: its disk was put back, or lost what it had flushed
	Was      stored.Position // before the fork, or the loss
	Fork     *wal.Fork       // where the server's timeline left that of Was; nil: it did not
}

// Loss is a checkpoint of WAL that the server does not have. The zero value is none.
type Loss struct {
	Checkpoint []byte  // as the topic has it
	End        wal.LSN // up to which the server may have the checkpoint's WAL
	Unseen     bool    // the stream showed it (ErrOtherHistory); else the end of the WAL did
}

// EndFor is the end of the WAL to compare a checkpoint with. Until the topic has another checkpoint that is
// the end at which the loss was seen: the WAL may have grown past the checkpoint since, with other rows.
func (l *Loss) EndFor(checkpoint []byte, end wal.LSN) wal.LSN {
	if checkpoint != nil && bytes.Equal(checkpoint, l.Checkpoint) {
		return l.End
	}
	*l = Loss{}
	return end
}

// Text says what was seen, and what follows.
func (l *Loss) Text() string {
	what := "the server's WAL ends before the checkpoint: its disk was put back to a copy, or it lost flushed WAL"
	if l.Unseen {
		what = "the stream lacks the last transaction of the checkpoint: the server's disk was put back to a copy, or it lost flushed WAL, or the configuration no longer has the table of that transaction"
	}
	return what + ". Everything from the slot's position on is sent; rows that were delivered already are repeated"
}

// ExactlyOnce decides what is delivered already. value is the checkpoint in the topic, nil if
// there is none; known is the newest that this process committed, or nil. end is where the server's
// WAL ended while nobody had the slot, zero if that is not known.
//
// A server sends no more than it has flushed. So WAL that ends before the checkpoint, on its timeline, is
// not the WAL that was delivered: a copy of the disk was put back, or flushed WAL was lost. Nobody knows
// from which position on its rows are others, so all that the slot has are sent, and may be repeated.
func (c *Config) ExactlyOnce(value []byte, known *stored.Position, origin wal.Origin, start, end wal.LSN) (at Point, err error) {
	slot := c.Slot
	lost := false
	switch {
	case value != nil:
		if at.Position, err = stored.ParsePosition(value); err != nil {
			return at, &sink.Error{Class: sink.Blocked, Reason: fault.ReasonCheckpointUnreadable, Err: fmt.Errorf("topic %q: %w", c.CheckpointTopic, err)}
		}
		lost = known != nil && known.System == at.Position.System && known.Timeline == at.Position.Timeline && at.Position.Behind(known)
	case known != nil && known.System == origin.SystemID:
		at.Position, at.Renew, at.Gone = *known, true, true
	default:
		at.Position = stored.Position{System: origin.SystemID, Timeline: origin.Timeline, Slot: slot, End: start}
		at.Renew, at.First = true, true
	}
	refuse := func(reason, hint, cause string, args ...any) error {
		return &fault.Error{Kind: fault.KindRefused, Reason: reason, Op: "compare the checkpoint with", Subject: fmt.Sprintf("slot %q", slot), LSN: start, Err: fmt.Errorf(cause, args...), Hint: hint}
	}
	if lost {
		return at, refuse(fault.ReasonCheckpointLost,
			"records of the same Kafka transactions may be lost too: look for unclean leader elections. After a restart the relay continues from the checkpoint that the topic holds, so records that are not lost are repeated",
			"topic %q is at %s (row %d of a divided transaction), and this relay had committed %s (row %d): the brokers lost that", c.CheckpointTopic, at.Position.End, at.Position.Part.Rows, known.End, known.Part.Rows)
	}
	at.Fork, err = descend(&at.Position, origin)
	if err != nil {
		return at, err
	}
	if at.Fork != nil {
		at.Was = at.Position
		at.Position = at.Position.UpTo(at.Fork.At)
		at.Position.Timeline, at.Renew = origin.Timeline, true
	} else if end != 0 && at.Position.Exceeds(end) && start <= at.Position.End {
		at.Was, at.Lost, at.Renew = at.Position, true, true
		at.Position = at.Position.UpTo(start)
	}
	at.Position.Began = origin.Begin(origin.Timeline)
	at.Position.Publication, at.Position.Relay = c.Publication, c.Version
	switch part := at.Position.Part; {
	case start > at.Position.End:
		return at, c.slotAhead(start, at.Position.End)
	case part.Commit != 0 && part.Shape != c.Shape:
		return at, refuse(fault.ReasonPartChanged, "restore outbox and postgres.publication as they were until that transaction is delivered",
			"the transaction committing at %s is delivered up to row %d, counted under another configuration of tables", part.Commit, part.Rows)
	}
	if at.Position.Last.Commit == 0 {
		at.Position.Last.Commit = max(at.Position.End-1, at.Position.Part.Commit)
	}
	at.Unproven = at.Position.Last.Known() && start <= at.Position.Last.Commit
	return at, nil
}

const hintForeign = "it was restored from elsewhere: see the operations guide before anything is streamed from it"

// descend refuses a server that does not continue the history of a record. It returns where
// the server's timeline left the record's, if it is another.
func descend(rec *stored.Position, origin wal.Origin) (*wal.Fork, error) {
	refuse := func(kind fault.Kind, reason, hint, cause string, args ...any) error {
		return &fault.Error{Kind: kind, Reason: reason, Op: "compare the checkpoint with", Subject: fmt.Sprintf("slot %q", rec.Slot), Err: fmt.Errorf(cause, args...), Hint: hint}
	}
	switch {
	case rec.System != origin.SystemID:
		return nil, refuse(fault.KindRefused, fault.ReasonForeignServer, "correct postgres.url, or name another relay.checkpoint_topic",
			"the checkpoint is of the server with system identifier %s, and this one has %s", rec.System, origin.SystemID)
	case origin.Timeline < rec.Timeline:
		return nil, refuse(fault.KindRetry, fault.ReasonStalePrimary, "it is an old primary: shut it down, or rewind it to a standby",
			"the server is on timeline %d, and the checkpoint was written on timeline %d", origin.Timeline, rec.Timeline)
	case rec.Began != 0 && origin.Begin(rec.Timeline) != 0 && rec.Began != origin.Begin(rec.Timeline): // two standbys were promoted from one history
		return nil, refuse(fault.KindRefused, fault.ReasonForeignTimeline, hintForeign,
			"its timeline %d begins at %s, and timeline %d of the checkpoint began at %s: another standby was promoted", rec.Timeline, origin.Begin(rec.Timeline), rec.Timeline, rec.Began)
	case origin.Timeline == rec.Timeline:
		return nil, nil //nolint:nilnil // the same history, without a fork
	}
	fork, ok := origin.Fork(rec.Timeline)
	if !ok {
		return nil, refuse(fault.KindRefused, fault.ReasonForeignTimeline, hintForeign,
			"its timeline %d does not descend from timeline %d of the checkpoint", origin.Timeline, rec.Timeline)
	}
	return &fork, nil
}
