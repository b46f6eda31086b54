//go:build !linux

package sandbox

import (
	"errors"
	"time"
)

// LinkOptions say what a Link is like.
type LinkOptions struct {
	Delay time.Duration
	Rate  int
}

// Link is a network between this machine and itself, which is made on Linux alone.
type Link struct{}

// NewLink fails.
func NewLink(LinkOptions) (*Link, error) { return nil, errors.ErrUnsupported }

// Here is empty.
func (*Link) Here() string { return "" }

// There is empty.
func (*Link) There() string { return "" }

// Drop does nothing.
func (*Link) Drop(bool) {}

// DropIf does nothing.
func (*Link) DropIf(func(source, target uint16) bool) {}

// Close does nothing.
func (*Link) Close() error { return nil }
