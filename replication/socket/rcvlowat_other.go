//go:build !linux

package socket

import "net"

// lowWater is set on Linux only.
type lowWater struct{}

func newLowWater(net.Conn) *lowWater { return nil }

func (*lowWater) until(int) error { return nil }
