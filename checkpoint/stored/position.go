package stored

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// recordVersion is raised when an older relay could misread a record.
const recordVersion = 1

// Position is how far a slot is delivered, written in the Kafka transaction of the last rows that
// it covers; or the promised position, before the slot is confirmed that far. It means something
// only on its cluster and timeline.
type Position struct {
	System      string // system identifier of the cluster
	Timeline    int32
	Began       wal.LSN // where the timeline begins: another standby may have given its own the same number; zero: the first one, or not recorded
	Slot        string
	Publication string
	Relay       string // version that wrote it

	// End is after every transaction that is delivered whole. No position beyond
	// the End of a committed record is confirmed, so a slot that is ahead of
	// it was moved by somebody else.
	End wal.LSN

	Part Part // of the transaction that was divided; zero when there is none
}

// Part is how far a transaction is delivered that was too large for one Kafka
// transaction.
type Part struct {
	Commit wal.LSN // start of its commit record
	Rows   uint64  // ordinal of the last row that is delivered
	Shape  string  // of the configuration that counted: another may count other rows
}

// Covers reports whether a row is delivered. It may be asked only about rows of the
// record's own history.
func (r *Position) Covers(commit wal.LSN, ordinal uint64) bool {
	// The end of one transaction may be the start of the next one's commit record.
	return commit < r.End || r.Part.Commit != 0 && commit == r.Part.Commit && ordinal <= r.Part.Rows
}

// Behind reports whether another record of the same history covers more.
func (r *Position) Behind(other *Position) bool {
	if r.End != other.End {
		return r.End < other.End
	}
	if r.Part.Commit != other.Part.Commit {
		return r.Part.Commit < other.Part.Commit
	}
	return r.Part.Rows < other.Part.Rows
}

// Exceeds reports whether something that the record covers commits behind the end of a server's WAL: that
// server never had it.
func (r *Position) Exceeds(end wal.LSN) bool {
	return r.End > end || r.Part.Commit != 0 && r.Part.Commit >= end
}

// UpTo is what of the record is left on a timeline that forked at a position.
func (r Position) UpTo(fork wal.LSN) Position {
	r.End = min(r.End, fork)
	if r.Part.Commit >= fork {
		r.Part = Part{}
	}
	return r
}

// wire is a Position in the topic, for people to read too.
type wire struct {
	Version     int    `json:"v"`
	System      string `json:"system_id"`
	Timeline    int32  `json:"timeline"`
	Began       string `json:"timeline_lsn,omitempty"`
	Slot        string `json:"slot"`
	Publication string `json:"publication"`
	End         string `json:"end_lsn"`
	Commit      string `json:"part_commit_lsn,omitempty"`
	Rows        uint64 `json:"part_rows,omitempty"`
	Shape       string `json:"part_shape,omitempty"`
	Relay       string `json:"relay_version,omitempty"`
}

// Encode gives the record's value in the topic.
func (r *Position) Encode() []byte {
	w := wire{
		Version: recordVersion, System: r.System, Timeline: r.Timeline, Slot: r.Slot, Publication: r.Publication,
		End: r.End.String(), Rows: r.Part.Rows, Shape: r.Part.Shape, Relay: r.Relay,
	}
	if r.Part.Commit != 0 {
		w.Commit = r.Part.Commit.String()
	}
	if r.Began != 0 {
		w.Began = r.Began.String()
	}
	value, err := json.Marshal(w)
	if err != nil {
		//nolint:forbidigo // strings and numbers always encode
		panic(fmt.Sprintf("checkpoint: %v", err))
	}
	return value
}

// ParsePosition reads what Encode gave, of this version. Members that it does not know
// are left to later versions, which raise the version when that would mislead.
func ParsePosition(value []byte) (Position, error) {
	var w wire
	if err := json.Unmarshal(value, &w); err != nil {
		return Position{}, fmt.Errorf("read checkpoint: %w", err)
	}
	if w.Version != recordVersion {
		return Position{}, fmt.Errorf("read checkpoint: it has version %d, and this relay knows version %d: run the version that wrote it, or a later one", w.Version, recordVersion)
	}
	r := Position{
		System: w.System, Timeline: w.Timeline, Slot: w.Slot, Publication: w.Publication, Relay: w.Relay,
		Part: Part{Rows: w.Rows, Shape: w.Shape},
	}
	var err error
	if r.End, err = wal.ParseLSN(w.End); err != nil {
		return Position{}, fmt.Errorf("read checkpoint: end_lsn: %w", err)
	}
	if w.Commit != "" {
		if r.Part.Commit, err = wal.ParseLSN(w.Commit); err != nil {
			return Position{}, fmt.Errorf("read checkpoint: part_commit_lsn: %w", err)
		}
	}
	if w.Began != "" {
		if r.Began, err = wal.ParseLSN(w.Began); err != nil {
			return Position{}, fmt.Errorf("read checkpoint: timeline_lsn: %w", err)
		}
	}
	switch {
	case r.System == "" || r.Slot == "":
		return Position{}, errors.New("read checkpoint: it names no system_id or no slot")
	case r.End == 0:
		return Position{}, errors.New("read checkpoint: end_lsn is zero")
	case r.Part.Commit == 0 && r.Part != (Part{}), r.Part.Commit != 0 && (r.Part.Rows == 0 || r.Part.Commit < r.End):
		return Position{}, fmt.Errorf("read checkpoint: a part of %d rows that commit at %s contradicts end_lsn %s", r.Part.Rows, r.Part.Commit, r.End)
	}
	return r, nil
}
