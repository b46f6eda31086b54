package auth

import (
	"net"
	"strings"
)

// Loopback says whether host, with or without a port, is this machine by name or
// address. Names are not looked up: an answer could change.
func Loopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
