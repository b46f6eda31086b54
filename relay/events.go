package relay

import (
	"github.com/cdc-relay/cdc-relay/relay/delivery"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Events are optional calls; nil fields are ignored. They run on the relay's
// goroutines: they must not block and must not keep what they are given.
type Events struct {
	SessionStarted func(start wal.LSN)
	SessionEnded   func(err error) // nil after a stop with nothing in flight

	// Reconnecting runs for every session that failed and every failed attempt at
	// one, except a standby's polling; reason is one of network, timeout,
	// slot_in_use, auth, server_shutdown, other.
	Reconnecting func(reason string, err error)

	StateChanged func(from, to status.State, reason string)

	// BatchReceived sees the batch before it is routed.
	BatchReceived func(b *wal.Batch)

	// TransactionEnded runs for each Kafka transaction, with ExactlyOnce.
	TransactionEnded func(sink.Ending)

	// SchemaAsked runs for each request to a schema registry; outcome is ok, or why it failed.
	SchemaAsked func(outcome string)

	delivery.Events
}
