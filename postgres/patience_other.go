//go:build !linux

package postgres

import (
	"net"
	"time"
)

// limitSilence is for Linux alone: elsewhere a connection ends when the system's own
// patience with its peer does, or after replication.Options.DeadAfter without an answer while it is read.
func limitSilence(net.Conn, time.Duration) error { return nil }
