package stored

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Before is what is known of the rows that lie before a slot. A slot's position is ahead of
// all of them, delivered or not, so that it proves nothing about them.
type Before string

const (
	BeforeUnknown  Before = "unknown"  // nobody knows whether they are delivered
	BeforeNone     Before = "none"     // there are none
	BeforeSent     Before = "sent"     // they are delivered
	BeforeDeclared Before = "declared" // somebody said that they are delivered, or need not be
)

// Known reports whether it is known that no row from before the slot is still to be delivered.
func (b Before) Known() bool { return b == BeforeNone || b == BeforeSent || b == BeforeDeclared }

// Kind is how the positions of a slot are kept: two kinds of records in one topic, of which
// a relay reads one.
type Kind string

const (
	Promises    Kind = "intents"     // with at-least-once: the promised positions, by their former name
	Checkpoints Kind = "checkpoints" // with exactly-once: in the transactions of the rows
)

// BeforeSlot says what lies before one slot in one table. A missing record means unknown.
//
// The writer of a slot's first position writes BeforeUnknown first, then the position, then what is
// known. A reader takes the slot's position, then all records in one reading. So whoever sees the
// slot's position also sees BeforeUnknown or what replaced it, and not the record of an earlier slot
// of the same name.
type BeforeSlot struct {
	System   string  // system identifier of the cluster
	Timeline int32   // on which the slot was made
	Began    wal.LSN // as Position.Began
	Slot     string
	Table    string // schema.name, for people: a table is known by its OID
	OID      uint32

	Before    Before
	Point     wal.LSN // where the slot begins
	Positions Kind    // that guard the slot since
	Published string  // how the publication had the table: catalog.PublishedAs; empty: not recorded
	Ended     uint64  // catalog.Ended, from before it became known; zero: not recorded
	At        time.Time
	Relay     string // version that wrote it
}

type wireBeforeSlot struct {
	Version   int    `json:"v"`
	System    string `json:"system_id"`
	Timeline  int32  `json:"timeline"`
	Began     string `json:"timeline_lsn,omitempty"`
	Slot      string `json:"slot"`
	Table     string `json:"table"`
	OID       uint32 `json:"table_oid"`
	Before    Before `json:"before"`
	Point     string `json:"consistent_point"`
	Positions Kind   `json:"positions"`
	Published string `json:"published_as,omitempty"`
	Ended     uint64 `json:"ended_before_xid,omitempty"`
	At        string `json:"at"`
	Relay     string `json:"relay_version,omitempty"`
}

// PartOf reports whether the slot's beginning is part of a server's history. Another standby may have given
// its timeline the same number: then only what lies before both of them is.
func (b *BeforeSlot) PartOf(here wal.Origin) bool {
	if began := here.Begin(b.Timeline); b.Began != 0 && began != 0 && b.Began != began && b.Point > min(b.Began, began) {
		return false
	}
	if b.Timeline == here.Timeline {
		return true
	}
	fork, descends := here.Fork(b.Timeline)
	return descends && b.Point <= fork.At
}

// Encode gives the record's value in the topic.
func (b *BeforeSlot) Encode() []byte {
	w := wireBeforeSlot{
		Version: recordVersion, System: b.System, Timeline: b.Timeline, Slot: b.Slot, Table: b.Table, OID: b.OID,
		Before: b.Before, Point: b.Point.String(), Positions: b.Positions, Published: b.Published, Ended: b.Ended, At: b.At.UTC().Format(time.RFC3339), Relay: b.Relay,
	}
	if b.Began != 0 {
		w.Began = b.Began.String()
	}
	value, err := json.Marshal(w)
	if err != nil {
		//nolint:forbidigo // strings and numbers always encode
		panic(fmt.Sprintf("checkpoint: %v", err))
	}
	return value
}

// ParseBeforeSlot reads what Encode gave, of this version.
func ParseBeforeSlot(value []byte) (BeforeSlot, error) {
	var w wireBeforeSlot
	if err := json.Unmarshal(value, &w); err != nil {
		return BeforeSlot{}, fmt.Errorf("read what lies before a slot: %w", err)
	}
	if w.Version != recordVersion {
		return BeforeSlot{}, fmt.Errorf("read what lies before a slot: the record has version %d, and this relay knows version %d: run the version that wrote it, or a later one", w.Version, recordVersion)
	}
	b := BeforeSlot{System: w.System, Timeline: w.Timeline, Slot: w.Slot, Table: w.Table, OID: w.OID, Before: w.Before, Positions: w.Positions, Published: w.Published, Ended: w.Ended, Relay: w.Relay}
	var err error
	if w.Began != "" {
		if b.Began, err = wal.ParseLSN(w.Began); err != nil {
			return BeforeSlot{}, fmt.Errorf("read what lies before a slot: timeline_lsn: %w", err)
		}
	}
	if b.Point, err = wal.ParseLSN(w.Point); err != nil {
		return BeforeSlot{}, fmt.Errorf("read what lies before a slot: consistent_point: %w", err)
	}
	if b.At, err = time.Parse(time.RFC3339, w.At); err != nil {
		return BeforeSlot{}, fmt.Errorf("read what lies before a slot: at: %w", err)
	}
	switch {
	case b.System == "" || b.Slot == "" || b.OID == 0 || b.Timeline < 1:
		return BeforeSlot{}, errors.New("read what lies before a slot: system_id, timeline, slot or table_oid is missing")
	case b.Before != BeforeUnknown && !b.Before.Known():
		return BeforeSlot{}, fmt.Errorf("read what lies before a slot: before is %q; allowed: none, sent, declared, unknown", b.Before)
	case !slices.Contains([]Kind{Promises, Checkpoints}, b.Positions):
		return BeforeSlot{}, fmt.Errorf("read what lies before a slot: positions is %q; allowed: %s, %s", b.Positions, Promises, Checkpoints)
	case b.Point == 0:
		return BeforeSlot{}, errors.New("read what lies before a slot: consistent_point is zero")
	}
	return b, nil
}
