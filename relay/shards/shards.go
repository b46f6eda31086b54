// Package shards runs the relays of several shards in one process. They share the process and
// nothing else.
package shards

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Key finds, for a table, the column that the record's key is made of. A key of two columns, of which one
// stands in for the other, is no column's: rows of it would be in two shards.
func Key(cfg router.Config) func(*wal.Relation) (string, error) {
	return func(rel *wal.Relation) (string, error) {
		routes, err := router.New(cfg) // one of its own: a router is used by one goroutine
		if err != nil {
			return "", &relay.ConfigError{Err: err}
		}
		found, err := routes.Pin(rel)
		if err != nil {
			return "", &relay.ConfigError{Err: err}
		}
		if other := found.Roles[router.KeyFallback]; other != "" {
			return found.Roles["key"] + ", else " + other, nil
		}
		return cmp.Or(found.Rekeyed, found.Roles["key"]), nil
	}
}

// Shards are the relays of one process, each with a slot, a connection, a tracker and
// a sink of its own: one that is blocked does not hold up the others.
type Shards struct {
	relays []*relay.Relay
	names  []string // for errors
	cfg    relay.Config
}

// Open builds the relays of the shards that are given by number. It touches no
// server. of gives each one's events and hooks, as relay.Open takes them.
func Open(cfg relay.Config, own []int, log zerolog.Logger, of func(i int) (relay.Events, []func() kgo.Hook)) (*Shards, error) {
	s := &Shards{cfg: cfg.WithDefaults()}
	for n, i := range own {
		events, hooks := of(n)
		one := cfg.OfShard(i, len(own))
		r, err := relay.Open(one, events, log.With().Int("shard", i).Logger(), hooks...)
		if err != nil {
			s.drop()
			return nil, err
		}
		s.relays = append(s.relays, r)
		s.names = append(s.names, fmt.Sprintf("shard %d (slot %q)", i, one.Replication.Slot))
	}
	return s, nil
}

// drop closes what a failed Open made.
func (s *Shards) drop() {
	for _, r := range s.relays {
		r.Discard()
	}
}

// Run streams all shards until ctx ends, then drains them. The first shard that ends
// by itself has the others drain too: part of an outbox is not what was asked for, and
// what its error says, a person or a supervisor has to act upon. A shard that is merely
// blocked or reconnecting does not end, and one that reached its Config.Stream.Until waits
// for the others.
func (s *Shards) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var (
		running sync.WaitGroup
		mu      sync.Mutex
		ended   []error // in the order of their ends
	)
	for i, r := range s.relays {
		running.Go(func() {
			err := r.Run(ctx)
			if err != nil || s.cfg.Stream.Until == 0 {
				stop()
			}
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				ended = append(ended, fmt.Errorf("%s: %w", s.names[i], err))
			}
		})
	}
	running.Wait()
	return errors.Join(ended...)
}

// Abort cuts the drain of every shard short.
func (s *Shards) Abort() {
	for _, r := range s.relays {
		r.Abort()
	}
}

// TryNow cuts the pauses of all shards short, and reports whether one paused.
func (s *Shards) TryNow() (cut bool) {
	for _, r := range s.relays {
		cut = r.TryNow() || cut
	}
	return cut
}

// AlreadySentRows counts as Relay.AlreadySentRows does.
func (s *Shards) AlreadySentRows() (n int64) {
	for _, r := range s.relays {
		n += r.AlreadySentRows()
	}
	return n
}

// StatusOf is the snapshot of the n-th relay alone.
func (s *Shards) StatusOf(n int) status.Status { return s.relays[n].Status() }

// Status is the process as a whole: the worst state, the most behind position, and
// sums of what is counted. Each shard's own is in Shards.
func (s *Shards) Status() status.Status {
	all := make([]status.Status, len(s.relays))
	for i, r := range s.relays {
		all[i] = r.Status()
	}
	st := status.Sum(all, s.names, time.Now())
	st.Slot, st.Publication = s.cfg.Replication.Shard.Slot, s.cfg.Replication.Shard.Publication
	st.InFlightLimitBytes = s.cfg.MaxInFlightBytes
	return st
}
