package auth

import (
	"net"

	"github.com/cdc-relay/cdc-relay/loopback"
)

// Loopback reports whether host, with or without a port, is this machine by name or
// address. Names are not looked up: an answer could change.
func Loopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return loopback.Is(host)
}
