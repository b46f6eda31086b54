package kafkainbox

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/inbox"
)

// RecordError is a record that could not be handled. Its text has neither key nor value, and of
// the handler's error the type and SQLSTATE: that may have data in its text, and is in Err.
type RecordError struct {
	Topic     string
	Partition int32
	Offset    int64
	Attempts  int
	Err       error
}

func (e *RecordError) Error() string {
	return fmt.Sprintf("handle record: topic %s, partition %d, offset %d: attempt %d: %s", e.Topic, e.Partition, e.Offset, e.Attempts, describe(e.Err))
}

func (e *RecordError) Unwrap() error { return e.Err }

// RewindError is a record that was handled before and is so old that its key may be gone: it
// would be handled twice. The partition waits. Reset the group's offset to Next, or set
// Config.AllowRewind. With Config.Offsets it is a record before the offset in the database, which
// is that of another log: the topic was deleted and created again, or brokers lost its end.
type RewindError struct {
	Next  int64     // offset before which everything was handled
	Since time.Time // records from then on have their keys; zero with Config.Offsets
}

func (e *RewindError) Error() string {
	if e.Since.IsZero() {
		return fmt.Sprintf("the offset is before %d, up to which everything was handled: was the topic deleted and created again? Set next in inbox_progress to the offset to begin at, and start again", e.Next)
	}
	return fmt.Sprintf("the offset is before %d, up to which everything was handled, and the record is older than the keys, which begin at %s; set the group's offset to a newer record, or Config.AllowRewind", e.Next, e.Since.UTC().Format(time.RFC3339))
}

// TopicError is a topic that is another one than that of the progress in the database, by its id:
// it was deleted and created again, or the brokers are those of another cluster. Offsets tell
// nothing then about what was handled, so Run returns this error before it handles a record.
type TopicError struct {
	Topic     string
	Partition int32
	Was, Is   [16]byte // ids: that of the progress, and that of the records
}

func (e *TopicError) Error() string {
	was, is := pgtype.UUID{Bytes: e.Was, Valid: true}, pgtype.UUID{Bytes: e.Is, Valid: true}
	return fmt.Sprintf("topic %s, partition %d: its id is %s, and the progress in inbox_progress is that of a topic with the id %s; stop all members, then, in the topic's rows of inbox_progress: "+
		"if it was deleted and created again, set next to 0 and topic_id to NULL; if it is a copy with the same offsets, set topic_id to NULL", e.Topic, e.Partition, is, was)
}

// LostError is a partition whose oldest records were deleted before they were read. Run returns it
// when it has handled those before them. What was deleted cannot be looked at any more: there was
// no event among it where it was aborted transactions and compacted records alone, or where next
// in inbox_progress was set back by hand.
type LostError struct {
	Topic     string
	Partition int32
	Next      int64 // offset of the first record that was to be read
	Start     int64 // offset at which the partition begins
}

func (e *LostError) Error() string {
	return fmt.Sprintf("topic %s, partition %d: it begins at offset %d, and what it had from offset %d on was deleted before it was read; if events were among it, and not only aborted transactions, "+
		"compacted records, or what was handled before next was set back, have them sent again; then set next of the partition in inbox_progress to %d, and start again", e.Topic, e.Partition, e.Start, e.Next, e.Start)
}

// TransactionError is a round whose transaction a statement of the handler ended, such as a COMMIT.
// Run returns it, so that no further record loses its effect: the claims of the round were committed
// with it. Claims of records whose handler had not returned are taken back, so these are handled
// again at the next start, and what the handler wrote for them before is there twice.
type TransactionError struct {
	Topic     string
	Partition int32
	Offset    int64 // of the record whose handler it was; with HandleRound of the first of the round
	Last      int64 // offset of the last record of the round
	Err       error // why claims could not be taken back; else nil

	// Another is set if the statement began another transaction, as COMMIT AND CHAIN does. That is noticed
	// at the end of the round: it may be the handler of any record from Offset to Last, and the claims of
	// all of them are taken back.
	Another bool
}

func (e *TransactionError) Error() string {
	what, statement := fmt.Sprintf("offset %d: the handler ended the transaction", e.Offset), "COMMIT or ROLLBACK"
	if e.Another {
		what, statement = fmt.Sprintf("offsets %d to %d: the handler of one of these records ended the transaction and began another one", e.Offset, e.Last), "COMMIT AND CHAIN"
	}
	text := fmt.Sprintf("topic %s, partition %d, %s, by a statement such as %s; have it return nil or an error instead, and start again", e.Topic, e.Partition, what, statement)
	if e.Err != nil {
		text += fmt.Sprintf("; the records up to offset %d may be claimed without their effects, as the claims could not be taken back (%s)", e.Last, describe(e.Err))
	}
	return text
}

func (e *TransactionError) Unwrap() error { return e.Err }

// final reports whether an error ends Run until a person has done something.
func final(err error) bool {
	var other *TopicError
	var lost *LostError
	var over *TransactionError
	return errors.As(err, &other) || errors.As(err, &lost) || errors.As(err, &over)
}

// errGone is for a topic whose id the brokers do not know any more. A client asks for the id once.
var errGone = errors.New("the topic was deleted, and perhaps created again")

// errPassed is for records that were deleted before this member read them, and that the database
// has as handled: another member did, or this one reads them for a second time.
var errPassed = errors.New("records were deleted that the database has as handled; beginning again where it is")

// errExited is for a handler that ended its goroutine: nothing can come back from it.
var errExited = errors.New("the handler called runtime.Goexit, as FailNow and SkipNow of a test do; return an error instead")

// CrashError is a record at which the process ended again and again, while nothing else of suspect
// partitions was handled: a record that takes all memory, for instance. Its handler is not called
// any more. Where there is no DeadLetterTopic the partition waits; without its row in inbox_attempts
// the record is handled again.
type CrashError struct{ Times int }

func (e *CrashError) Error() string {
	return fmt.Sprintf("the process ended %d times while it handled this record; cure the cause and delete its row of inbox_attempts, or set DeadLetterTopic", e.Times)
}

// ConnectionError is a record whose handling ends its connection to the database each time, while
// another one that stands by stays, or crashes the server. It counts as an attempt.
type ConnectionError struct {
	Crashed bool // the server
	Err     error
}

func (e *ConnectionError) Error() string {
	if e.Crashed {
		return "the database server crashes whenever this record is handled: " + describe(e.Err)
	}
	return "its connection to the database ends whenever this record is handled, and another one stays: " + describe(e.Err)
}

func (e *ConnectionError) Unwrap() error { return e.Err }

// PanicError is a panic of the handler, or of Config.Key.
type PanicError struct {
	Value any
	Stack []byte

	key bool // it was Config.Key
}

func (e *PanicError) Error() string {
	who := "the handler"
	if e.key {
		who = "Config.Key"
	}
	if fault, ok := e.Value.(runtime.Error); ok {
		return who + " panicked: " + fault.Error()
	}
	return fmt.Sprintf("%s panicked with a value of type %T", who, e.Value)
}

// Permanent is an error that no further attempt can cure, such as a value that cannot be decoded:
// the record is a dead letter, or blocks, at once.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanent{err}
}

type permanent struct{ err error }

func (p *permanent) Error() string { return p.err.Error() }
func (p *permanent) Unwrap() error { return p.err }

var (
	errHandlersTx    = errors.New("the transaction is committed or rolled back when the handler has returned; return an error to roll back")
	errOpen          = errors.New("the handler left the rows or results of a statement open: nothing could be committed; close them")
	errSwallowed     = errors.New("a statement of the handler failed, and the handler returned no error: nothing could be committed")
	errStillHandling = errors.New("the handler did not return in time; its partition goes to another member without it")
)

// describe is an error without what may be data.
func describe(err error) string {
	for _, known := range []error{errHandlersTx, errOpen, errSwallowed, inbox.ErrNoKey, context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	var rewind *RewindError
	var panicked *PanicError
	var crash *CrashError
	var ended *ConnectionError
	var server *pgconn.PgError
	switch {
	case errors.As(err, &ended):
		return ended.Error()
	case errors.As(err, &rewind):
		return rewind.Error()
	case errors.As(err, &crash):
		return crash.Error()
	case errors.As(err, &panicked):
		return panicked.Error()
	case errors.As(err, &server):
		return "SQLSTATE " + server.Code
	}
	for {
		next := errors.Unwrap(err)
		if name := fmt.Sprintf("%T", err); next == nil || name != "*fmt.wrapError" && name != "*kafkainbox.permanent" && name != "*kafkainbox.handlerError" {
			return "error of type " + name
		}
		err = next
	}
}

// handlerError is an error of the handler, or of a commit that the handler's work made fail.
type handlerError struct{ err error }

func (e *handlerError) Error() string { return describe(e.err) }
func (e *handlerError) Unwrap() error { return e.err }

// blame is what follows from a round that failed.
type blame int

const (
	nobodys  blame = iota // the environment's: the same again, without end
	attempt               // the handler's
	hopeless              // the handler's, and no further attempt
	rewound               // a record that must neither be handled nor become a dead letter
)

// blamed returns whose fault an error of a round is. An error that is not the handler's, such as a
// table that is missing, is never a record's fault.
func blamed(err error) blame {
	var ours *handlerError
	var final *permanent
	var rewind *RewindError
	var crash *CrashError
	var ended *ConnectionError
	switch {
	case errors.As(err, &ended):
		return attempt
	case errors.As(err, &rewind):
		return rewound
	case errors.As(err, &crash):
		return hopeless
	case !errors.As(err, &ours):
		return nobodys
	case errors.As(err, &final):
		return hopeless
	case transient(ours.err):
		return nobodys
	}
	return attempt
}

// transient reports whether an error of the database says nothing about the record.
func transient(err error) bool {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		switch code := server.Code; {
		case code == "40001", code == "40P01", code == "25006", strings.HasPrefix(code, "08"), strings.HasPrefix(code, "53"), strings.HasPrefix(code, "57P"):
			return true
		// A statement that this connection has not prepared, or has for a table that was altered: a pooler
		// or a migration would have every record fail.
		case code == "26000", code == "42P05", code == "0A000" && server.Routine == "RevalidateCachedQuery":
			return true
		}
		return false
	}
	var connect *pgconn.ConnectError
	return errors.As(err, &connect)
}

// pooled adds what to do to an error about a statement that was prepared on another connection.
func pooled(err error) error {
	var server *pgconn.PgError
	if errors.As(err, &server) && (server.Code == "26000" || server.Code == "42P05") {
		return fmt.Errorf("%w; behind a pooler in transaction mode, set default_query_exec_mode=exec in the address of Config.DB", err)
	}
	return err
}

// ofCommit blames the handler for a commit that its statements made fail.
func ofCommit(err error) error {
	var server *pgconn.PgError
	switch {
	case errors.As(err, &server) && !transient(err): // a deferred constraint or trigger
		return &handlerError{err}
	case closed(err):
		return &lostError{fmt.Errorf("commit: %w", err)}
	}
	return fmt.Errorf("commit: %w", err)
}
