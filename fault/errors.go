package fault

import (
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Kind says what happens next, which is all that the relay decides by.
type Kind byte

const (
	// KindRefused: the environment refuses; a person has to act. It is the zero
	// value because an error that nobody classified must stop, not loop.
	KindRefused Kind = iota
	// KindRetry: reconnect with back-off.
	KindRetry
	// KindBusy: somebody else streams from the slot; stand by for it.
	KindBusy
	// KindLost: the slot exists but its WAL is gone. Never answered with a new slot.
	KindLost
	// KindDrift: the publication or a configured table is no longer what it was.
	KindDrift
	// KindProtocol: the stream cannot be decoded at Error.LSN.
	KindProtocol
)

var errorKindNames = [...]string{"refused", "retry", "busy", "lost", "drift", "protocol"}

func (k Kind) String() string {
	if int(k) < len(errorKindNames) {
		return errorKindNames[k]
	}
	return fmt.Sprintf("ErrorKind(%d)", byte(k))
}

// Error is every failure that this package reports. It holds neither a
// connection string nor a password, nor anything of a row.
type Error struct {
	Kind    Kind
	Reason  string  // one of the Reason constants; empty means the kind's usual one
	Op      string  // what was tried: "start replication"
	Subject string  // on what: `slot "orders"`
	Hint    string  // what to do next; empty when waiting is the answer
	LSN     wal.LSN // where in the stream, or zero
	Holder  int     // of KindBusy: the server's process that has the slot; zero where it is not known
	Row     *Row    // the row that cannot be read; nil: it is not about one, or its transaction is not known
	Err     error   // the cause
}

// Row is where a row lies that cannot be read.
type Row struct {
	Table  string  // empty: not known
	Commit wal.LSN // where its transaction's commit record begins
	Time   time.Time
	Number uint64 // within the transaction, from 1 on; zero: not known
}

// Error prints operation, subject, cause, position and next step on one line.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Subject != "" {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(e.Subject)
	}
	if e.Err != nil {
		if b.Len() > 0 {
			b.WriteString(": ")
		}
		b.WriteString(OneLine(e.Err.Error()))
	}
	if e.LSN != 0 {
		b.WriteString(" (LSN " + e.LSN.String() + ")")
	}
	if e.Hint != "" {
		b.WriteString("; " + e.Hint)
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// Apart returns the error without its hint, and the hint.
func (e *Error) Apart() (seen, next string) {
	bare := *e
	bare.Hint = ""
	return bare.Error(), e.Hint
}

// OneLine folds the line breaks that drivers put between the attempts on
// several hosts: an error is one line of a log.
func OneLine(s string) string {
	if !strings.ContainsAny(s, "\r\n\t") {
		return s
	}
	lines := strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' })
	for i, line := range lines {
		lines[i] = strings.TrimSpace(strings.ReplaceAll(line, "\t", " "))
	}
	return strings.Join(lines, "; ")
}
