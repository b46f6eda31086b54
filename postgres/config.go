package postgres

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Config says which server is connected to, and what is followed there.
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

	// Shard is the part of the rows that Slot and Publication have.
	Shard Shard

	// Tables are the configured outbox tables. Relation.Table indexes this slice.
	Tables []wal.Table

	// Places say where each of Tables was configured, for errors. It may be shorter.
	Places []string

	// Wants says, by table, what is delivered beyond the inserts. It may be shorter
	// than Tables, and is empty for most.
	Wants []wal.Wants

	// Messages are prefixes of logical messages (pg_logical_emit_message) to be
	// delivered like rows. Relation.Table of the i-th is len(Tables)+i. AnyPrefix
	// takes all that no other entry names.
	Messages []string

	// WalSenderTimeout is set for our own connection. Defaults to 15s.
	WalSenderTimeout time.Duration

	// ApplicationName shows in pg_stat_activity. Defaults to "cdc-relay".
	ApplicationName string
}

const defaultWalSenderTimeout = 15 * time.Second

// SenderTimeout is the wal_sender_timeout that the connection asks for.
func (c Config) SenderTimeout() time.Duration {
	if c.WalSenderTimeout <= 0 {
		return defaultWalSenderTimeout
	}
	return c.WalSenderTimeout
}

// PlaceOf says where a table was configured, to stand after what is said about it.
func (c Config) PlaceOf(table wal.Table) string {
	for i, t := range c.Tables {
		if t == table && i < len(c.Places) && c.Places[i] != "" {
			return " (" + c.Places[i] + ")"
		}
	}
	return ""
}
