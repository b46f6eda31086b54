package replication

import (
	"context"
	"time"

	"github.com/jackc/pglogrepl"
)

// Table names one outbox table. Both parts are as the catalog has them: no
// quotes, no folding.
type Table struct {
	Schema string
	Name   string
}

// Config says what to stream and from where.
type Config struct {
	// URL is a libpq URL or keyword string; PG* variables, service files and
	// several hosts apply. Never logged.
	URL string

	// Password, when set, is asked at every connect and overrides the URL's.
	Password func(context.Context) (string, error)

	// Token, when set, is asked at every connect for a password that is good for
	// one server (host:port) and user, and overrides Password.
	Token func(ctx context.Context, endpoint, user string) (string, error)

	// Insecure permits a cleartext password to a host that is not loopback.
	Insecure bool

	// Slot and Publication exist before Open; only Setup creates them.
	// Slot is [a-z0-9_]{1,63}.
	Slot        string
	Publication string

	// Shard tells of which part of the rows Slot and Publication are.
	Shard Shard

	// Tables are the configured outbox tables. Relation.Table indexes this slice.
	Tables []Table

	// Places say where each of Tables was configured, for errors. It may be shorter.
	Places []string

	// Wants says, by table, what is delivered beyond the inserts. It may be shorter
	// than Tables, and is empty for most.
	Wants []Wants

	// Messages are prefixes of logical messages (pg_logical_emit_message) to be
	// delivered like rows. Relation.Table of the i-th is len(Tables)+i. AnyPrefix
	// takes all that no other entry names.
	Messages []string

	// WalSenderTimeout is set for our own connection. Defaults to 15s.
	WalSenderTimeout time.Duration

	// Binary decides once per session, from the tables' shape in the catalog, whether the
	// whole connection uses the binary format. from is where the session starts, end the
	// end of the WAL: rows of an older shape may lie between the two. Nil means text.
	Binary func(tables []*Relation, from, end pglogrepl.LSN) bool

	// MaxBatchRows and MaxBatchBytes end a batch inside a transaction, which
	// bounds memory whatever the transaction's size. Default 1024 and 512 KiB.
	MaxBatchRows  int
	MaxBatchBytes int

	// MaxRowBytes bounds a row of a configured table, as the server sends it. A larger
	// one is refused from its length, before it is read. Defaults to 64 MiB.
	MaxRowBytes int

	// StatusInterval is the most time between two status messages.
	// Defaults to the lesser of 1s and a quarter of WalSenderTimeout.
	StatusInterval time.Duration

	// DeadAfter is the silence after which the server is taken for dead, although
	// every status message asks for a reply. Defaults to the greater of 30s and
	// WalSenderTimeout.
	DeadAfter time.Duration

	// ShutdownGrace bounds how long a stopping server is kept waiting for rows
	// that Kafka cannot take. Defaults to 5s.
	ShutdownGrace time.Duration

	pacing pacing // of the socket; benchmarks set it

	// ApplicationName shows in pg_stat_activity. Defaults to "cdc-relay".
	ApplicationName string
}
