//go:build !linux

package replication

import "net"

// doze is Linux's alone.
type doze struct{}

func newDoze(net.Conn) *doze { return nil }

func (*doze) until(int) error { return nil }
