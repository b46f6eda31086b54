package records

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/deadletter/waiting"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/watch"
	"github.com/cdc-relay/cdc-relay/proof"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/letters"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/rs/zerolog"
)

// Reader follows the two topics of one configuration. Its methods may be called from any
// goroutine.
type Reader struct {
	settings relay.Config
	others   []string // slots of other pipelines on the tables

	mu     sync.Mutex
	origin wal.Origin
	system string // whose letters are read; empty: not known yet

	positions *topics.Follower
	letters   *topics.Follower
	keys      *keys
	waiting   *waiting.Set
	kept      *letters.Topic
	lost      atomic.Int64 // letters that waited in topics that were deleted and created again
	log       zerolog.Logger

	stop    context.CancelFunc
	running sync.WaitGroup
}

// Open asks the server which cluster it is, over the connection of the relay itself, and begins
// to read. The reader is to be closed.
func Open(ctx context.Context, settings relay.Config, others []string, log zerolog.Logger) (*Reader, error) {
	r := &Reader{settings: settings.WithDefaults(), others: others, keys: newKeys(), log: log}
	r.kept = letters.NewTopic(r.settings.DeadLetterTopic, zerolog.Nop()) // the relay has warned of it
	if err := r.Identify(ctx); err != nil {
		return nil, err
	}
	r.system = r.Origin().SystemID
	here := r.Origin()
	there, err := catalog.ReadSources(ctx, r.settings.Replication)
	if err != nil {
		return nil, err
	}
	r.waiting = waiting.New(func(source string) bool { return r.own(here, source) })
	r.waiting.Former(func(l *deadletter.Letter) bool { return former(there, l) })
	at, topic := r.settings.Kafka.Connection, r.settings.CheckpointTopic
	if r.settings.Guarantee == relay.ExactlyOnce {
		r.positions = topics.NewFollower(at, topic, log)
	} else {
		r.positions = topics.FollowUncommitted(at, topic, log) // others may commit theirs in transactions
	}
	r.letters = topics.NewFollower(at, r.settings.DeadLetterTopic, log)
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.stop = stop
	r.running.Go(func() { r.positions.Run(running, r.keys.read) })
	r.running.Go(func() { r.letters.Run(running, r.visit) })
	return r, nil
}

// Close ends the reading.
func (r *Reader) Close() {
	r.stop()
	r.running.Wait()
	r.positions.Close()
	r.letters.Close()
}

// Identify reads again on which timeline the server is, and which forks led there.
func (r *Reader) Identify(ctx context.Context) error {
	standing, err := watch.ReadPositions(ctx, r.settings.Replication)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.system != "" && standing.Origin.SystemID != r.system {
		return &fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonForeignServer, Op: "identify the server", Err: fmt.Errorf("the topics were read for system identifier %s, and the server has %s now", r.system, standing.Origin.SystemID)}
	}
	r.origin = standing.Origin
	return nil
}

// Origin is that of the last Identify.
func (r *Reader) Origin() wal.Origin {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.origin
}

// former selects the letters of a slot that is gone, of the tables of the configuration. Their rows lie before
// the slots of today, and may have been marked as published without being sent. A slot that exists is another
// pipeline's.
func former(there *catalog.Sources, l *deadletter.Letter) bool {
	system, database, slot := deadletter.SplitSource(l.Source)
	return system == there.System && database == there.Database && !there.Has(database, slot) && l.Of.Known && slices.Contains(there.Tables, l.Of.OID)
}

// own selects the letters of rows that the slots have passed. What was set aside before a slot
// existed is of another one: see former.
func (r *Reader) own(here wal.Origin, source string) bool {
	system, database, slot := deadletter.SplitSource(source)
	return system == here.SystemID && database == here.Database && (r.settings.Replication.OwnSlot(slot) || slices.Contains(r.others, slot))
}

// Positions is which kind of record the relay keeps its positions in.
func (r *Reader) Positions() stored.Kind {
	if r.settings.Guarantee == relay.ExactlyOnce {
		return stored.Checkpoints
	}
	return stored.Promises
}

// Slots are those of the configuration: one, or that of each shard.
func (r *Reader) Slots() (names []string) {
	for _, shard := range r.settings.Replication.Shards() {
		names = append(names, shard.Slot)
	}
	return names
}

// keys are the newest values of a topic by their keys.
type keys struct {
	mu      sync.Mutex
	values  map[string][]byte
	divided bool // the topic has records in several partitions, which are read in any order
}

func newKeys() *keys { return &keys{values: make(map[string][]byte)} }

func (k *keys) read(m *topics.Message) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.divided = m != nil && (k.divided || m.Partition > 0)
	switch {
	case m == nil: // the topic was recreated
		clear(k.values)
	case m.Value == nil:
		delete(k.values, string(m.Key))
	default:
		k.values[string(m.Key)] = slices.Clone(m.Value)
	}
}

// inOrder reports whether the newest values are known.
func (k *keys) inOrder() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.divided
}

// get is the value of a key, or nil.
func (k *keys) get(key string) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.values[key]
}

// ending are the values of the keys with a suffix.
func (k *keys) ending(suffix string) map[string][]byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	found := make(map[string][]byte)
	for key, value := range k.values {
		if strings.HasSuffix(key, suffix) {
			found[key] = value
		}
	}
	return found
}

// Table is the proof.Records of one table.
type Table struct {
	Reader *Reader
	Table  wal.Table
	OID    uint32
	ID     record.IDColumn // by which dead letters name its rows; zero: they name none

	Discarded bool // the rows of discarded letters count as those of letters that wait
}

// patience is how long the brokers may take to give what a topic holds. An open transaction of
// another relay hides what follows until the brokers end it.
const patience = 75 * time.Second

// Kept implements proof.Records.
func (t *Table) Kept(ctx context.Context, _ []proof.Slot) (*proof.Kept, error) {
	r := t.Reader
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := r.positions.CatchUp(within, true); err != nil {
		return nil, r.unread(ctx, err)
	}
	if !r.keys.inOrder() {
		return nil, &sink.Error{Class: sink.Blocked, Reason: fault.ReasonCheckpointTopic, Err: advice.Give(
			fmt.Errorf("checkpoint topic %q has records in several partitions, so that of two values nobody knows which is the newer", r.settings.CheckpointTopic),
			"name another in relay.checkpoint_topic and run `cdc-relay setup`, which creates it")}
	}
	kept := &proof.Kept{Here: r.Origin(), Delivered: make(map[string]wal.LSN), Before: make(map[string]stored.BeforeSlot)}
	for i, slot := range r.Slots() {
		limit, found, err := r.delivered(i, slot, kept.Here)
		if err != nil {
			return nil, err
		}
		if found {
			kept.Delivered[slot] = limit
		}
	}
	for _, slot := range slices.Concat(r.Slots(), r.others) {
		value := r.keys.get(stored.BeforeSlotKey(kept.Here.SystemID, slot, t.OID))
		if value == nil {
			continue
		}
		before, err := stored.ParseBeforeSlot(value)
		if err != nil {
			return nil, &sink.Error{Class: sink.Blocked, Reason: fault.ReasonCheckpointUnreadable, Err: fmt.Errorf("topic %q: %w", r.settings.CheckpointTopic, err)}
		}
		kept.Before[slot] = before
	}
	return kept, nil
}

// lookFor is how long a look at a table waits for the checkpoint topic. What it misses, the look
// after the proof has: the proof reads the topic to its end first.
const lookFor = 10 * time.Second

// Known is the record that no row of a table from before a slot is still to be delivered. known is
// false if there is none, or it was not read in time.
func (r *Reader) Known(ctx context.Context, slot string, table uint32) (before stored.BeforeSlot, known bool) {
	within, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	_ = r.positions.CatchUp(within, true) // the proof fails with it
	before, err := stored.ParseBeforeSlot(r.keys.get(stored.BeforeSlotKey(r.Origin().SystemID, slot, table)))
	return before, err == nil && before.Before.Known() // whoever asks for a proof gets the error
}

// delivered is how far the newest record of a slot goes on the server's history.
func (r *Reader) delivered(shard int, slot string, origin wal.Origin) (limit wal.LSN, found bool, err error) {
	cfg := r.settings.OfShard(shard, len(r.Slots()))
	known := r.keys.ending(stored.PromiseSuffix(origin.SystemID, slot))
	if r.settings.Guarantee == relay.ExactlyOnce {
		key := stored.Key(origin.SystemID, slot)
		known = map[string][]byte{key: r.keys.get(key)}
		found = known[key] != nil
	} else {
		found = len(known) > 0
	}
	if !found {
		return 0, false, nil
	}
	// The slot is compared by whoever asks: from zero on, none is ahead.
	limit, err = cfg.Resume().ConfirmedUpTo(known, origin, 0)
	return limit, true, err
}

// unread is why the checkpoint topic could not be read to its end.
func (r *Reader) unread(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if e, ok := errors.AsType[*sink.Error](err); ok && e.Reason == fault.ReasonLettersHidden {
		return &sink.Error{Class: sink.Retry, Reason: fault.ReasonCheckpointHidden, Err: advice.Give(
			fmt.Errorf("read checkpoint topic %q: an open transaction hides its end", r.settings.CheckpointTopic),
			"wait until the brokers end it, at its timeout at the latest, and try again")}
	}
	return err
}
