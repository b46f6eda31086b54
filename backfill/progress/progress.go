package progress

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// progressVersion is raised when an older program could misread a record. Such a program knows nothing of
// buckets.
const (
	progressVersion = 1
	bucketsVersion  = 2
)

// Tuple is the values of a row in the columns of an order; nil stands for NULL.
type Tuple = []*string

// Place is how far a backfill came.
type Place struct {
	Rows  uint64 // rows that are acknowledged, since the first attempt
	Table int    // of Progress.Tables, in which the next row is
	Done  Tuple  // everything up to here is acknowledged in that table; nil: nothing is known to be

	Skipped uint64 // of Rows: those that cannot be sent, and were left out
	First   string // of these: which row, why, and the next step
}

// Progress is the record of one backfill in the checkpoint topic.
type Progress struct {
	System   string // system identifier of the cluster
	Timeline int32
	Began    wal.LSN // where the timeline begins: wal.Origin.Begin; zero: the first one, or not recorded
	End      wal.LSN // of the WAL when the last snapshot was taken, of an online backfill, of one beside a relay and of a replay; zero: not recorded
	Slot     string  // the configured one, without the number of a shard
	Point    wal.LSN // where the slot of the backfill begins
	Snapshot string  // as the server shows it; online it decides which streamed rows the table has given, else it is for people
	Run      string  // names the backfill: another one with the same slot has another
	Tables   []TableProgress
	Place
	Online   *Online // nil: the rows of one snapshot are sent, and nothing is streamed before they are
	Started  time.Time
	Finished bool
	Relay    string // version that wrote it
}

// Announced is the record that is written before the slot is made. A slot without any record is not new: somebody deleted
// the topic, or emptied it.
func (s *State) Announced(slot, run, relay string, now time.Time) *Progress {
	return &Progress{System: s.System, Timeline: s.Timeline, Slot: slot, Run: run, Started: now, Relay: relay}
}

// IsAnnounced reports whether nothing was sent, because the slot was still to be made.
func (p *Progress) IsAnnounced() bool { return p.Point == 0 }

// OfSlot reports whether the progress is that of a slot which is confirmed up to there.
func (p *Progress) OfSlot(confirmed wal.LSN) bool {
	if p.Online == nil {
		return p.Point == confirmed
	}
	return confirmed >= p.Point && confirmed <= p.Online.Until // a server that crashed may have an older one
}

// Copied is where the slots begin that are copied from the backfill's.
func (p *Progress) Copied() wal.LSN {
	if p.Online == nil {
		return p.Point
	}
	return p.Online.Until
}

// Behind reports whether the slot of a finished online backfill stands before the end of what was streamed. Then its
// server crashed, or is another one that may have other rows in between.
func (p *Progress) Behind(confirmed wal.LSN) bool {
	return p.Online != nil && p.Finished && confirmed < p.Online.Until
}

// TableProgress is what is read of one table.
type TableProgress struct {
	Table string // schema.name, for people
	OID   uint32
	Where string
	Order []string
	Shape string // of columns and mapping: see shape
	Last  Tuple  // place of the last row of the first snapshot; nil: there was none

	Published string // how the publications had the table before the slot: handover.Published; empty: nobody looked

	PublishedUntil string // position up to which they had it so; empty: no call has found them changed
}

type wireTable struct {
	Table string   `json:"table"`
	OID   uint32   `json:"table_oid"`
	Where string   `json:"where,omitempty"`
	Order []string `json:"order"`
	Shape string   `json:"shape"`
	Last  Tuple    `json:"last,omitempty"`

	Published string `json:"published_as,omitempty"`

	PublishedUntil string `json:"published_until,omitempty"`
}

type wireProgress struct {
	Version  int         `json:"v"`
	System   string      `json:"system_id"`
	Timeline int32       `json:"timeline"`
	Began    string      `json:"timeline_lsn,omitempty"`
	End      string      `json:"wal_end,omitempty"`
	Slot     string      `json:"slot"`
	Point    string      `json:"consistent_point"`
	Snapshot string      `json:"snapshot"`
	Run      string      `json:"run"`
	Tables   []wireTable `json:"tables"`
	Table    int         `json:"at"`
	Done     Tuple       `json:"done,omitempty"`
	Rows     uint64      `json:"rows"`
	Skipped  uint64      `json:"skipped,omitempty"`
	First    string      `json:"first_skipped,omitempty"`
	Online   *wireOnline `json:"online,omitempty"`
	Started  string      `json:"started"`
	Finished bool        `json:"finished"`
	Relay    string      `json:"relay_version,omitempty"`
}

// Encode gives the record's value in the topic.
func (p *Progress) Encode() []byte {
	w := wireProgress{
		Version: progressVersion, System: p.System, Timeline: p.Timeline, Slot: p.Slot, Point: p.Point.String(), Snapshot: p.Snapshot, Run: p.Run,
		Table: p.Table, Done: p.Done, Rows: p.Rows, Skipped: p.Skipped, First: p.First, Started: p.Started.UTC().Format(time.RFC3339Nano), Finished: p.Finished, Relay: p.Relay,
	}
	if p.Began != 0 {
		w.Began = p.Began.String()
	}
	if p.End != 0 {
		w.End = p.End.String()
	}
	for _, t := range p.Tables {
		w.Tables = append(w.Tables, wireTable(t))
	}
	if o := p.Online; o != nil {
		w.Version = bucketsVersion
		w.Online = o.wire()
	}
	value, err := json.Marshal(w)
	if err != nil {
		//nolint:forbidigo // strings and numbers always encode
		panic(fmt.Sprintf("backfill: %v", err))
	}
	return value
}

// Parse reads what Encode gave, of this version.
func Parse(value []byte) (*Progress, error) {
	const op = "read the progress of a backfill"
	var w wireProgress
	if err := json.Unmarshal(value, &w); err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	switch {
	case w.Version != progressVersion && w.Version != bucketsVersion:
		return nil, fmt.Errorf("%s: the record has version %d, and this program knows versions up to %d: run the version that wrote it, or a later one", op, w.Version, bucketsVersion)
	case (w.Version == bucketsVersion) != (w.Online != nil):
		return nil, fmt.Errorf("%s: `online` is in records of version %d alone, and this one has version %d", op, bucketsVersion, w.Version)
	}
	p := &Progress{
		System: w.System, Timeline: w.Timeline, Slot: w.Slot, Snapshot: w.Snapshot, Run: w.Run,
		Place: Place{Rows: w.Rows, Table: w.Table, Done: w.Done, Skipped: w.Skipped, First: w.First}, Finished: w.Finished, Relay: w.Relay,
	}
	var err error
	if p.Point, err = wal.ParseLSN(w.Point); err != nil {
		return nil, fmt.Errorf("%s: consistent_point: %w", op, err)
	}
	for _, at := range []struct {
		name, text string
		to         *wal.LSN
	}{{"timeline_lsn", w.Began, &p.Began}, {"wal_end", w.End, &p.End}} {
		if at.text == "" {
			continue
		}
		if *at.to, err = wal.ParseLSN(at.text); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", op, at.name, err)
		}
	}
	if w.Online != nil {
		if p.Online, err = w.Online.parse(); err != nil {
			return nil, fmt.Errorf("%s: online: %w", op, err)
		}
	}
	if p.Started, err = time.Parse(time.RFC3339Nano, w.Started); err != nil {
		return nil, fmt.Errorf("%s: started: %w", op, err)
	}
	for _, t := range w.Tables {
		p.Tables = append(p.Tables, TableProgress(t))
		if t.OID == 0 || t.Last != nil && len(t.Last) != len(t.Order) {
			return nil, fmt.Errorf("%s: table %s makes no sense", op, t.Table)
		}
	}
	switch {
	case p.System == "" || p.Slot == "" || p.Run == "" || p.Timeline < 1 || (p.Point == 0) != (len(p.Tables) == 0):
		return nil, errors.New(op + ": system_id, slot, run, timeline, consistent_point or tables is missing")
	case p.Table < 0 || p.Table > len(p.Tables):
		return nil, fmt.Errorf("%s: it is at table %d of %d", op, p.Table, len(p.Tables))
	case p.Online != nil && (p.Online.Until < p.Point || p.Finished && (p.Online.Next < p.Online.Buckets || p.Online.Reading)):
		return nil, fmt.Errorf("%s: bucket %d of %d, until %s and finished %t make no sense", op, p.Online.Next, p.Online.Buckets, p.Online.Until, p.Finished)
	case p.Done != nil && (p.Table == len(p.Tables) || len(p.Done) != len(p.Tables[p.Table].Order)):
		return nil, errors.New(op + ": the place has other columns than the order")
	}
	return p, nil
}

// At is the record of another place.
func (p *Progress) At(place Place) *Progress {
	other := *p
	other.Place = place
	return &other
}

// Continues explains why a server, whose WAL ends at end, may not have rows that a backfill beside a relay or
// a replay has seen, and may have others with their order values, which the rest of it would leave out; nil:
// it has all of them. Whatever was seen commits before End.
func (p *Progress) Continues(here wal.Origin, end wal.LSN) error {
	began := here.Begin(p.Timeline)
	fork, left := here.Fork(p.Timeline)
	switch {
	case p.Timeline != here.Timeline && (!left || p.End == 0 || p.End > fork.At):
		return fmt.Errorf("it began on timeline %d, and the server is on %d, which may have other rows", p.Timeline, here.Timeline)
	case p.Began != 0 && began != 0 && p.Began != began && p.End > min(p.Began, began):
		return fmt.Errorf("it began on timeline %d that begins at %s, and that of the server begins at %s: another standby was promoted", p.Timeline, p.Began, began)
	case p.Timeline == here.Timeline && p.End > end:
		return fmt.Errorf("it has seen rows up to %s, and the server's WAL ends at %s: its disk was put back to a copy, or it lost WAL", p.End, end)
	}
	return nil
}
