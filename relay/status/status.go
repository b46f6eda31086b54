// Package status is what a relay shows of itself: its state and why, its positions, its lag,
// the row that it is blocked at, and how long the server keeps the slot's WAL. Nothing that
// is decided here moves a position.
package status

import (
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// State is what the relay is doing, as users see it.
type State string

// The states of interface and metrics; exactly one holds at a time.
const (
	Starting     State = "starting"
	Standby      State = "standby"
	Streaming    State = "streaming"
	Blocked      State = "blocked"
	Reconnecting State = "reconnecting"
	Stopping     State = "stopping"
)

// States lists all of them.
var States = []State{Starting, Standby, Streaming, Blocked, Reconnecting, Stopping}

// Position is a WAL position that prints as X/Y and is null when unknown.
type Position wal.LSN

// MarshalText gives PostgreSQL's notation.
func (p Position) MarshalText() ([]byte, error) {
	if p == 0 {
		return []byte(""), nil
	}
	return []byte(wal.LSN(p).String()), nil
}

// UnmarshalText reads PostgreSQL's notation; the empty text is unknown.
func (p *Position) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*p = 0
		return nil
	}
	lsn, err := wal.ParseLSN(string(text))
	*p = Position(lsn)
	return err
}

// LSNs are the positions of one relay.
type LSNs struct {
	Server    Position `json:"server"`    // end of the server's WAL at the last look
	Received  Position `json:"received"`  // read from the stream
	Published Position `json:"published"` // delivered without a gap; what will be confirmed next
	Confirmed Position `json:"confirmed"` // reported to the server
}

// Slot is the slot's row in the catalog at the last look. Pointers are nil when
// the server does not say.
type Slot struct {
	Active        bool     `json:"active"`
	WALStatus     string   `json:"wal_status"`
	Confirmed     Position `json:"confirmed_flush_lsn"`
	Restart       Position `json:"restart_lsn"`
	SafeWALBytes  *int64   `json:"safe_wal_bytes"`
	SafeSeconds   *float64 `json:"safe_wal_seconds"` // until the slot is lost, at WALPace, if it stood still from now on
	WALPace       int64    `json:"wal_bytes_per_second"`
	RetainedBytes int64    `json:"retained_wal_bytes"`
	SpilledBytes  *int64   `json:"spilled_bytes"`
}

// Status is one consistent snapshot, and the body of /api/v1/status.
type Status struct {
	State    State     `json:"state"`
	Reason   string    `json:"reason"`   // snake_case; empty when all is well
	Message  string    `json:"message"`  // the error in full, with what to do; never payloads or secrets
	Headline string    `json:"headline"` // the whole in one sentence
	Since    time.Time `json:"since"`    // when State began; Reason may have come, or changed, later
	Version  string    `json:"version"`
	Pipeline string    `json:"pipeline"`

	ReasonSince time.Time `json:"reason_since,omitzero"` // when Reason began, maybe in an earlier state

	Guarantee   string `json:"guarantee"`
	Slot        string `json:"slot"`
	Publication string `json:"publication"`
	SlotState   *Slot  `json:"slot_state,omitempty"` // nil until the first look, and while PostgreSQL does not answer

	LastLook *LastLook `json:"last_look,omitempty"` // what was seen when PostgreSQL answered last; nil while it answers, and before it has

	LSN LSNs `json:"lsn"`

	LagBytes           *int64   `json:"lag_bytes"`                              // server - confirmed; nil: not known
	RetainedWALBytes   int64    `json:"retained_wal_bytes"`                     // server - restart_lsn; 0 while SlotState is nil
	CatchUp            *CatchUp `json:"catch_up"`                               // nil: no backlog is being read
	LagSeconds         *float64 `json:"lag_seconds"`                            // age of the oldest committed row that is not confirmed; nil: not known, see lag.go
	RowsBehind         *int64   `json:"rows_behind"`                            // roughly, by the rows that came in as much WAL of late; nil: not known
	NotMoving          *float64 `json:"confirmed_not_moving_seconds,omitempty"` // since the slot's confirmed position moved, where it should; nil: it moves
	InFlightEvents     int      `json:"in_flight_events"`                       // rows read and not acknowledged
	InFlightBytes      int      `json:"in_flight_bytes"`                        // memory they hold
	InFlightLimitBytes int      `json:"in_flight_limit_bytes"`
	OldestUnacked      *float64 `json:"oldest_unacked_seconds"` // since the oldest row in flight was read; nil without a session

	// LongTransaction is read, and holds the confirmed position until its end; nil: none is.
	LongTransaction *LongTransaction `json:"long_transaction,omitempty"`

	// EventsToRepeat are acknowledged and cannot be confirmed, because an earlier row, or one of
	// their transaction, is not acknowledged: a start sends them again. Never with exactly-once.
	EventsToRepeat int `json:"events_to_repeat"`

	RowsRead        int64    `json:"rows_read_total"`        // of configured tables, those read again counted again
	EventsPublished int64    `json:"events_published_total"` // records that the brokers acknowledged
	EventsRejected  int64    `json:"events_rejected_total"`
	DeadLetters     int64    `json:"dead_letters_total"`
	ParkedKeys      int      `json:"parked_keys"` // whose rows go to the dead-letter topic until re-driven
	LettersLost     string   `json:"-"`           // which dead letters, with their topic; the message has it too
	Reconnects      int64    `json:"reconnects_total"`
	Topics          []string `json:"topics"`

	Obstacle   *Obstacle `json:"obstacle"`    // nil: nothing stands in the way
	Tables     []Flow    `json:"tables"`      // rows that were read
	TopicRates []Flow    `json:"topic_rates"` // records that the brokers acknowledged; the busiest

	// What the sink noticed of the brokers since the process started; any of the
	// last two that is not zero is worth a person's look.
	TopicsRecreated int64 `json:"topics_recreated_total"`  // found deleted and made again
	DataLoss        int64 `json:"data_loss_signals_total"` // a broker lost or forgot what it had acknowledged
	Overtaken       int64 `json:"overtaken_total"`         // records durable before an earlier failed one, sent again in order

	SourceConnected bool `json:"source_connected"` // and PostgreSQL answers
	SinkConnected   bool `json:"sink_connected"`
	SourceReached   bool `json:"source_reached"` // once since the process started
	SinkReached     bool `json:"sink_reached"`

	LastEvent   time.Time `json:"last_event,omitzero"`   // last acknowledgement; zero when none
	LastConfirm time.Time `json:"last_confirm,omitzero"` // last move of the confirmed position; zero when none
	LastTick    time.Time `json:"last_tick"`             // when the loops were last seen running, for /livez

	// Shards are the shards that this process runs, when there are several. What stands
	// above is then their sum, or that of the worst.
	Shards []Status `json:"shards,omitempty"`

	// Maintenance are the jobs on delivered rows that the process runs beside the stream.
	Maintenance []Maintenance `json:"maintenance,omitempty"`
}

// Ready reports whether the relay does its job: it streams, or stands by for the slot.
func (s Status) Ready() bool { return s.State == Streaming || s.State == Standby }
