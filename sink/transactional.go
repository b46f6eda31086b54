package sink

import (
	"context"

	"github.com/cdc-relay/cdc-relay/router/record"
)

// Transactional is a Sink that commits records and a position together: what a relay needs for
// exactly-once. *kafkatx.Sink satisfies it.
//
// Its done means more than a Sink's: nil once the records are committed. A failure ends the producer
// session: everything not committed fails, Holder.Lost runs, and nothing is taken until Open.
// Resume and Halt do nothing. One goroutine calls Send and the methods below.
type Transactional interface {
	Sink

	// Open begins a producer session. It shuts out whoever had the same transactional id, and returns the
	// value of the last position that was committed under Holder.Key, nil when there is none. What the
	// predecessor had under way is settled by then. The error is a *Error.
	Open(ctx context.Context, h Holder) ([]byte, error)

	// SetPosition gives the position after everything that was sent. A transaction ends at such a
	// position and nowhere else.
	SetPosition(p Position)

	// Seal asks for a commit at the last position, even inside a source transaction: the caller cannot
	// continue before something is committed.
	Seal()

	// Finish ends what can be ended. done gets nil when all that was sent is committed, with the last
	// position. Records after it, or of an open source transaction, fail.
	Finish(done func(error))

	// FindRejected finds the records that the brokers reject, by index, in transactions that it aborts. It
	// ends the producer session. An error means that the search could not be finished.
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
	Committed func() // runs when this position was committed, and not when only a later one was; it must not block
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
	Unknown   Ending = "unknown" // the brokers did not answer; the checkpoint topic shows how
)
