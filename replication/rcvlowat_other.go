//go:build !linux

package replication

import "net"

// lowWater is used only by Linux.
type lowWater struct{}

func newLowWater(net.Conn) *lowWater { return nil }

func (*lowWater) until(int) error { return nil }
