package replication

import (
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/pgoutput"
	"github.com/cdc-relay/cdc-relay/replication/socket"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Defaults of the sizes and times in Options.
const (
	defaultMaxRowBytes    = 64 << 20
	defaultStatusInterval = time.Second
	defaultDeadAfter      = 30 * time.Second
)

// DefaultShutdownGrace is Options.ShutdownGrace where it is not set.
const DefaultShutdownGrace = 5 * time.Second

// Options say how a Stream reads. The zero value has the defaults.
type Options struct {
	// Binary decides once per session, from the tables' shape in the catalog, whether the
	// whole connection uses the binary format. from is where the session starts, end the
	// end of the WAL: rows of an older shape may lie between the two. Nil means text.
	Binary func(tables []*wal.Relation, from, end wal.LSN) bool

	// MaxBatchRows and MaxBatchBytes end a batch inside a transaction, which
	// bounds memory whatever the transaction's size. Default 1024 and 512 KiB.
	MaxBatchRows  int
	MaxBatchBytes int

	// MaxRowBytes bounds a row of a configured table, as the server sends it. A larger
	// one is refused from its length, before it is read. Defaults to 64 MiB.
	MaxRowBytes int

	// StatusInterval is the most time between two status messages.
	// Defaults to the lesser of 1s and a quarter of the connection's wal_sender_timeout.
	StatusInterval time.Duration

	// DeadAfter is the silence after which the server is taken for dead, although
	// it is asked for a reply every StatusInterval. Defaults to the greater of 30s and
	// the connection's wal_sender_timeout.
	DeadAfter time.Duration

	// ShutdownGrace bounds how long a stopping server is kept waiting for rows
	// that Kafka cannot take. Defaults to 5s.
	ShutdownGrace time.Duration

	// Until, if not zero, ends the stream: what commits at or after it is not handed on.
	// Run then returns nil, as when intake ends.
	Until wal.LSN

	// Quiet has Open log nothing of what is unusual about publication and tables, for a caller who has told it.
	Quiet bool

	pacing socket.Pacing // benchmarks set it
}

// withDefaults fills what is not set. senderTimeout is what the server says about this
// connection; zero means that it never times out.
func (o Options) withDefaults(senderTimeout time.Duration) Options {
	if o.MaxBatchRows <= 0 {
		o.MaxBatchRows = pgoutput.DefaultMaxRows
	}
	if o.MaxBatchBytes <= 0 {
		o.MaxBatchBytes = pgoutput.DefaultMaxBytes
	}
	if o.MaxRowBytes <= 0 {
		o.MaxRowBytes = defaultMaxRowBytes
	}
	if o.StatusInterval <= 0 {
		o.StatusInterval = defaultStatusInterval
		if senderTimeout > 0 {
			o.StatusInterval = min(o.StatusInterval, senderTimeout/4)
		}
	}
	if o.DeadAfter <= 0 {
		o.DeadAfter = max(defaultDeadAfter, senderTimeout)
	}
	if o.ShutdownGrace <= 0 {
		o.ShutdownGrace = DefaultShutdownGrace
	}
	return o
}

// startCommand is the START_REPLICATION for protocol 1.
//
// The position is always 0/0: the server then starts at the slot's confirmed
// position, whereas any later one would skip what commits before it. Left out on
// purpose: streaming would deliver rows that may still roll back, two_phase would
// lose the content of transactions confirmed at PREPARE (and sticks to the slot),
// origin 'none' would hide rows written by an apply worker.
func startCommand(slot, publication string, binary, messages bool) string {
	// An identifier list inside a string literal: unquoted names would be folded
	// to lower case, so quote for the list first and then for the literal.
	options := "proto_version '1', publication_names " + postgres.QuoteLiteral(wal.QuoteIdentifier(publication))
	if binary {
		options += ", binary 'true'"
	}
	if messages {
		options += ", messages 'true'"
	}
	return fmt.Sprintf("START_REPLICATION SLOT %s LOGICAL 0/0 (%s)", wal.QuoteIdentifier(slot), options)
}
