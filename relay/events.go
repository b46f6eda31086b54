package relay

import (
	"time"

	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Events are optional calls; nil fields are ignored. They run on the relay's
// goroutines: they must not block and must not keep what they are given.
type Events struct {
	SessionStarted func(start wal.LSN)
	SessionEnded   func(err error) // nil after a clean drain

	// Reconnecting runs for every session that failed and every failed attempt at
	// one, except a standby's polling; reason is one of network, timeout,
	// slot_in_use, auth, server_shutdown, other.
	Reconnecting func(reason string, err error)

	StateChanged func(from, to status.State, reason string)

	// BatchReceived sees the batch before it is routed.
	BatchReceived func(b *wal.Batch)

	// RecordsAcknowledged runs once for each record that became durable, for some at a time,
	// before the BatchDelivered of their batch.
	RecordsAcknowledged func(records []record.Record)

	// BatchDelivered runs when every record of the batch is durable; took is the
	// time from the first hand-over to the sink.
	BatchDelivered func(b *wal.Batch, records []record.Record, took time.Duration)

	// RowRejected runs once for a row, however often it is tried. The error names the row.
	RowRejected func(reason string, err error)

	// DeadLettered runs for each row whose dead letter is durable; reason is that of
	// RowRejected, or parked.
	DeadLettered func(reason string)

	// TransactionEnded runs for each Kafka transaction, with ExactlyOnce.
	TransactionEnded func(sink.Ending)

	// ProduceRetried runs for each attempt that starts again after a failure.
	ProduceRetried func(reason string)

	// SchemaAsked: a schema registry was asked. ok, or the reason of the failure.
	SchemaAsked func(outcome string)
}
