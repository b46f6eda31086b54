package relay

import (
	"fmt"
	"hash/fnv"

	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink"
)

// What a start decides from the checkpoint topic and the slot. The functions of Config are
// pure: a session acts on what they return, and check and setup show it beforehand.

const (
	reasonSlotAhead      = "slot_ahead_of_checkpoint"
	reasonCheckpoint     = "checkpoint_unreadable"
	reasonCheckpointLost = "checkpoint_lost"
	reasonPartChanged    = "part_of_another_configuration"
)

// ConfirmedUpTo returns the position up to which a relay that starts now takes everything to
// be delivered, or why it does not stream. start is the slot's position. found are the
// values that the checkpoint topic has of the slot, by key: that of checkpoint.Key with
// ExactlyOnce, else those that end with checkpoint.IntentSuffix. Read the slot before the
// topic: a relay at work moves the topic first.
func (c *Config) ConfirmedUpTo(found map[string][]byte, origin wal.Origin, start wal.LSN) (wal.LSN, error) {
	cfg := c.WithDefaults()
	if cfg.Guarantee == ExactlyOnce {
		at, err := cfg.resume(found[checkpoint.Key(origin.SystemID, cfg.Replication.Slot)], nil, origin, start)
		return at.rec.End, err
	}
	return cfg.recall(found, origin, start)
}

// resumption is where a relay with exactly-once goes on.
type resumption struct {
	rec   checkpoint.Record // covers what is delivered
	renew bool              // the topic has to get rec
	gone  bool              // the topic has no checkpoint, but this process committed one
	first bool              // nobody knows of one
	was   checkpoint.Record // before the fork
	fork  *wal.Fork         // where the server's timeline left that of was; nil: it did not
}

// resume decides what is delivered already. value is the checkpoint in the topic, nil if
// there is none; known is the newest that this process committed, or nil.
func (c *Config) resume(value []byte, known *checkpoint.Record, origin wal.Origin, start wal.LSN) (at resumption, err error) {
	slot := c.Replication.Slot
	lost := false
	switch {
	case value != nil:
		if at.rec, err = checkpoint.ParseRecord(value); err != nil {
			return at, &sink.Error{Class: sink.Blocked, Reason: reasonCheckpoint, Err: fmt.Errorf("topic %q: %w", c.CheckpointTopic, err)}
		}
		lost = known != nil && known.System == at.rec.System && known.Timeline == at.rec.Timeline && at.rec.Behind(known)
	case known != nil && known.System == origin.SystemID:
		at.rec, at.renew, at.gone = *known, true, true
	default:
		at.rec = checkpoint.Record{System: origin.SystemID, Timeline: origin.Timeline, Slot: slot, End: start}
		at.renew, at.first = true, true
	}
	at.rec.Publication, at.rec.Relay = c.Replication.Publication, c.Version
	refuse := func(reason, hint, cause string, args ...any) error {
		return &fault.Error{Kind: fault.KindRefused, Reason: reason, Op: "compare slot and checkpoint", Subject: fmt.Sprintf("slot %q", slot), LSN: start, Err: fmt.Errorf(cause, args...), Hint: hint}
	}
	if lost {
		return at, refuse(reasonCheckpointLost,
			"records of the same Kafka transactions may be lost with it: look for unclean leader elections. A relay that is started anew goes on from what the topic holds, so what is not lost comes twice",
			"topic %q is at %s (row %d of a divided transaction), and this relay had committed %s (row %d): the brokers lost that", c.CheckpointTopic, at.rec.End, at.rec.Part.Rows, known.End, known.Part.Rows)
	}
	at.fork, err = descend(&at.rec, origin)
	if err != nil {
		return at, err
	}
	if at.fork != nil {
		at.was = at.rec
		at.rec = at.rec.Before(at.fork.At)
		at.rec.Timeline, at.renew = origin.Timeline, true
	}
	switch part := at.rec.Part; {
	case start > at.rec.End:
		return at, slotAhead(slot, c.CheckpointTopic, start, at.rec.End)
	case part.Commit != 0 && part.Shape != c.shape():
		return at, refuse(reasonPartChanged, "restore outbox and postgres.publication as they were until that transaction is delivered",
			"the transaction committing at %s is delivered up to row %d, counted under another configuration of tables", part.Commit, part.Rows)
	}
	return at, nil
}

// sayResumed logs what an operator has to know of a resumption, refused or not.
func (r *Relay) sayResumed(at *resumption, origin wal.Origin) {
	switch {
	case at.gone:
		r.log.Error().Str("topic", r.cfg.CheckpointTopic).Stringer("lsn", at.rec.End).Msg("the checkpoint is gone from its topic; going on from what this process committed last")
	case at.first:
		r.log.Warn().Str("topic", r.cfg.CheckpointTopic).Str("slot", r.cfg.Replication.Slot).Stringer("lsn", at.rec.End).
			Msg("no checkpoint for this slot: exactly once begins at the slot's position. What another relay delivered beyond it comes again")
	}
	if at.fork != nil {
		r.forked(past{wal.Origin{SystemID: at.was.System, Timeline: at.was.Timeline}, at.was.End}, origin, *at.fork)
	}
}

// recall returns how far the holders of a slot, whose intents are found in the checkpoint
// topic, may have confirmed it. A slot that is further was moved by somebody else.
func (c *Config) recall(found map[string][]byte, origin wal.Origin, start wal.LSN) (wal.LSN, error) {
	if len(found) == 0 {
		return start, nil
	}
	var limit wal.LSN
	for key, value := range found {
		rec, err := checkpoint.ParseRecord(value)
		if err != nil {
			return 0, &sink.Error{Class: sink.Blocked, Reason: reasonCheckpoint, Err: fmt.Errorf("topic %q, key %q: %w", c.CheckpointTopic, key, err)}
		}
		fork, err := descend(&rec, origin)
		if err != nil {
			return 0, err
		}
		if fork != nil {
			rec = rec.Before(fork.At)
		}
		limit = max(limit, rec.End)
	}
	if start > limit {
		return 0, slotAhead(c.Replication.Slot, c.CheckpointTopic, start, limit)
	}
	return limit, nil
}

// descend refuses a server that does not continue the history of a record. It returns where
// the server's timeline left the record's, if it is another.
func descend(rec *checkpoint.Record, origin wal.Origin) (*wal.Fork, error) {
	refuse := func(kind fault.Kind, reason, hint, cause string, args ...any) error {
		return &fault.Error{Kind: kind, Reason: reason, Op: "compare slot and checkpoint", Subject: fmt.Sprintf("slot %q", rec.Slot), Err: fmt.Errorf(cause, args...), Hint: hint}
	}
	switch {
	case rec.System != origin.SystemID:
		return nil, refuse(fault.KindRefused, ReasonForeignServer, "correct postgres.url, or name another relay.checkpoint_topic",
			"the checkpoint is of the server with system identifier %s, and this one has %s", rec.System, origin.SystemID)
	case origin.Timeline < rec.Timeline:
		return nil, refuse(fault.KindRetry, ReasonStalePrimary, "it is an old primary: shut it down, or rewind it to a standby",
			"the server is on timeline %d, and the checkpoint was written on timeline %d", origin.Timeline, rec.Timeline)
	case origin.Timeline == rec.Timeline:
		return nil, nil //nolint:nilnil // the same history, without a fork
	}
	fork, ok := origin.Fork(rec.Timeline)
	if !ok {
		return nil, refuse(fault.KindRefused, ReasonForeignTimeline, "it was restored from elsewhere: see the operations guide before anything is streamed from it",
			"its timeline %d does not descend from timeline %d of the checkpoint", origin.Timeline, rec.Timeline)
	}
	return &fork, nil
}

// slotAhead is the refusal to go on from a position that no relay confirmed.
func slotAhead(slot, topic string, start, end wal.LSN) error {
	return &fault.Error{
		Kind: fault.KindRefused, Reason: reasonSlotAhead, Op: "compare slot and checkpoint", Subject: fmt.Sprintf("slot %q", slot), LSN: start,
		Err:  fmt.Errorf("the slot is at %s, and the checkpoint in topic %q at %s", start, topic, end),
		Hint: "rows that committed in between are not sent. Find out who moved the slot; if they may be left out, stop the relay and run `cdc-relay setup --accept-gap`",
	}
}

// countingRules is raised with every change of how the decoder numbers the rows of a
// transaction: a checkpoint inside a transaction names a row by its number.
const countingRules = 1

// shape tells configurations, and versions of the relay, apart that number rows of a
// transaction differently.
func (c *Config) shape() string { return shapeOf(&c.Replication, countingRules) }

func shapeOf(c *postgres.Config, rules int) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%q %v %v %q", c.Publication, c.Tables, c.Wants, c.Messages)
	if rules > 1 { // the first checkpoints do not have it
		fmt.Fprintf(h, " %d", rules)
	}
	return fmt.Sprintf("%x", h.Sum64())
}
