package sink

import (
	"context"
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/router/record"
)

// Sink makes records durable.
//
// Send hands over records in order. It may block until ctx ends. It does not limit memory; its
// caller does. It calls done exactly once, from any goroutine, possibly before it returns: with
// nil when every record is durable, else with a *FailedError that names each
// record that is not. The sink never touches a record after done. done must not
// block and must not call the sink. One goroutine calls Send and Resume.
//
// Records with equal topic and key become durable in the order of Send. To keep
// that under failure the sink halts at the first record that fails: whatever is
// not yet durable fails too (with ErrHalted where nothing is wrong with it), and so does
// everything sent later, until Resume. Resume may be called once every done has
// been called; the caller then sends the failed records again, in order. A sink that is not
// ready by the time ctx ends stays halted.
//
// Halt makes that happen without a failure: what is not written yet fails with
// ErrHalted, and what is written already is answered by the brokers. Any goroutine may call it.
// A Halt during Resume is lost: after Resume the caller checks that it may still send.
//
// ctx bounds only how long Send blocks. A record that was handed over is delivered
// or failed by the sink alone; Close ends what is left.
type Sink interface {
	Send(ctx context.Context, records []record.Record, done func(error))
	Resume(ctx context.Context)
	Halt()

	// Overhead is what n records cost beside their own bytes from Send until done, in bytes: what
	// the sink and its client make of each. A caller that bounds its memory counts it. Any goroutine
	// may call it.
	Overhead(n int) int

	// Reachable reports why the brokers cannot be reached at present, or nil. A
	// *Error is what only a person can correct.
	Reachable() error

	// Ready returns once the brokers answered, or with the reason why they do not, as a *Error.
	Ready(ctx context.Context) error

	// Close fails what is not durable yet and frees the connections.
	Close(ctx context.Context) error
}

// Gatherer is a Sink that can gather records into fuller batches: they cost less, and each record
// waits a little. SetBacklog(true) asks for them. Initially a sink sends at once. The goroutine that
// calls Send calls SetBacklog.
type Gatherer interface{ SetBacklog(behind bool) }

// Abandoner is a Sink that can give up what is not answered and go on: Abandon fails it
// with ErrHalted at once, and the sink takes records again when Abandon returns no error.
// With fenced, brokers refuse an abandoned record that arrives after the next record of its
// partition. Without it they take it, as the sink had to start a new producer. The
// goroutine that calls Send calls it. After an error the sink is good for Close alone.
type Abandoner interface {
	Abandon(ctx context.Context) (fenced bool, err error)
}

// Pinger is a Sink whose Reachable is only as new as the last request. Ping asks a broker,
// whether or not there is anything to send. Any goroutine may call it.
type Pinger interface{ Ping(ctx context.Context) }

// LetterKeeper is a Sink that asks the brokers whether the dead-letter topic still keeps every
// record: its settings may be changed at any time. The error is a *Error. Any goroutine may call it.
// Where it knows of such an error it writes no dead letter either.
type LetterKeeper interface {
	LettersKept(ctx context.Context) error
}

// Incidents is a Sink that counts what brokers did wrong since it was made. Any goroutine
// may call it.
type Incidents interface {
	TopicsRecreated() int64 // topics that were found deleted and recreated
	DataLoss() int64        // times that a broker had lost or forgotten acknowledged records
	Overtaken() int64       // records that were durable before an earlier one that failed
}

// ErrHalted is the failure of a record that was not tried, or not finished,
// because an earlier one failed. ErrClosed is that of a record the sink held
// when it was closed.
var (
	ErrHalted = errors.New("held back after a failed record")
	ErrClosed = errors.New("sink is closed")
)

// Class says what has to happen before a failed record can succeed.
type Class int

const (
	Retry    Class = iota // nothing was wrong with the record: send it again
	Rejected              // this record can never be delivered as it is
	Blocked               // somebody has to change the brokers: a topic, a permission, a limit
)

func (c Class) String() string { return [...]string{"retry", "rejected", "blocked"}[c] }

// Failure is one record that is not durable.
type Failure struct {
	Index  int    // into the slice given to Send
	Class  Class  // by the broker's answer; a Rejected one is proven only when it was sent alone
	Reason string // snake_case: record_too_large, unknown_topic, topic_authorization_failed, …
	Err    error  // names the topic, never key or value
}

// AsError is the failure without the record that it is of.
func (f *Failure) AsError() *Error { return &Error{Class: f.Class, Reason: f.Reason, Err: f.Err} }

// FailedError lists the records of one Send that are not durable, by ascending
// Index. Every other record of that Send is durable.
type FailedError struct{ Failures []Failure }

func (e *FailedError) Error() string {
	first := e.Failures[0]
	for _, f := range e.Failures {
		if !errors.Is(f.Err, ErrHalted) {
			first = f
			break
		}
	}
	return fmt.Sprintf("deliver records: %d not durable, first cause: %v", len(e.Failures), first.Err)
}
