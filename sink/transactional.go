package sink

import (
	"context"

	"github.com/cdc-relay/cdc-relay/router/record"
)

// Transactional is a Sink that commits records and a position together: what a relay needs for
// exactly-once. *kafkatx.Sink satisfies it.
type Transactional interface {
	Sink
	Open(ctx context.Context, h Holder) ([]byte, error)
	SetPosition(m Position)
	Seal()
	Finish(done func(error))
	FindRejected(ctx context.Context, id string, records []record.Record) (map[int]Failure, error)
}

// Refuser is a Sink that knows beforehand of some records that it will not send. Refuses returns the
// failure of such a record, and nil for every other one, which the brokers may still reject. Any
// goroutine may call it.
type Refuser interface {
	Refuses(r *record.Record) *Failure
}

// Position is a place in the stream after every record that was sent before it.
type Position struct {
	Value     []byte // of the checkpoint record
	Whole     bool   // no source transaction is open here
	Now       bool   // end the transaction here
	Committed func() // runs when this position, or only a later one, was committed; it must not block
}

// Holder is the relay that opens a transactional sink (package kafkatx).
type Holder struct {
	ID  string // transactional id
	Key string // of the checkpoint records

	// Lost runs once when the producer session ends by a failure, after every done. It must not
	// block. The error is a *Error.
	Lost func(error)
}

// Ending is how a transaction ended.
type Ending string

// The endings.
const (
	Committed Ending = "commit"
	Aborted   Ending = "abort"
	Unknown   Ending = "unknown" // the brokers did not say; the checkpoint topic does
)
