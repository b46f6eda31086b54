package replication

import (
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
)

// Defaults of the sizes and times in Config.
const (
	defaultBatchRows        = 1024
	defaultBatchBytes       = 512 << 10
	defaultMaxRowBytes      = 64 << 20
	defaultWalSenderTimeout = 15 * time.Second
	defaultStatusInterval   = time.Second
	defaultDeadAfter        = 30 * time.Second
	defaultShutdownGrace    = 5 * time.Second
)

// binaryVersion is the first server_version_num whose pgoutput knows the option
// binary. An option that a server does not know is an error, not ignored.
const binaryVersion = 140000

// withStreamDefaults fills what the decoder and the stream read. senderTimeout is
// what the server says about this connection; zero means that it never times out.
func withStreamDefaults(cfg Config, senderTimeout time.Duration) Config {
	if cfg.MaxBatchRows <= 0 {
		cfg.MaxBatchRows = defaultBatchRows
	}
	if cfg.MaxBatchBytes <= 0 {
		cfg.MaxBatchBytes = defaultBatchBytes
	}
	if cfg.MaxRowBytes <= 0 {
		cfg.MaxRowBytes = defaultMaxRowBytes
	}
	cfg.WalSenderTimeout = cfg.senderTimeout()
	if cfg.StatusInterval <= 0 {
		cfg.StatusInterval = defaultStatusInterval
		if senderTimeout > 0 {
			cfg.StatusInterval = min(cfg.StatusInterval, senderTimeout/4)
		}
	}
	if cfg.DeadAfter <= 0 {
		cfg.DeadAfter = max(defaultDeadAfter, senderTimeout)
	}
	if cfg.ShutdownGrace <= 0 {
		cfg.ShutdownGrace = defaultShutdownGrace
	}
	return cfg
}

// senderTimeout is the wal_sender_timeout that the connection asks for.
func (c Config) senderTimeout() time.Duration {
	if c.WalSenderTimeout <= 0 {
		return defaultWalSenderTimeout
	}
	return c.WalSenderTimeout
}

// startCommand is the START_REPLICATION for protocol 1.
//
// The position is always 0/0: the server then starts at the slot's confirmed
// position, whereas any later one would skip what commits before it. Left out on
// purpose: streaming would deliver rows that may still roll back, two_phase would
// lose the content of transactions confirmed at PREPARE (and sticks to the slot),
// origin 'none' would hide rows written by an apply worker.
func startCommand(slot, publication string, binary, messages bool) string {
	var b strings.Builder
	b.WriteString("START_REPLICATION SLOT ")
	b.WriteString(doubleQuoted(slot))
	b.WriteString(" LOGICAL ")
	b.WriteString(pglogrepl.LSN(0).String())
	b.WriteString(" (proto_version '1', publication_names ")
	// An identifier list inside a string literal: unquoted names would be folded
	// to lower case, so quote for the list first and then for the literal.
	b.WriteString(singleQuoted(doubleQuoted(publication)))
	if binary {
		b.WriteString(", binary 'true'")
	}
	if messages {
		b.WriteString(", messages 'true'")
	}
	b.WriteString(")")
	return b.String()
}

func doubleQuoted(name string) string {
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

func singleQuoted(text string) string {
	return `'` + strings.ReplaceAll(text, `'`, `''`) + `'`
}
