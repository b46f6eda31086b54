package backfill

import (
	"context"
	"errors"
	"slices"

	"github.com/cdc-relay/cdc-relay/backfill/buckets"
	"github.com/cdc-relay/cdc-relay/backfill/handover"
	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/cdc-relay/cdc-relay/sink/kafkatx"
)

// catchUp streams from the backfill's slot to the present end of the WAL. Afterwards no row comes again that the
// snapshot of the last bucket has, so that the filter needs one snapshot at a time.
//
// The slot moves only when all that lies before is delivered, and the progress says what it was. So it moves in steps.
func (w *work) catchUp(ctx context.Context) error {
	end, err := w.flushedEnd(ctx)
	if err != nil {
		return err
	}
	for from := w.progress.Online.Until; from < end; from = w.progress.Online.Until {
		if err := w.streamStep(ctx, min(end, from+streamedAtOnce)); err != nil {
			return err
		}
	}
	w.OnStep("caught_up")
	return nil
}

// streamedAtOnce bounds the WAL that is streamed again after an interruption, in bytes.
const streamedAtOnce = 256 << 20

// streamStep streams up to a position. The publications of shards are streamed one after the other, each from the same
// position on. An interrupted call streams them again, as a relay does after a restart.
func (w *work) streamStep(ctx context.Context, until wal.LSN) error {
	p, online := *w.progress, *w.progress.Online
	online.Shards = slices.Clone(online.Shards)
	for i, shard := range w.settings.Replication.Shards() {
		if _, err := w.awaitFree(ctx); err != nil {
			return err
		}
		w.online.filter.Streamed = w.progress.Online.Shards[i]
		if seen := &online.Shards[i].Seen; seen.Commit < until {
			*seen = buckets.Txn{}
		}
		if err := w.follow(ctx, shard, until, &online.Shards[i].Last); err != nil {
			return err
		}
	}
	online.Until = until
	p.Online, p.End = &online, max(p.End, until)
	if err := w.holds(); err != nil { // another call may be at work by now, or another server
		return err
	}
	if err := w.moveTo(ctx, &p); err != nil {
		return err
	}
	w.OnStep("streamed")
	if err := w.moveSlot(ctx, until); err != nil {
		return err
	}
	_, err := w.awaitFree(ctx)
	return err
}

// awaitFree waits until no connection uses the backfill's slot, and returns it. The error of a slot that stays in
// use is of fault.KindBusy.
func (w *work) awaitFree(ctx context.Context) (*provision.SlotState, error) {
	name := w.settings.Replication.BackfillSlot()
	slots, err := handover.ReadSlots(ctx, w.holder, true, name)
	if err != nil {
		return nil, err
	}
	switch slot := &slots[0]; {
	case slot.Err != nil:
		return nil, slot.Err
	case !slot.Exists:
		return nil, gone(name)
	case slot.Active:
		return nil, &fault.Error{
			Kind: fault.KindBusy, Reason: fault.ReasonSlotInUse, Op: "stream from", Subject: postgres.SlotSubject(name),
			Err: errors.New("another connection still uses it"), Hint: "run the command again",
		}
	default:
		return slot, nil
	}
}

// moveSlot has the slot stand where everything is delivered. The positions in Kafka go first: one that is behind the
// slot would mean lost rows.
func (w *work) moveSlot(ctx context.Context, to wal.LSN) error {
	if w.settings.Guarantee == relay.ExactlyOnce {
		for _, shard := range w.settings.Replication.Shards() {
			if err := w.moveStream(ctx, shard, to); err != nil {
				return err
			}
		}
	}
	if err := w.holds(); err != nil {
		return err
	}
	return w.advance(ctx, to)
}

// moveStream moves the position of a shard's stream. It keeps the last transaction that was sent, by which a relay
// knows whether a server has the same history.
func (w *work) moveStream(ctx context.Context, shard postgres.Config, to wal.LSN) error {
	key := stored.BackfillStreamKey(w.progress.System, shard.Slot)
	value, err := w.ledger.Committed(ctx, key)
	if err != nil {
		return err
	}
	at := *w.streamPosition(shard.Publication, w.progress.Point)
	if value != nil {
		if at, err = stored.ParsePosition(value); err != nil {
			return err
		}
	}
	if at.Last.Commit == 0 {
		at.Last.Commit = w.progress.Point - 1 // none was sent
	}
	at.Advance(to, nil)
	if err := w.holds(); err != nil {
		return err
	}
	return w.ledger.Write(ctx, key, at.Encode())
}

// follow runs a relay over what one publication brings up to a position, and notes its last transaction in last.
func (w *work) follow(ctx context.Context, shard postgres.Config, until wal.LSN, last *buckets.Txn) error {
	cfg := w.relaySettings()
	cfg.Stream.Until, cfg.Stream.Quiet = until, true // each step would tell it again
	key := stored.BackfillStreamKey(w.progress.System, shard.Slot)
	parts, err := w.parts(cfg, w.log, func(s *kafka.Sink) sink.Sink { return s }, func(s *kafkatx.Sink) sink.Sink { return &streamSink{s, key} })
	if err != nil {
		return err
	}
	slot := w.temporary(shard)
	parts.Source = func(ctx context.Context) (relay.Source, error) {
		if err := w.holds(); err != nil {
			return nil, err
		}
		stream, err := replication.Open(ctx, slot, cfg.Stream, w.log)
		if err != nil {
			return nil, err
		}
		if err := w.holder.SameServer(stream.Origin()); err != nil {
			return nil, errors.Join(err, stream.Close(ctx, stream.StartLSN()))
		}
		return &following{Stream: stream, w: w, last: last}, nil
	}
	r := relay.New(cfg, parts, relay.Events{}, w.log) // its log lines are right as they are: it streams, as run does
	err = r.Run(ctx)
	w.relays.letters += r.Status().DeadLetters
	if err == nil {
		err = context.Cause(ctx) // it returns nil after a stop, too
	}
	return err
}

// streamSink is the sink of a stream whose position is kept under a key of its own: nobody has streamed from the
// configured slot yet.
type streamSink struct {
	*kafkatx.Sink
	key string
}

func (s *streamSink) Open(ctx context.Context, h sink.Holder) ([]byte, error) {
	h.Key = s.key
	return s.Sink.Open(ctx, h)
}

// following is one session of the stream, a relay.Source, without the rows that buckets have. It leaves the slot where
// it is.
type following struct {
	*replication.Stream
	w    *work
	last *buckets.Txn
}

// maxLeftOut bounds the memory of the transactions whose rows were left out.
const maxLeftOut = 1 << 20

// Run sends what the filter leaves.
func (f *following) Run(intake context.Context, out chan<- *wal.Batch, confirmed func() wal.LSN) error {
	start := f.StartLSN()
	report := func() wal.LSN { confirmed(); return start }
	read, ended := make(chan *wal.Batch), make(chan error, 1)
	go func() {
		ended <- f.Stream.Run(intake, read, report)
		close(read)
	}()
	var failed error
	for b := range read {
		if failed == nil {
			failed = f.filter(intake, b)
		}
		if failed != nil {
			b.Release()
			f.Abort()
			continue
		}
		out <- b // the session takes batches until Run has returned
	}
	err := <-ended
	if failed != nil {
		f.w.fail(failed)
		return failed
	}
	return err
}

func (f *following) filter(ctx context.Context, b *wal.Batch) error {
	filter := &f.w.online.filter
	if err := filter.Apply(b, f.last); err != nil {
		return refuseUndivided(err)
	}
	if len(filter.LeftOut) < maxLeftOut {
		return nil
	}
	return f.w.forgetVisible(ctx)
}

// Close leaves the slot where it is.
func (f *following) Close(ctx context.Context, _ wal.LSN) error {
	return f.Stream.Close(ctx, f.StartLSN())
}
