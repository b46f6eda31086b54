package outbox

import "context"

// Event is one row of the outbox, which becomes one record.
type Event struct {
	// ID is the event's own, by which consumers drop duplicates. The zero UUID has
	// one made.
	ID UUID

	// AggregateType is the kind of thing that the event is about; most shapes make
	// the topic of it.
	AggregateType string

	// AggregateID is the thing itself, and the record's key: its events stay in
	// order.
	AggregateID string

	// Type is what happened.
	Type string

	// Topic is for tables that have a column with the topic's name.
	Topic string

	// Payload is the record's value. []byte and json.RawMessage are written as they
	// are, nil is NULL, and Config.Encode makes bytes of anything else.
	Payload any

	// IdempotencyKey makes the second writing of one event a *DuplicateError. Empty
	// is none; see Key.
	IdempotencyKey string

	// Headers become headers of the record.
	Headers map[string]string
}

// Store is what stays in the database of an event that is written.
type Store byte

const (
	// KeepRow leaves the row until somebody deletes it.
	KeepRow Store = iota

	// DeleteRow deletes the row in the transaction that writes it. The relay sends it
	// all the same. An idempotency key then guards against writers at the same time,
	// not against later ones.
	DeleteRow

	// Message writes no row but a logical message (pg_logical_emit_message) with
	// Config.MessagePrefix, for a relay with `message_prefix`. No idempotency key is
	// checked; the relay sends it as a header. The payload is JSON.
	Message
)

// Written is what a Write did.
type Written struct {
	// IDs are those of the events, by their place in Write's arguments. The one of a
	// duplicate is in no row. It is nil where the database makes the ids.
	IDs []UUID

	// Duplicates are the places of the events that were written before, and were not
	// written again.
	Duplicates []int
}

// Config says where a Writer writes. The zero Config is for our own table, public.outbox.
type Config struct {
	// Table is the table's name as in the relay's configuration: schema.table, with
	// double quotes around a part that has upper case. Empty is public.outbox.
	Table string

	// Shape is what columns the table has. The zero Shape is Outbox().
	Shape Shape

	Store Store

	// MessagePrefix is the relay's `message_prefix`, for Message. Empty is outbox.
	MessagePrefix string

	// Topic is the relay's `topic` where its configuration sets one. It is only
	// checked, never written. A template with filters, or with a column that is not
	// of the Shape, is not checked. Empty is the Shape's.
	Topic string

	// Encode makes the bytes of a payload that is neither []byte nor
	// json.RawMessage. nil is json.Marshal.
	Encode func(payload any) ([]byte, error)

	// Trace hands the trace context of ctx to set, as the Inject of an OpenTelemetry
	// propagator does. traceparent and tracestate are written, other keys are not.
	Trace func(ctx context.Context, set func(key, value string))

	// MaxBytes is the largest record: the relay's `kafka.max_message_bytes`. Zero is
	// 1 MiB.
	MaxBytes int

	// SkipDuplicates has Write return no error for events that were written before.
	// Written.Duplicates names them either way.
	SkipDuplicates bool
}
