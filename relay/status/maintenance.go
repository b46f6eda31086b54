package status

import (
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/wording"
)

// JobState is what a job beside the stream is doing.
type JobState string

// The states of a job.
const (
	JobIdle    JobState = "idle"    // everything that is due is done
	JobWaiting JobState = "waiting" // for the slot, or for another process at work on the table
	JobWorking JobState = "working"
	JobPaused  JobState = "paused" // something is in the way: see the reason
)

// Maintenance is a job on the delivered rows of one table. What happens to it never changes the
// state of the relay.
type Maintenance struct {
	Table   string   `json:"table"`
	Job     string   `json:"job"`  // retention, mark, rejects
	Then    string   `json:"then"` // what becomes of the rows
	State   JobState `json:"state"`
	Reason  string   `json:"reason"`  // snake_case; empty when nothing is in the way
	Message string   `json:"message"` // the error in full, with what to do

	Since       time.Time      `json:"since"`                    // when state and reason began
	LastPass    time.Time      `json:"last_pass,omitzero"`       // end of the last one that did all that was due
	PassSeconds *float64       `json:"pass_seconds"`             // what that one took; nil: there was none
	Rows        int64          `json:"rows"`                     // done since the process started
	HeldBack    map[string]int `json:"held_back"`                // rows that the last pass left, by why
	Exported    int64          `json:"exported_bytes,omitempty"` // since the process started

	// Marks that somebody else set on rows that the job had found without one.
	MarkedByOthers int64      `json:"marked_by_others,omitempty"`    // since the process started
	LastByOthers   *time.Time `json:"marked_by_others_at,omitempty"` // when the last one was noticed

	Partitions *Partitions `json:"partitions,omitempty"` // nil: no whole ones go
	OldestRow  *float64    `json:"oldest_row_seconds"`   // age of the oldest row that the job is about; nil: none, or not known
}

// Partitions counts those of one table.
type Partitions struct {
	Ahead   int   `json:"ahead"`     // after the last pass, that begin later than now
	Held    int   `json:"held_back"` // by the last pass
	Removed int64 `json:"removed"`   // since the process started
}

// Rows are held back for these reasons.
const (
	HeldByLetter = "dead_letter" // one of the row waits, or, for a mark, was discarded
	HeldByOthers = "changed"     // updated, deleted or locked by somebody meanwhile
)

func (m *Maintenance) text(now time.Time) string {
	text := m.Table + " " + string(m.State)
	if m.Reason != "" {
		text += " (" + m.Reason + ")"
	}
	if m.State == JobPaused || m.State == JobWaiting {
		text += " since " + now.Sub(m.Since).Round(time.Second).String()
	}
	text += ", " + wording.Count(m.Rows, "row") + " since start"
	held := 0
	for _, n := range m.HeldBack {
		held += n
	}
	if held > 0 {
		text += fmt.Sprintf(", %d held back", held)
	}
	if !m.LastPass.IsZero() {
		text += ", last pass " + now.Sub(m.LastPass).Round(time.Second).String() + " ago"
	}
	return text
}
