// Package loopback tells this machine from others. It imports nothing of the module.
package loopback

import (
	"net"
	"strings"
)

// Is reports whether host, without a port, is this machine by name or address. Names are not
// looked up: an answer could change.
func Is(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
