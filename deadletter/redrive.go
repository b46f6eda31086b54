package deadletter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Redriver sends letters to the topics that their records were to go to.
type Redriver struct {
	Topic string    // of the dead letters
	Sink  sink.Sink // owned by the caller

	// Fill reads letters whole; one that is gone from the topic is absent.
	Fill func(ctx context.Context, entries []*Entry) (map[Place]*Letter, error)

	// Own says whether a source is one whose rows Restore finds.
	Own func(source string) bool

	// Restore gives the whole record of a letter from which something is missing. The
	// record keeps its bytes until the next Run.
	Restore func(ctx context.Context, l *Letter) (*router.Record, error)

	Discard bool // mark as done with, send nothing
	DryRun  bool // restore what is missing, send nothing and mark nothing
}

// Outcome is what was done for the letters of one group, or of a piece of it.
type Outcome struct {
	Entries []*Entry
	Topic   string // that the first record goes to; empty when it could not be made, or with Discard
	Done    int    // of Entries, from the first on; with DryRun, as far as is known without sending
	Records int    // that the brokers acknowledged: copies are sent once
	Err     error  // why not all
}

// chunk bounds what is held in memory at a time.
const (
	chunkBytes   = 64 << 20
	chunkEntries = 10_000
)

// Run performs the tasks one after another: it sends the records in order, and once
// the brokers have acknowledged them it writes the markers. A task that fails is left
// where it failed, and the others go on; an error of Run itself ends everything. What
// was sent and not marked because the process ended is sent again by the next Run.
func (r *Redriver) Run(ctx context.Context, tasks []Task, each func(Outcome)) error {
	failed := make(map[*Task]bool)
	for _, part := range chunks(tasks) {
		var whole map[Place]*Letter
		if !r.Discard {
			var err error
			if whole, err = r.fill(ctx, part); err != nil {
				return err
			}
		}
		for _, p := range part {
			if failed[p.task] {
				each(Outcome{Entries: p.entries, Err: errBehind})
				continue
			}
			out := r.perform(ctx, p, whole)
			failed[p.task] = out.Err != nil
			each(out)
			if out.Err != nil && ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

var errBehind = errors.New("an earlier letter of the key was not sent")

// fill reads the entries again. A dry run needs only those from which something is
// missing.
func (r *Redriver) fill(ctx context.Context, part []piece) (map[Place]*Letter, error) {
	var entries []*Entry
	for _, p := range part {
		for _, e := range p.entries {
			if !r.DryRun || !e.Complete() {
				entries = append(entries, e)
			}
		}
	}
	if len(entries) == 0 {
		return nil, nil
	}
	return r.Fill(ctx, entries)
}

// piece is a run of a task's entries that fits into memory.
type piece struct {
	task    *Task
	entries []*Entry
	last    bool // no entry of the task follows
}

// chunks cuts the tasks into parts that fit into memory. A large task is cut too; its
// pieces stay in order.
func chunks(tasks []Task) [][]piece {
	var all [][]piece
	var part []piece
	bytes, entries := 0, 0
	for i := range tasks {
		task := &tasks[i]
		for left := task.Entries; len(left) > 0; {
			n := 0
			for n < len(left) && (entries == 0 || bytes+left[n].Size <= chunkBytes && entries < chunkEntries) {
				bytes, entries, n = bytes+left[n].Size, entries+1, n+1
			}
			if n > 0 {
				part = append(part, piece{task, left[:n], n == len(left)})
				left = left[n:]
			}
			if len(left) > 0 {
				all, part, bytes, entries = append(all, part), nil, 0, 0
			}
		}
	}
	if len(part) > 0 {
		all = append(all, part)
	}
	return all
}

// perform sends the letters of a piece and marks what was acknowledged.
func (r *Redriver) perform(ctx context.Context, p piece, whole map[Place]*Letter) Outcome {
	out := Outcome{Entries: p.entries, Done: len(p.entries)}
	if !r.Discard {
		out = r.deliver(ctx, p.entries, whole)
	}
	if out.Done == 0 || r.DryRun {
		return out
	}
	if err := r.mark(ctx, p, out.Done); err != nil {
		out.Err = errors.Join(out.Err, fmt.Errorf("mark as done: %w; they will be sent again", err))
		out.Done = 0
	}
	return out
}

// outgoing is a record on its way.
type outgoing struct {
	record router.Record
	entry  *Entry // the first that it comes from
	sum    digest // of the record as it was read or restored
	done   int    // entries that are done with once it is durable
}

// deliver sends the records of the entries. Copies of one record are sent once.
func (r *Redriver) deliver(ctx context.Context, entries []*Entry, whole map[Place]*Letter) Outcome {
	out := Outcome{Entries: entries}
	var queue []outgoing
	for i, e := range entries {
		if i > 0 && e.copies(entries[i-1]) {
			queue[len(queue)-1].done = i + 1
			continue
		}
		rec, err := r.record(ctx, e, whole)
		if err != nil {
			out.Err = err
			break
		}
		queue = append(queue, outgoing{*rec, e, digestOf(rec), i + 1})
	}
	if len(queue) == 0 {
		return out
	}
	out.Topic = queue[0].record.Topic
	n := len(queue)
	if !r.DryRun {
		var err error
		if n, err = r.sendChecked(ctx, queue); err != nil {
			out.Err = err
		}
		out.Records = n
	}
	if n > 0 {
		out.Done = queue[n-1].done
	}
	return out
}

// sendChecked sends the records and says how many the brokers acknowledged, from the
// first on. Records whose bytes are not those that were read or restored do not count,
// whether that shows before or after they were sent.
func (r *Redriver) sendChecked(ctx context.Context, queue []outgoing) (int, error) {
	if err := unchanged(queue); err != nil {
		return 0, err
	}
	records := make([]router.Record, len(queue))
	for i := range queue {
		records[i] = queue[i].record
	}
	n, err := r.send(ctx, records)
	if changed := unchanged(queue[:n]); changed != nil {
		return 0, changed
	}
	return n, err
}

func unchanged(queue []outgoing) error {
	for i := range queue {
		if o := &queue[i]; digestOf(&o.record) != o.sum {
			return fmt.Errorf("the record of the letter at partition %d, offset %d changed in memory while it was sent; nothing of its key is marked, and what was sent may be wrong: report this as a fault of cdc-relay", o.entry.Partition, o.entry.Offset)
		}
	}
	return nil
}

// record is what is to be sent for an entry.
func (r *Redriver) record(ctx context.Context, e *Entry, whole map[Place]*Letter) (*router.Record, error) {
	l, ok := whole[e.Place()]
	switch {
	case r.DryRun && e.Complete():
		return &e.Record, nil // what an entry lacks of it is sent, not looked at
	case !ok:
		return nil, fmt.Errorf("the letter at partition %d, offset %d is gone from the topic", e.Partition, e.Offset)
	case l.Complete():
		return &l.Record, nil
	case !r.Own(l.Source):
		return nil, fmt.Errorf("the letter at partition %d, offset %d is not complete and comes from %s, whose table this configuration does not read; re-drive it with the configuration of that pipeline, or discard it and write the event again", e.Partition, e.Offset, l.Source)
	}
	return r.Restore(ctx, l)
}

// tries is how often a record is sent whose failure may heal by itself, such as that
// of a topic which is just being made.
const tries = 5

// send says how many of the records are durable, from the first on. The client fails
// a record together with its neighbours, so what failed is tried again alone.
func (r *Redriver) send(ctx context.Context, records []router.Record) (int, error) {
	n, err := r.try(ctx, records)
	for failed := 0; err != nil && n < len(records); {
		if alone := len(records) == 1 || failed > 0; alone && (!passing(err) || failed >= tries) {
			return n, err
		}
		if failed > 0 {
			select {
			case <-time.After(time.Duration(failed) * 200 * time.Millisecond):
			case <-ctx.Done():
				return n, context.Cause(ctx)
			}
		}
		var one int
		if one, err = r.try(ctx, records[n:n+1]); err != nil {
			failed++
			continue
		}
		n, failed = n+one, 0
		if n < len(records) {
			n, err = r.rest(ctx, records, n)
		}
	}
	return n, err
}

// rest sends what is behind the n-th record.
func (r *Redriver) rest(ctx context.Context, records []router.Record, n int) (int, error) {
	more, err := r.try(ctx, records[n:])
	return n + more, err
}

// passing says that nothing was wrong with the record.
func passing(err error) bool {
	partial, ok := errors.AsType[*sink.FailedError](err)
	return ok && partial.Failures[0].Class == sink.Retry
}

// try sends once and waits for the outcome.
func (r *Redriver) try(ctx context.Context, records []router.Record) (int, error) {
	if len(records) == 0 {
		return 0, nil
	}
	outcome := make(chan error, 1)
	r.Sink.Send(ctx, records, func(err error) { outcome <- err })
	var err error
	select {
	case err = <-outcome:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	if err == nil {
		return len(records), nil
	}
	r.Sink.Resume()
	partial, ok := errors.AsType[*sink.FailedError](err)
	if !ok {
		return 0, err
	}
	return partial.Failures[0].Index, partial
}

// maxMarked bounds the offsets that one marker names, and with them its size.
const maxMarked = 1000

// mark writes markers for the first done entries of a piece: into each partition that
// holds one of them, and with the last piece of a task into each that holds a letter of
// the group, so that a relay knows when the key is free.
func (r *Redriver) mark(ctx context.Context, p piece, done int) error {
	first := p.entries[0]
	complete := p.last && done == len(p.entries) && p.task.Left == 0
	for _, read := range p.task.ends {
		var at []int64
		for _, e := range p.entries[:done] {
			if e.Partition == read.partition {
				at = append(at, e.Offset)
			}
		}
		if len(at) == 0 && !complete {
			continue
		}
		slices.Sort(at)
		for more := true; more; {
			n := min(len(at), maxMarked)
			m := Marker{Source: first.Source, Group: first.Group, Outcome: Sent, Partition: read.partition, Offsets: NewOffsets(at[:n])}
			at = at[n:]
			more = len(at) > 0
			if r.Discard {
				m.Outcome = Discarded
			}
			if complete && !more {
				m.Complete = read.end
				m.Through = p.task.through()
			}
			if _, err := r.send(ctx, []router.Record{m.Record(r.Topic, first.Record.Key)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// through is the highest row of the task, for readers of version 0.1: with a complete
// task it covers nothing that waits.
func (t *Task) through() (highest Row) {
	for _, e := range t.Entries {
		if e.ID.Row.Compare(highest) > 0 {
			highest = e.ID.Row
		}
	}
	return highest
}
