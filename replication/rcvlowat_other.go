//go:build !linux

package replication

import "net"

// lowWater is Linux's alone.
type lowWater struct{}

func newLowWater(net.Conn) *lowWater { return nil }

func (*lowWater) until(int) error { return nil }
