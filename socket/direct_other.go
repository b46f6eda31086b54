//go:build !linux

package socket

import "net"

// Direct is for Linux alone.
func Direct(conn net.Conn) net.Conn { return conn }

// Below is the connection itself.
func Below(conn net.Conn) net.Conn { return conn }
