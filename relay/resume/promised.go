package resume

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Promised returns how far the holders of a slot, whose promised positions are found in the
// checkpoint topic, may have confirmed it. A slot that is further was moved by somebody else.
func (c *Config) Promised(found map[string][]byte, origin wal.Origin, start wal.LSN) (wal.LSN, error) {
	if len(found) == 0 {
		return start, nil
	}
	var limit wal.LSN
	for key, value := range found {
		rec, err := stored.ParsePosition(value)
		if err != nil {
			return 0, &sink.Error{Class: sink.Blocked, Reason: fault.ReasonCheckpointUnreadable, Err: fmt.Errorf("topic %q, key %q: %w", c.CheckpointTopic, key, err)}
		}
		fork, err := descend(&rec, origin)
		if err != nil {
			return 0, err
		}
		if fork != nil {
			rec = rec.UpTo(fork.At)
		}
		limit = max(limit, rec.End)
	}
	if start > limit {
		return 0, c.slotAhead(start, limit)
	}
	return limit, nil
}
