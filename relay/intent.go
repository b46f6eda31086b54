package relay

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink"
)

// With AtLeastOnce the slot's position is all that PostgreSQL keeps, and nothing in it
// says who moved it. A relay that is given a checkpoint topic writes there how far it
// may confirm before it confirms that, so a slot that is further at a start was moved
// by somebody else, and what lies in between would never be sent.

// Ledger keeps the intents of all who had the slot; *topics.Ledger satisfies it.
type Ledger interface {
	Read(ctx context.Context, suffix string) (map[string][]byte, error)
	Write(ctx context.Context, key string, value []byte) error
	Close()
}

const (
	// intentEvery is how often the intent is raised at most. What is acknowledged
	// waits as long to be confirmed.
	intentEvery = 100 * time.Millisecond

	// intentPatience is how long a session waits for one at its start and its end,
	// where nobody answers the server.
	intentPatience = 5 * time.Second
)

// intent is how far a session may confirm. A nil one limits nothing.
type intent struct {
	r   *Relay
	key string

	mu      sync.Mutex // held while it is raised
	rec     checkpoint.Record
	durable atomic.Uint64
	failing int
}

// newHolder names this process among all who ever had the slot.
func newHolder() string { return rand.Text()[:8] }

// recall compares the slot with what was written about it, and makes the session's
// own intent durable.
func (r *Relay) recall(ctx context.Context, s *session) error {
	if r.parts.Ledger == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, min(intentPatience, r.handover()))
	defer cancel()
	origin, start, slot := s.src.Origin(), s.src.Start(), r.cfg.Replication.Slot
	known, err := r.parts.Ledger.Read(ctx, checkpoint.IntentSuffix(origin.SystemID, slot))
	if err != nil {
		return err
	}
	i := &intent{r: r, key: checkpoint.IntentKey(r.holder, origin.SystemID, slot)}
	limit, err := r.cfg.resumeConfig().Promised(known, origin, start)
	if err != nil {
		return err
	}
	if len(known) == 0 {
		r.log.Warn().Str("topic", r.cfg.CheckpointTopic).Str("slot", slot).Stringer("lsn", start).
			Msg("no recorded position for this slot; a move before now cannot be detected")
	}
	i.rec = checkpoint.Record{
		System: origin.SystemID, Timeline: origin.Timeline, Slot: slot, Publication: r.cfg.Replication.Publication, Relay: r.cfg.Version,
		End: limit,
	}
	if err := i.write(ctx, i.rec); err != nil {
		return err
	}
	for key := range known { // of others: ours covers them now
		if key != i.key {
			if err := r.parts.Ledger.Write(ctx, key, nil); err != nil {
				return err
			}
		}
	}
	s.intent = i
	return nil
}

// limit is how far may be told, whatever is acknowledged.
func (i *intent) limit(lsn uint64) uint64 {
	if i == nil {
		return lsn
	}
	return min(lsn, i.durable.Load())
}

// keep raises the intent until ctx ends, whenever more could be confirmed.
func (i *intent) keep(ctx context.Context, s *session) {
	t := time.NewTicker(intentEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		err := i.raise(ctx, s.tracker.Confirmed())
		if err == nil || ctx.Err() != nil {
			continue
		}
		if known, ok := errors.AsType[*sink.Error](err); ok && known.Class == sink.Retry {
			continue // the slot waits
		}
		s.interrupt(err)
	}
}

// raise makes sure that a position may be told. It reaches no further, although writes
// would be fewer: a slot that is moved over rows which nobody has confirmed has to be seen.
func (i *intent) raise(ctx context.Context, to wal.LSN) error {
	if i == nil || uint64(to) <= i.durable.Load() {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	next := i.rec
	next.End = to
	ctx, cancel := context.WithTimeout(ctx, intentPatience)
	defer cancel()
	err := i.write(ctx, next)
	if err == nil {
		i.failing = 0
		return nil
	}
	if i.failing++; i.failing == 1 || i.failing%50 == 0 {
		i.r.log.Warn().Err(err).Int("times", i.failing).Msg("the position waits: it cannot be written to the checkpoint topic before it is confirmed")
	}
	return err
}

func (i *intent) write(ctx context.Context, rec checkpoint.Record) error {
	if err := i.r.parts.Ledger.Write(ctx, i.key, rec.Encode()); err != nil {
		return err
	}
	i.rec = rec
	i.durable.Store(uint64(rec.End))
	return nil
}

// settle lets everything that is acknowledged be told, at the end of a session.
func (i *intent) settle(ctx context.Context, s *session, cause error) {
	if i == nil || gone(cause) {
		return // the server is not told any more
	}
	_ = i.raise(ctx, s.tracker.Confirmed()) // it has said so; what is not confirmed comes again
}
