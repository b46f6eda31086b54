// Package promise keeps the promised position of a slot: how far a relay with at-least-once
// may confirm the slot, written to the checkpoint topic before the slot is confirmed that far
// (relay.detect_moved_slot).
//
// The slot's position is all that PostgreSQL keeps, and nothing in it shows who moved it. With
// a promise in Kafka, a slot that is further at a start was moved by somebody else, and the
// rows in between would never be sent. resume.Config.Promised compares the two.
package promise

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/relay/resume"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/rs/zerolog"
)

// Ledger keeps the promised positions of every relay that had the slot, and what is known of rows
// before it; *topics.Ledger satisfies it. A relay makes one call at a time.
type Ledger interface {
	// Read returns the newest value of each key with this suffix, without deleted ones. The error is a
	// *sink.Error.
	Read(ctx context.Context, suffix string) (map[string][]byte, error)

	// Write returns once the value is durable, or with a *sink.Error; the value may be there in spite
	// of it. A nil value deletes the key.
	Write(ctx context.Context, key string, value []byte) error

	// Close gives the connections up. Nothing is called after it.
	Close()
}

const (
	// raiseEvery is the minimum time between two raises of the promise. An acknowledged row
	// waits at most that long to be confirmed.
	raiseEvery = 100 * time.Millisecond

	// patience is how long a session waits for the ledger at its start and its end, where
	// nobody answers the server.
	patience = 5 * time.Second
)

// Position is how far a session may confirm. A nil one limits nothing.
type Position struct {
	ledger Ledger
	log    zerolog.Logger
	key    string

	mu      sync.Mutex // held while the promise is raised
	rec     stored.Position
	durable atomic.Uint64
	failing int
}

// NewHolder names this process among all that ever had the slot.
func NewHolder() string { return rand.Text()[:8] }

// Open compares a slot at start with what relays promised of it, and makes the session's own
// promise durable: not beyond walEnd, where the server's WAL ended while nobody had the slot (zero: not
// known), since what was promised beyond that is of WAL that is gone. It takes no longer than limit, nor
// than patience.
func Open(ctx context.Context, limit time.Duration, ledger Ledger, cfg *resume.Config, holder string, origin wal.Origin, start, walEnd wal.LSN, log zerolog.Logger) (*Position, error) {
	ctx, cancel := context.WithTimeout(ctx, min(patience, limit))
	defer cancel()
	known, err := ledger.Read(ctx, stored.PromiseSuffix(origin.SystemID, cfg.Slot))
	if err != nil {
		return nil, err
	}
	end, err := cfg.Promised(known, origin, start)
	if err != nil {
		return nil, err
	}
	if walEnd != 0 && end > walEnd {
		log.Error().Stringer("lsn", end).Stringer("wal_end", walEnd).Str("slot", cfg.Slot).
			Msg("the server's WAL ends before the recorded position: its disk was put back to a copy, or it lost flushed WAL; rows that are gone from it exist only in Kafka")
		end = walEnd
		if err := TakeBack(ctx, ledger, origin.SystemID, cfg.Slot, cfg.Version); err != nil { // see Absent
			return nil, err
		}
	}
	if len(known) == 0 {
		log.Warn().Str("topic", cfg.CheckpointTopic).Str("slot", cfg.Slot).Stringer("lsn", start).
			Msg("no recorded position for this slot; a move before now cannot be detected")
	}
	p := &Position{ledger: ledger, log: log, key: stored.PromiseKey(holder, origin.SystemID, cfg.Slot)}
	p.rec = stored.Position{
		System: origin.SystemID, Timeline: origin.Timeline, Began: origin.Begin(origin.Timeline), Slot: cfg.Slot, Publication: cfg.Publication, Relay: cfg.Version,
		End: end,
	}
	if err := p.write(ctx, p.rec); err != nil {
		return nil, err
	}
	for key := range known { // of others: ours covers them now
		if key != p.key {
			if err := ledger.Write(ctx, key, nil); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

// Limit is the highest position up to lsn that may be confirmed.
func (p *Position) Limit(lsn wal.LSN) wal.LSN {
	if p == nil {
		return lsn
	}
	return min(lsn, wal.LSN(p.durable.Load()))
}

// Run raises the promise until ctx ends, whenever more could be confirmed. It calls failed
// with an error that does not pass by itself; with any other the slot waits.
func (p *Position) Run(ctx context.Context, confirmed func() wal.LSN, failed func(error)) {
	t := time.NewTicker(raiseEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		err := p.Raise(ctx, confirmed())
		if err == nil || ctx.Err() != nil {
			continue
		}
		if known, ok := errors.AsType[*sink.Error](err); ok && known.Class == sink.Retry {
			continue // the slot waits
		}
		failed(err)
	}
}

// Raise promises a position. It does not promise ahead, which would save writes: then a slot that
// is moved over rows which no relay has confirmed would not be seen.
func (p *Position) Raise(ctx context.Context, to wal.LSN) error {
	if p == nil || uint64(to) <= p.durable.Load() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	next := p.rec
	next.End = to
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := p.write(ctx, next)
	if err == nil {
		p.failing = 0
		return nil
	}
	if p.failing++; p.failing == 1 || p.failing%50 == 0 {
		p.log.Warn().Err(err).Int("times", p.failing).Msg("the confirmed position does not advance: it cannot be written to the checkpoint topic first")
	}
	return err
}

func (p *Position) write(ctx context.Context, rec stored.Position) error {
	if err := p.ledger.Write(ctx, p.key, rec.Encode()); err != nil {
		return err
	}
	p.rec = rec
	p.durable.Store(uint64(rec.End))
	return nil
}
