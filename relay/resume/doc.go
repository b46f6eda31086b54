// Package resume decides where a start continues, and whether a server continues the history
// that positions are known of. The functions are pure: a session acts on what they return,
// and check and setup show it beforehand.
//
//   - ExactlyOnce: from the slot's position and the checkpoint in Kafka.
//   - Prove: whether the stream has the history that the checkpoint is of.
//   - Promised: from the slot's position and the positions that relays promised not to pass
//     (relay.detect_moved_slot).
//   - ConfirmedUpTo: the one of the two that the guarantee has.
//   - Known.Continue: from what this process knows of the server of its last session.
//
// A start that any of them refuses delivers and confirms nothing.
package resume

import (
	"fmt"
	"hash/fnv"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Config is what a checkpoint is compared with.
type Config struct {
	Slot            string
	Publication     string
	CheckpointTopic string
	InTransactions  bool   // the checkpoint is committed with the records (exactly-once)
	Version         string // of the relay
	Shape           string // ShapeOf
}

// ShapeOf distinguishes configurations, and versions of the relay, that number rows of a
// transaction differently. rules are pgoutput.NumberingRules.
func ShapeOf(publication string, tables []wal.Table, wants []wal.Wants, messages []string, rules int) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%q %v %v %q", publication, tables, wants, messages)
	if rules > 1 { // the first checkpoints do not have it
		fmt.Fprintf(h, " %d", rules)
	}
	return fmt.Sprintf("%x", h.Sum64())
}

// slotAhead is the refusal to continue from a position that no relay confirmed.
func (c *Config) slotAhead(start, end wal.LSN) error {
	return &fault.Error{
		Kind: fault.KindRefused, Reason: fault.ReasonSlotAhead, Op: "compare the checkpoint with", Subject: fmt.Sprintf("slot %q", c.Slot), LSN: start,
		Err:  fmt.Errorf("the slot is at %s, and the checkpoint in topic %q at %s", start, c.CheckpointTopic, end),
		Hint: "rows that committed in between are not sent. Find out who moved the slot, or whether it was dropped and created again; if they may be left out, stop the relay and run `cdc-relay setup --accept-gap`",
	}
}

// ConfirmedUpTo returns the position up to which a relay that starts now takes everything for
// delivered, or why it would not stream. start is the slot's position. found are the slot's values
// in the checkpoint topic: with InTransactions that of stored.Key, else all that end with
// stored.PromiseSuffix. Read the slot first, then the topic: a running relay moves the topic first.
func (c *Config) ConfirmedUpTo(found map[string][]byte, origin wal.Origin, start wal.LSN) (wal.LSN, error) {
	if c.InTransactions {
		at, err := c.ExactlyOnce(found[stored.Key(origin.SystemID, c.Slot)], nil, origin, start, 0)
		return at.Position.End, err
	}
	return c.Promised(found, origin, start)
}

// BeyondWAL returns the highest of the positions that are found on the server's timeline, if its WAL ends
// before that; else zero. Such a position is of WAL that this server does not have: it was restored from an
// older copy, or lost flushed WAL. Nobody may have the slot between the reading of end and of found.
func (c *Config) BeyondWAL(found map[string][]byte, origin wal.Origin, end wal.LSN) (beyond wal.LSN) {
	for _, value := range found {
		rec, err := stored.ParsePosition(value)
		if err == nil && rec.System == origin.SystemID && rec.Timeline == origin.Timeline && rec.Exceeds(end) {
			beyond = max(beyond, rec.End, rec.Part.Commit)
		}
	}
	return beyond
}
