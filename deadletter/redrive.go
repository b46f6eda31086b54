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

// Redriver sends letters to where they were to go.
type Redriver struct {
	Kafka sink.KafkaConfig
	Topic string    // of the dead letters
	Sink  sink.Sink // owned by the caller

	// Restore gives the whole record of a letter from which something is missing.
	Restore func(ctx context.Context, l *Letter) (*router.Record, error)

	Discard bool // mark as done with, send nothing
	DryRun  bool // restore what is missing, send nothing and mark nothing
}

// Outcome is what became of one group.
type Outcome struct {
	Entries []*Entry // the whole group
	Topic   string   // that the first record goes to; empty when it could not be made, or with Discard
	Done    int      // of them, from the first on; with DryRun, as far as is known without sending
	Err     error    // why not all
}

// chunk bounds what is held in memory at a time.
const (
	chunkBytes   = 64 << 20
	chunkEntries = 10_000
)

// Run re-drives the groups one after another: the records, in order, and once they
// are durable the marker. A group that fails is left where it failed, the others go
// on; an error of Run itself ends everything. What was sent and not marked because
// the process ended is sent again by the next Run.
func (r *Redriver) Run(ctx context.Context, groups [][]*Entry, each func(Outcome)) error {
	failed := make(map[groupOf]bool) // of which a later piece may follow
	for _, part := range chunks(groups) {
		var letters map[Place]*Letter
		if !r.Discard {
			var err error
			if letters, err = r.fill(ctx, slices.Concat(part...)); err != nil {
				return err
			}
		}
		for _, group := range part {
			of := groupOf{group[0].Source, group[0].Group}
			if failed[of] {
				each(Outcome{Entries: group, Err: errBehind})
				continue
			}
			out := r.group(ctx, group, letters)
			failed[of] = out.Err != nil
			each(out)
			if out.Err != nil && ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// fill reads the entries again. A dry run needs those only that something is made of.
func (r *Redriver) fill(ctx context.Context, entries []*Entry) (map[Place]*Letter, error) {
	if r.DryRun {
		entries = slices.DeleteFunc(entries, func(e *Entry) bool { return e.Complete() })
	}
	if len(entries) == 0 {
		return nil, nil
	}
	return Fill(ctx, r.Kafka, r.Topic, entries)
}

var errBehind = errors.New("an earlier letter of the key was not sent")

// chunks cuts the groups into parts that fit into memory. A large group is cut too;
// its pieces stay in order.
func chunks(groups [][]*Entry) [][][]*Entry {
	var all [][][]*Entry
	var part [][]*Entry
	bytes, entries := 0, 0
	for _, group := range groups {
		for len(group) > 0 {
			n := 0
			for n < len(group) && (entries == 0 || bytes+group[n].Size <= chunkBytes && entries < chunkEntries) {
				bytes, entries, n = bytes+group[n].Size, entries+1, n+1
			}
			if n > 0 {
				part = append(part, group[:n])
				group = group[n:]
			}
			if len(group) > 0 {
				all, part, bytes, entries = append(all, part), nil, 0, 0
			}
		}
	}
	if len(part) > 0 {
		all = append(all, part)
	}
	return all
}

// group re-drives the letters of one group, or a piece of it.
func (r *Redriver) group(ctx context.Context, group []*Entry, letters map[Place]*Letter) Outcome {
	out := Outcome{Entries: group, Done: len(group)}
	if !r.Discard {
		out.Topic, out.Done, out.Err = r.deliver(ctx, group, letters)
	}
	if out.Done == 0 || r.DryRun {
		return out
	}
	if err := r.mark(ctx, group[:out.Done]); err != nil {
		out.Err = errors.Join(out.Err, fmt.Errorf("mark as done: %w; they will be sent again", err))
		out.Done = 0
	}
	return out
}

// deliver sends the records of a group and says where the first one goes, and how many
// of its letters are done with, from the first on.
func (r *Redriver) deliver(ctx context.Context, group []*Entry, letters map[Place]*Letter) (topic string, done int, err error) {
	var records []router.Record
	var upTo []int // letters done with once the record is durable
	var stopped error
	for i, e := range group {
		if i > 0 && e.Row == group[i-1].Row {
			upTo[len(upTo)-1] = i + 1 // it is there twice
			continue
		}
		rec, err := r.record(ctx, e, letters)
		if err != nil {
			stopped = err
			break
		}
		records, upTo = append(records, *rec), append(upTo, i+1)
	}
	n := len(records)
	if !r.DryRun {
		if n, err = r.send(ctx, records); err != nil {
			stopped = err
		}
	}
	if len(records) > 0 {
		topic = records[0].Topic
	}
	if n == 0 {
		return topic, 0, stopped
	}
	return topic, upTo[n-1], stopped
}

func (r *Redriver) record(ctx context.Context, e *Entry, letters map[Place]*Letter) (*router.Record, error) {
	l, ok := letters[e.Place()]
	switch {
	case r.DryRun && e.Complete():
		return &e.Record, nil // what an entry lacks of it is sent, not looked at
	case !ok:
		return nil, fmt.Errorf("the letter at partition %d, offset %d is gone from the topic", e.Partition, e.Offset)
	case l.Complete():
		return &l.Record, nil
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

// mark writes a marker into each partition that holds letters of the group: a topic
// that got more partitions may have them in two.
func (r *Redriver) mark(ctx context.Context, done []*Entry) error {
	last := done[len(done)-1]
	m := Marker{Source: last.Source, Group: last.Group, Through: last.Row, Outcome: Sent}
	if r.Discard {
		m.Outcome = Discarded
	}
	var partitions []int32
	for _, e := range done {
		if !slices.Contains(partitions, e.Partition) {
			partitions = append(partitions, e.Partition)
		}
	}
	for _, partition := range partitions {
		rec := m.Record(r.Topic, last.Record.Key)
		rec.Partition = partition
		if _, err := r.send(ctx, []router.Record{rec}); err != nil {
			return err
		}
	}
	return nil
}
