package postgres

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// MaxShards bounds Shard.Count. Each shard has the server decode all of the WAL once
// more, so there is no use for many.
const MaxShards = 64

// Shard says which part of the rows a slot has. Count slots divide the tables' rows by
// a hash of the record's key, which each slot's publication computes in its row filter.
// So every row is in one shard, and all rows of a key are in the same.
//
// The zero value is a slot that is known to nothing of this.
type Shard struct {
	Index, Count int // Count up to 1: one slot for all, and no filter

	// Slot and Publication are the names that all generations of shards have in
	// common. One slot alone has them as they are, others with a suffix.
	Slot, Publication string

	// Key returns the column that makes the record's key. Needed with several shards.
	Key func(*wal.Relation) (column string, err error)
}

// Divided reports whether there is more than one shard.
func (s Shard) Divided() bool { return s.Count > 1 }

// ShardName names the i-th of count. The count is part of the name: slots of another
// number of shards are other slots, with other filters, and never mistaken for these.
func ShardName(name string, count, i int) string {
	if count <= 1 {
		return name
	}
	return fmt.Sprintf("%s_%d_%d", name, count, i)
}

// LongestShardName is the longest name that a shard of count gets.
func LongestShardName(name string, count int) string { return ShardName(name, count, count-1) }

// ParseShardName takes the name of a shard apart; a name without suffix is the one
// shard of one.
func ParseShardName(base, name string) (count, index int, ok bool) {
	rest, ok := strings.CutPrefix(name, base)
	if !ok || rest == "" {
		return 1, 0, ok
	}
	parts := strings.Split(rest, "_")
	if len(parts) != 3 || parts[0] != "" {
		return 0, 0, false
	}
	count, err := strconv.Atoi(parts[1])
	if err != nil || count < 2 || count > MaxShards {
		return 0, 0, false
	}
	index, err = strconv.Atoi(parts[2])
	if err != nil || index < 0 || index >= count || ShardName(base, count, index) != name {
		return 0, 0, false
	}
	return count, index, true
}

// OfShard is the configuration of the i-th shard. Logical messages reach every slot
// whatever its publication filters, so the first shard alone takes them.
func (c Config) OfShard(i int) Config {
	if !c.Shard.Divided() {
		return c
	}
	c.Shard.Index = i
	c.Slot = ShardName(c.Shard.Slot, c.Shard.Count, i)
	c.Publication = ShardName(c.Shard.Publication, c.Shard.Count, i)
	if i > 0 {
		c.Messages = nil
	}
	return c
}

// Shards are the configurations of all shards: one when nothing is divided.
func (c Config) Shards() []Config {
	all := make([]Config, max(1, c.Shard.Count))
	for i := range all {
		all[i] = c.OfShard(i)
	}
	return all
}

// OwnSlot reports whether a slot's name is the configuration's or that of one of its shards,
// whatever their number.
func (c Config) OwnSlot(name string) bool {
	_, _, ok := ParseShardName(c.BaseSlot(), name)
	return ok
}

// StreamsFrom reports whether a slot's name is the configuration's or that of one of its shards as
// they are divided now.
func (c Config) StreamsFrom(name string) bool {
	return slices.ContainsFunc(c.Shards(), func(shard Config) bool { return shard.Slot == name })
}
