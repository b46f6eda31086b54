//go:build !linux

package replication

import "net"

// unacknowledged is not known here, and no connection ends because of it: TCP_USER_TIMEOUT is
// Linux's.
func unacknowledged(net.Conn) func() int { return func() int { return 0 } }
