package checkpoints

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/sink/topics"
)

// Patience is how long the checkpoint topic may take to be read, or written, for so
// many slots.
func Patience(slots int) time.Duration { return time.Duration(15+slots) * time.Second }

// Read reads what the checkpoint topic says of a slot to a relay with that
// guarantee: its values by key. Read the slot first, as a relay moves the topic before
// the slot: the other way round one that is at work looks like a gap.
func Read(ctx context.Context, ledger *topics.Ledger, g relay.Guarantee, system, slot string) (map[string][]byte, error) {
	if g != relay.ExactlyOnce {
		return ledger.Read(ctx, stored.PromiseSuffix(system, slot))
	}
	key := stored.Key(system, slot)
	value, err := ledger.Committed(ctx, key)
	if err != nil || value == nil {
		return nil, err
	}
	return map[string][]byte{key: value}, nil
}
