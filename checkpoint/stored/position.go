package stored

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

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
	Last Last
}

// Last is the last transaction of which a row is delivered, whole or in part. End may be far beyond it, where
// the stream had no row. It tells whether a server has the history that the record is of.
type Last struct {
	Commit  wal.LSN   // start of its commit record, as wal.Place has it; zero: not recorded
	XID     uint32    // zero: a message outside any transaction, or Known is false
	Time    time.Time // of the commit, by the server's clock
	Message string    // of a message outside any transaction: the hash of its body
}

// Known reports whether the transaction can be recognised. If not, no more is known than that no later row is delivered.
func (l *Last) Known() bool { return l.XID != 0 || l.Message != "" }

// LastOf is the transaction of a row.
func LastOf(row *wal.Row) Last {
	l := Last{Commit: row.Place().Commit, XID: row.Txn.XID, Time: row.Txn.Time.UTC()}
	if row.Outside() {
		h := fnv.New64a()
		if len(row.Values) > 0 {
			_, _ = h.Write(row.Body())
		}
		l.Message = fmt.Sprintf("%x", h.Sum64())
	}
	return l
}

// Part is how far a transaction is delivered that was too large for one Kafka
// transaction.
type Part struct {
	Commit wal.LSN // start of its commit record
	Rows   uint64  // ordinal of the last row that is delivered
	Shape  string  // of the configuration that counted: another may count other rows
}

// Covers reports whether a row is delivered. It may be asked only about rows of the record's own
// history, which has none between Last and End: a row there is of another one.
func (r *Position) Covers(commit wal.LSN, ordinal uint64) bool {
	if commit < r.End { // the end of one transaction may be the start of the next one's commit record
		return r.Last.Commit == 0 || commit <= r.Last.Commit
	}
	return r.Part.Commit != 0 && commit == r.Part.Commit && ordinal <= r.Part.Rows
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

// Advance moves the record to the end of a whole transaction, or to that of a keep-alive. last is the
// last row that was read, nil if there is none. A position before the divided transaction leaves it as it is.
func (r *Position) Advance(end wal.LSN, last *wal.Row) {
	r.End = max(r.End, end)
	if r.Part.Commit < end {
		r.Part = Part{}
	}
	if last != nil && last.Place().Commit < end && last.Place().Commit >= r.Last.Commit {
		r.Last = LastOf(last)
	}
}

// Divide moves the record past a row of a transaction that continues. It never goes back: a slot
// that lags behind brings transactions again that the record covers.
func (r *Position) Divide(last *wal.Row, shape string) {
	switch commit := last.Txn.Commit; {
	case commit < max(r.End, r.Part.Commit):
	case commit == r.Part.Commit:
		r.Part.Rows = max(r.Part.Rows, last.Ordinal)
	default:
		r.Part, r.Last = Part{Commit: commit, Rows: last.Ordinal, Shape: shape}, LastOf(last)
	}
}

// UpTo is what of the record is left where a server shares its history up to a position alone: a timeline forked
// there, or the slot that is on a disk that was put back stands there.
func (r Position) UpTo(fork wal.LSN) Position {
	r.End = min(r.End, fork)
	if r.Part.Commit >= fork {
		r.Part = Part{}
	}
	if r.Last.Commit >= fork {
		r.Last = Last{Commit: fork - 1}
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
	LastCommit  string `json:"last_commit_lsn,omitempty"`
	LastXID     uint32 `json:"last_xid,omitempty"`
	LastTime    string `json:"last_commit_time,omitempty"`
	LastMessage string `json:"last_message_hash,omitempty"`
	Relay       string `json:"relay_version,omitempty"`
}

// Encode gives the record's value in the topic.
func (r *Position) Encode() []byte {
	w := wire{
		Version: recordVersion, System: r.System, Timeline: r.Timeline, Slot: r.Slot, Publication: r.Publication,
		End: r.End.String(), Rows: r.Part.Rows, Shape: r.Part.Shape, LastXID: r.Last.XID, LastMessage: r.Last.Message, Relay: r.Relay,
	}
	if r.Part.Commit != 0 {
		w.Commit = r.Part.Commit.String()
	}
	if r.Last.Commit != 0 {
		w.LastCommit = r.Last.Commit.String()
	}
	if !r.Last.Time.IsZero() {
		w.LastTime = r.Last.Time.UTC().Format(time.RFC3339Nano)
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
		Part: Part{Rows: w.Rows, Shape: w.Shape}, Last: Last{XID: w.LastXID, Message: w.LastMessage},
	}
	var err error
	if r.End, err = wal.ParseLSN(w.End); err != nil {
		return Position{}, fmt.Errorf("read checkpoint: end_lsn: %w", err)
	}
	for _, optional := range []struct {
		name, text string
		to         *wal.LSN
	}{{"part_commit_lsn", w.Commit, &r.Part.Commit}, {"last_commit_lsn", w.LastCommit, &r.Last.Commit}, {"timeline_lsn", w.Began, &r.Began}} {
		if optional.text == "" {
			continue
		}
		if *optional.to, err = wal.ParseLSN(optional.text); err != nil {
			return Position{}, fmt.Errorf("read checkpoint: %s: %w", optional.name, err)
		}
	}
	if w.LastTime != "" {
		if r.Last.Time, err = time.Parse(time.RFC3339Nano, w.LastTime); err != nil {
			return Position{}, fmt.Errorf("read checkpoint: last_commit_time: %w", err)
		}
		r.Last.Time = r.Last.Time.UTC()
	}
	switch {
	case r.System == "" || r.Slot == "":
		return Position{}, errors.New("read checkpoint: it names no system_id or no slot")
	case r.End == 0:
		return Position{}, errors.New("read checkpoint: end_lsn is zero")
	case r.Part.Commit == 0 && r.Part != (Part{}), r.Part.Commit != 0 && (r.Part.Rows == 0 || r.Part.Commit < r.End):
		return Position{}, fmt.Errorf("read checkpoint: a part of %d rows that commit at %s contradicts end_lsn %s", r.Part.Rows, r.Part.Commit, r.End)
	case r.Last.Commit == 0 && r.Last != (Last{}), r.Last.Time.Year() < 1, r.Last.Time.Year() > 9999:
		return Position{}, fmt.Errorf("read checkpoint: the last transaction committed at %s, by the clock at %q", r.Last.Commit, w.LastTime)
	}
	return r, nil
}
