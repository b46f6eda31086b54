package backfill

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/backfill/buckets"
	"github.com/cdc-relay/cdc-relay/backfill/handover"
	"github.com/cdc-relay/cdc-relay/backfill/progress"
	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/postgres/snapshot"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/checkpoints"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/wording"
)

// online is a backfill that sends one bucket of keys after the other, and streams from its slot in between: see
// the comment of the package. Bucket and stream take turns in one goroutine, which owns it.
type online struct {
	filter buckets.Filter
	taken  buckets.Snapshot // in which bucket filter.Next is read
	at     atomic.Int32     // filter.Next, for the goroutine of report
	turns  turns            // likewise

	first *buckets.Snapshot // of the slot's creation, which has commits that no snapshot of SQL may see yet; nil: one has them all
}

// sendBuckets sends all buckets, and what the slot brings meanwhile.
func (w *work) sendBuckets(ctx context.Context) error {
	if w.progress.Finished { // resumeOnline has put the slot where it was
		return nil
	}
	for {
		if !w.progress.Online.Reading {
			w.online.turns.stream(w.progress.Online.Next)
			err := w.catchUp(ctx)
			w.online.turns.send()
			if err != nil {
				return err
			}
			if w.progress.Online.Next == w.online.filter.Buckets {
				_, err := w.checkDeleted(ctx, *w.progress.Online)
				return err
			}
			if err := w.takeBucket(ctx); err != nil {
				return err
			}
		}
		if err := w.sendBucket(ctx); err != nil {
			return err
		}
	}
}

// selectBucket has the tables' selections choose one bucket. It overwrites Where, so the shape is taken before.
func (w *work) selectBucket(bucket int) {
	o := w.online
	for i := range w.tables {
		t := &w.tables[i]
		t.Where = o.filter.Keys[t.Relation.Table].Condition(bucket, o.filter.Buckets)
	}
	o.filter.Next = bucket
	o.at.Store(int32(min(bucket, o.filter.Buckets-1)))
}

// takeBucket takes the snapshot in which the next bucket is read.
func (w *work) takeBucket(ctx context.Context) error {
	w.selectBucket(w.progress.Online.Next)
	p := *w.progress
	shards, err := w.wholeSnapshot(ctx, &p)
	if err != nil {
		return err
	}
	w.OnStep("snapshot_taken")
	next, err := w.checkDeleted(ctx, *w.progress.Online) // after the snapshot, which lacks what was deleted before it
	if err != nil {
		return err
	}
	if p.Tables, err = w.lastPlaces(ctx, p.Tables); err != nil {
		return err
	}
	next.Reading, next.Shards = true, shards
	p.Online, p.Table, p.Done = next, 0, nil
	return w.moveTo(ctx, &p)
}

// moveTo writes the progress of a step that is done.
func (w *work) moveTo(ctx context.Context, p *progress.Progress) error {
	if err := w.writeProgress(ctx, p); err != nil {
		return err
	}
	w.progress = p
	w.track.Begin(p.Place)
	return nil
}

// lastPlaces are where the bucket ends in each table, by which an interrupted one continues. Without
// transactions it is read again, so that the rows of a key come in the table's order in any case.
func (w *work) lastPlaces(ctx context.Context, tables []progress.TableProgress) ([]progress.TableProgress, error) {
	if w.settings.Guarantee != relay.ExactlyOnce {
		return tables, nil
	}
	reader, err := w.holder.Reader(ctx)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	tables = slices.Clone(tables)
	for i := range w.tables {
		if tables[i].Last, err = reader.Last(ctx, &w.tables[i]); err != nil {
			return nil, err
		}
	}
	return tables, nil
}

// sendBucket has all rows of a bucket acknowledged, in the snapshot that is held.
func (w *work) sendBucket(ctx context.Context) error {
	var err error
	if w.online.taken, err = readSnapshot(w.progress); err != nil {
		return err
	}
	if w.resumed {
		if err := w.findLate(ctx); err != nil {
			return err
		}
	}
	if err := w.occupied(ctx, w.relay); err != nil {
		return err
	}
	if err := w.holder.End(ctx); err != nil {
		return err
	}
	w.resumed, w.skip.late = false, nil
	p, next := *w.progress, *w.progress.Online
	next.Next, next.Reading = next.Next+1, false
	p.Place, p.Online = w.track.Now(), &next
	p.Table, p.Done = 0, nil
	w.online.filter.Done(w.online.taken)
	if err := w.moveTo(ctx, &p); err != nil {
		return err
	}
	w.OnStep("bucket_done")
	return nil
}

// readSnapshot is the snapshot in the progress: that of the bucket at work, or of the last one that was sent.
func readSnapshot(p *progress.Progress) (buckets.Snapshot, error) {
	s, err := buckets.ParseSnapshot(p.Snapshot)
	if err != nil {
		return s, fmt.Errorf("read the progress of the backfill: %w", err)
	}
	return s, nil
}

// wholeSnapshot takes a snapshot that has, of each key, every row that committed before the last one it has. It sets
// p.Snapshot and p.End.
//
// A commit is in the WAL before a snapshot shows it, and much earlier where it waits for a synchronous standby.
func (w *work) wholeSnapshot(ctx context.Context, p *progress.Progress) (shards []buckets.Streamed, err error) {
	for deadline := time.Now().Add(commitPatience); ; {
		var lacks string
		if shards, lacks, err = w.takeSnapshot(ctx, p); err != nil || lacks == "" {
			return shards, err
		}
		if err := w.holder.End(ctx); err != nil {
			return nil, err
		}
		if time.Now().After(deadline) {
			o := w.online.filter
			return nil, progress.Refuse(fmt.Errorf("bucket %d of %d: for %s each snapshot lacked %s", o.Next+1, o.Buckets, commitPatience, lacks),
				"a commit that waits for a synchronous standby (wait_event SyncRep) ends when the standby is back: run the command again after that")
		}
		w.OnStep("commit_awaited")
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// commitPatience is how long a commit that is in the WAL may take to be visible.
const commitPatience = provision.DefaultSlotTimeout

// takeSnapshot takes a snapshot, and says what it lacks; empty: it is whole.
//
// p.End is flushed: a server that crashes loses nothing that the snapshot has, and gives no transaction of it another id.
func (w *work) takeSnapshot(ctx context.Context, p *progress.Progress) (shards []buckets.Streamed, lacks string, err error) {
	if p.Snapshot, err = w.holder.Begin(ctx, "", w.locked()...); err != nil {
		return nil, "", err
	}
	taken, err := readSnapshot(p)
	if err != nil {
		return nil, "", err
	}
	o := w.online
	switch o.filter.Forget(&taken); {
	case len(o.filter.LeftOut) > 0:
		return nil, fmt.Sprintf("transaction %d, which has committed", o.filter.LeftOut[0]), nil
	case o.first != nil && !taken.Has(o.first):
		return nil, "a transaction that had committed before the slot was made", nil
	}
	o.first = nil
	if p.End, err = w.flushedEnd(ctx); err != nil {
		return nil, "", err
	}
	shards, torn, err := w.compareStream(ctx, p, taken)
	if torn {
		lacks = "a row and had a later one of the same key"
	}
	return shards, lacks, err
}

// compareStream reads from the slot, and confirms nothing, what is around a snapshot. torn: see buckets.Window.
func (w *work) compareStream(ctx context.Context, p *progress.Progress, taken buckets.Snapshot) (shards []buckets.Streamed, torn bool, err error) {
	shards = slices.Clone(p.Online.Shards)
	for i, shard := range w.settings.Replication.Shards() {
		window := buckets.Window{Taken: taken}
		if err := w.peek(ctx, shard, p.End, func(b *wal.Batch) error { return window.Take(&w.online.filter, b) }); err != nil {
			return nil, false, err
		}
		shards[i].Seen = window.Seen
		torn = torn || window.Torn
	}
	return shards, torn, nil
}

// peek reads one publication from the backfill's slot up to a position, and confirms nothing.
func (w *work) peek(ctx context.Context, shard postgres.Config, end wal.LSN, take func(*wal.Batch) error) error {
	divided := func(b *wal.Batch) error { return refuseUndivided(take(b)) }
	if err := handover.Peek(ctx, w.temporary(shard), w.settings.Stream.MaxRowBytes, end, divided); err != nil {
		return err
	}
	_, err := w.awaitFree(ctx)
	return err
}

// refuseUndivided says what to do where a streamed row has no bucket; nil: it has one.
func refuseUndivided(err error) error {
	if err == nil {
		return nil
	}
	return progress.Refuse(err, "run `cdc-relay backfill` with --restart, which sends all rows again")
}

// flushedEnd is the end of the WAL, once the server has flushed it. The commit by which that is done also
// shows the stream that nothing lies before the end any more.
func (w *work) flushedEnd(ctx context.Context) (end wal.LSN, err error) {
	const op = "flush the WAL"
	err = w.holder.AskBeside(ctx, func(q postgres.Querier, _ int) error {
		if end, err = postgres.WALInserted(q); err != nil {
			return err
		}
		// A transaction that writes nothing commits without a flush, and has the WAL writer do it.
		if err := q.Exec("SELECT pg_catalog.pg_current_xact_id()"); err != nil {
			return postgres.Classify(op, err)
		}
		for deadline := time.Now().Add(commitPatience); ; {
			row, err := q.One(fmt.Sprintf("SELECT pg_catalog.pg_current_wal_flush_lsn() >= '%s'", end))
			switch {
			case err != nil:
				return postgres.Classify(op, err)
			case row.Text(0) == "t":
				return nil
			case time.Now().After(deadline):
				return &fault.Error{Kind: fault.KindRetry, Op: op, LSN: end, Err: fmt.Errorf("the server has not written it to disk within %s", commitPatience), Hint: "run the command again"}
			}
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	return end, err
}

// checkDeleted refuses to go on when rows may have been deleted since o was written: a row that is deleted before its
// bucket is read is in neither table nor stream. It returns o with the present counts.
func (w *work) checkDeleted(ctx context.Context, o progress.Online) (*progress.Online, error) {
	now, err := w.readDeletions(ctx)
	if err != nil {
		return nil, err
	}
	before := deletions{o.Deleted, o.Counted, o.Files}
	if changed := before.changed(now); changed != nil && !w.Options.AcceptDeletes {
		return nil, progress.Refuse(fmt.Errorf("%w: a row that was deleted before its bucket (%d of %d are sent) is in neither table nor stream any more", changed, o.Next, o.Buckets),
			"stop what deletes or rewrites, and find out which rows it took; if there are none, or none that has to be sent: cdc-relay backfill --online --all --rows-are-kept --accept-deletes --yes")
	} else if changed != nil {
		w.Out.warn(fmt.Sprintf("%v; going on, as --accept-deletes says", changed))
	}
	for _, name := range before.added(now) {
		w.Out.warn(fmt.Sprintf("partition %s came since the last bucket: of rows that it had before, those of the %s that are sent already are not sent", name, wording.Count(o.Next, "bucket")))
	}
	o.Deleted, o.Counted, o.Files = now.rows, now.since, now.files
	return &o, nil
}

// readDeletions reads what shows that rows of the tables were deleted.
func (w *work) readDeletions(ctx context.Context) (now *deletions, err error) {
	oids := make([]uint32, len(w.tables))
	for i := range w.tables {
		oids[i] = w.tables[i].OID
	}
	err = w.holder.AskBeside(ctx, func(q postgres.Querier, _ int) error {
		now, err = readDeletions(q, oids)
		return err
	})
	return now, err
}

// beginOnline notes what the tables are like before the slot is made, and forgets what the checkpoint topic
// has of an earlier slot of that name.
func (w *work) beginOnline(ctx context.Context, s *progress.State) (*progress.Online, error) {
	if s.Exactly { // a call that still writes would write after us
		slot := baseSlot(w.settings.Replication)
		if _, err := w.shutOut(ctx, s.System, slot, stored.BackfillKey(s.System, slot)); err != nil {
			return nil, err
		}
	}
	if err := w.forgetStream(ctx, s.System); err != nil {
		return nil, err
	}
	now, err := w.readDeletions(ctx)
	if err != nil {
		return nil, err
	}
	return &progress.Online{
		Buckets: w.online.filter.Buckets, Deleted: now.rows, Counted: now.since, Files: now.files, Reading: true, Exactly: s.Exactly, Shards: make([]buckets.Streamed, len(s.Final)),
	}, nil
}

// firstBucket has the snapshot of the slot's creation be that of the first bucket.
func (w *work) firstBucket(ctx context.Context, o *progress.Online) error {
	p := w.progress
	p.Online, p.Began = o, w.holder.Origin().Begin(p.Timeline)
	o.Until = p.Point
	first, err := readSnapshot(p)
	if err != nil {
		return err
	}
	w.online.first = &first
	w.selectBucket(0)
	if p.End, err = w.flushedEnd(ctx); err != nil || w.settings.Guarantee != relay.ExactlyOnce {
		return err
	}
	for i := range w.settings.Replication.Shards() {
		cfg := w.settings.OfShard(i, len(w.settings.Replication.Shards()))
		if err := checkpoints.WriteAs(ctx, cfg, stored.BackfillStreamKey(p.System, cfg.Replication.Slot), w.streamPosition(cfg.Replication.Publication, p.Point)); err != nil {
			return err
		}
	}
	return nil
}

// streamPosition is the record of where a shard's publication is streamed from while the backfill runs.
func (w *work) streamPosition(publication string, at wal.LSN) *stored.Position {
	p := w.progress
	return &stored.Position{System: p.System, Timeline: p.Timeline, Began: p.Began, Slot: p.Slot, Publication: publication, Relay: w.settings.Version, End: at}
}

// refuseOtherServer refuses a server that may have other rows than those which were left out of the stream.
func (w *work) refuseOtherServer(ctx context.Context, p *progress.Progress) error {
	end, err := w.holder.WALInserted(ctx)
	if err != nil {
		return err
	}
	if err := p.Continues(w.holder.Origin(), end); err != nil {
		return progress.Refuse(fmt.Errorf("the backfill that was interrupted cannot be continued: %w", err), "use --restart, which sends all rows again")
	}
	return nil
}

// resumeOnline continues where an earlier call was. Whatever that has left out of the stream is visible by
// now: resume waits for it.
func (w *work) resumeOnline(ctx context.Context) error {
	if err := w.refuseOtherHistory(ctx); err != nil {
		return err
	}
	if err := w.moveSlot(ctx, w.progress.Online.Until); err != nil {
		return err
	}
	if w.progress.Finished {
		return nil
	}
	o, err := w.checkDeleted(ctx, *w.progress.Online)
	if err != nil {
		return err
	}
	again := o.Reading && w.settings.Guarantee != relay.ExactlyOnce // without transactions the whole bucket is read again
	o.Reading = o.Reading && !again
	w.resumed = o.Reading
	p := *w.progress
	p.Online = o
	if p.Tables, err = w.noteChanged(ctx, &p); err != nil {
		return err
	}
	w.progress = &p
	w.selectBucket(o.Next)
	switch {
	case again:
		return w.takeBucket(ctx)
	case w.resumed: // what the first snapshot has belongs to the bucket; the rest of it is read in a new one
		if _, err := w.holder.Begin(ctx, "", w.locked()...); err != nil {
			return err
		}
		w.OnStep("snapshot_taken")
		return nil
	}
	last, err := readSnapshot(&p)
	w.online.filter.Taken = last
	return err
}

// noteChanged notes and tells in which tables rows may be missing, because their publication was changed since the last
// call. Of buckets that are still to be sent the table has them.
func (w *work) noteChanged(ctx context.Context, p *progress.Progress) ([]progress.TableProgress, error) {
	tables := slices.Clone(p.Tables)
	for i := range tables {
		t := &tables[i]
		as, err := handover.Published(ctx, w.holder, w.settings.Replication, t.OID)
		if err != nil {
			return nil, err
		}
		if t.Published == "" || t.PublishedUntil != "" || as == t.Published {
			continue
		}
		t.PublishedUntil = p.Online.Until.String()
		w.Out.warn(handover.PublicationChanged(t.Table, t.PublishedUntil) + ", and are not sent if their bucket is; --restart sends all rows again")
	}
	return tables, nil
}

// refuseOtherHistory refuses a server whose slot stands before the end of what is known, and that streams from there
// anything else: its disk was put back, and rows before Until may be others than those that are delivered. Where it is
// the same, its crash took the slot back, and nothing has to be streamed again.
func (w *work) refuseOtherHistory(ctx context.Context) error {
	slot, err := w.awaitFree(ctx)
	if err != nil {
		return err
	}
	o := w.progress.Online
	for i, shard := range w.settings.Replication.Shards() {
		known := &o.Shards[i]
		end := max(o.Until, known.Seen.Commit+1)
		if slot.Confirmed >= end {
			continue
		}
		history := buckets.History{Until: o.Until, Known: *known}
		if err := w.peek(ctx, shard, end, func(b *wal.Batch) error { history.Take(&w.online.filter, b); return nil }); err != nil {
			return err
		}
		if !history.Same(slot.Confirmed) {
			return progress.Refuse(fmt.Errorf("the backfill has read the WAL up to %s, and from %s on the server has another one: its disk was put back to a copy, or it lost flushed WAL", end, slot.Confirmed),
				"use --restart, which sends all rows again")
		}
	}
	return nil
}

// advance moves the slot forward to a position. It does not ask on the connection of the snapshot: that may take long.
func (w *work) advance(ctx context.Context, at wal.LSN) error {
	name := w.settings.Replication.BackfillSlot()
	return handover.WhenFree(ctx, func() error {
		return w.holder.AskBeside(ctx, func(q postgres.Querier, version int) error {
			slot, err := catalog.ReadSlot(q, version, name)
			if err != nil || slot.Confirmed >= at {
				return err
			}
			return provision.AdvanceSlot(q, name, at)
		})
	})
}

// forgetStream forgets where the stream was.
func (w *work) forgetStream(ctx context.Context, system string) error {
	if w.ledger == nil {
		return nil
	}
	for _, shard := range w.settings.Replication.Shards() {
		if err := w.ledger.Write(ctx, stored.BackfillStreamKey(system, shard.Slot), nil); err != nil {
			return err
		}
	}
	return nil
}

// check refuses a row whose bucket is another one to the server than to this program. The stream would leave
// out rows that no bucket has.
func (o *online) check(row *wal.Row, t *snapshot.Selection, order [][]byte) error {
	bucket, err := o.filter.Bucket(row)
	if err == nil && bucket != o.filter.Next {
		err = fmt.Errorf("the row of table %s at %s is in bucket %d to the server, and in %d to this program: the server gives another text for its key", t.Name, t.Order.Describe(snapshot.TupleOf(order)), o.filter.Next, bucket)
	}
	if err == nil {
		return nil
	}
	return progress.Refuse(err, "use backfill without --online, with --restart")
}
