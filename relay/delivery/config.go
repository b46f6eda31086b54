package delivery

import (
	"time"

	"github.com/cdc-relay/cdc-relay/relay/resume"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// Guarantee says what consumers may rely on.
type Guarantee string

// The guarantees.
const (
	AtLeastOnce Guarantee = "at_least_once"
	ExactlyOnce Guarantee = "exactly_once" // for consumers that read what is committed
)

// OnReject says what happens to a row that can never be delivered.
type OnReject string

// What may happen to it.
const (
	StopOnReject       OnReject = "stop"        // block, and confirm nothing past it
	DeadLetterOnReject OnReject = "dead_letter" // into the dead-letter topic
	SkipOnReject       OnReject = "skip"        // count it, log it, lose it
)

// Config is the part of a relay's configuration that delivery uses.
type Config struct {
	Guarantee       Guarantee
	OnReject        OnReject
	DeadLetterTopic string // reserved in the router, so that a record there is a letter
	MaxParked       int    // keys at a time; set by tests. Zero: deadletter.MaxParked
	CreateTopics    bool   // the dead-letter topic is made with the first dead letter
	KeepsPositions  bool   // in the checkpoint topic

	RetryMin, RetryMax time.Duration

	// Handover bounds the start with exactly-once, as the server gets no answer meanwhile.
	Handover time.Duration

	Resume *resume.Config
}

// Events are the calls of relay.Events that are about delivery.
type Events struct {
	// RecordsAcknowledged has each record that became durable in exactly one call, before the
	// BatchDelivered of its batch. A call may have several.
	RecordsAcknowledged func(records []record.Record)

	// BatchDelivered runs when every record of the batch is durable; took is the time from the first
	// hand-over to the sink, and means nothing without records.
	BatchDelivered func(b *wal.Batch, records []record.Record, took time.Duration)

	// RowRejected runs once for a row, however often it is tried. The error names the row.
	RowRejected func(reason string, err error)

	// DeadLettered runs for each row whose dead letter is durable; reason is that of
	// RowRejected, or parked.
	DeadLettered func(reason string)

	// ProduceRetried runs when a record failed alone, or a Kafka transaction failed without a rejected
	// record, and is tried again.
	ProduceRetried func(reason string)
}
