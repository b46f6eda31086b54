//go:build !linux

package socket

import "net"

// Unacknowledged is not known here, and no connection ends because of it: only Linux has
// TCP_USER_TIMEOUT.
func Unacknowledged(net.Conn) func() int { return func() int { return 0 } }
