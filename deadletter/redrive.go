package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Redriver sends letters to the topics that their records were to go to.
type Redriver struct {
	Topic string    // of the dead letters
	Sink  sink.Sink // owned by the caller

	// ReadLetters returns the letters with their values, without those that the topic no longer
	// has. An entry that is done since the first reading gets its outcome, and is not sent.
	ReadLetters func(ctx context.Context, entries []*Entry) (map[Location]*Letter, error)

	// Own reports whether Restore finds the rows of a source. Lost reports whether the database's
	// history no longer has the row of an own record: a failover lost it. The event did not happen then,
	// and the table's row with the same event id is another one, so no letter of it is sent. Lost
	// may be nil: nothing is lost.
	Own  func(source string) bool
	Lost func(*Entry) bool

	// Restore makes the records of the rows that have the letter's event id, as they are now, for the
	// letter's missing parts: of one at least, or it ends with an error. The bytes stay valid until
	// the next Run.
	Restore func(ctx context.Context, l *Letter) iter.Seq2[Restored, error]

	// Reserved are the topics that no record may go to, whatever a letter says.
	Reserved record.Reserved

	// Waiting is called while the brokers do not acknowledge records: after tellAfter, then every
	// tellAgain, by another goroutine than Run's. May be nil.
	Waiting func(Wait)

	Discard bool // mark as done with, send nothing
	DryRun  bool // restore what is missing, send nothing and mark nothing

	// Halted is asked before the letters of each key: true ends the Run there, with a *Stopped
	// that has ErrHalted. Nil: it never ends so.
	Halted func() bool

	most    int             // entries at a time, if not chunkEntries
	refused map[string]bool // topics that the brokers take no record for until somebody corrects it
}

// Outcome is what was done for the letters of one group, or of a piece of it.
type Outcome struct {
	Task    *Task
	Entries []*Entry // but those that somebody else was done with meanwhile
	Topic   string   // that the first record goes to; empty when it could not be made, or with Discard
	Done    int      // of Entries, from the first on; with DryRun, as far as is known without sending
	Records int      // that the brokers acknowledged: copies are sent once
	Unsure  int      // of Entries, after those that are done: the brokers may have them, and they are not marked
	Err     error    // why not all

	// Changed counts entries that are done whose row was changed after the letter was written;
	// Recoded those for which this cannot be known, as their schema is gone; Unproven those for
	// which neither value nor key shows whether it was.
	Changed, Recoded, Unproven int
}

// Stopped is why a Run ended before its tasks. What was marked until then is done with.
type Stopped struct {
	Err    error
	Entry  *Entry // the first one in hand that is not marked; nil: none was in hand
	Unsure int    // letters from Entry on that the brokers may have although they are not marked
}

func (s *Stopped) Error() string { return s.Err.Error() }
func (s *Stopped) Unwrap() error { return s.Err }

// chunk bounds what is held in memory at a time.
const (
	chunkBytes   = 64 << 20
	chunkEntries = 10_000
)

// Run performs the tasks one after another. It sends a task's records in order and writes the
// markers once the brokers have acknowledged them. A task that fails stays where it failed, and
// the next task begins.
//
// When ctx ends or the brokers do not answer, Run returns a *Stopped. It then sends nothing more,
// waits a moment for answers, and marks what was acknowledged. The next Run sends again what the
// brokers have and no marker covers.
func (r *Redriver) Run(ctx context.Context, tasks []Task, each func(Outcome)) error {
	failed := make(map[*Task]bool)
	var begun *Task
	for _, part := range chunks(tasks, cmp.Or(r.most, chunkEntries)) {
		var whole map[Location]*Letter
		if !r.Discard {
			var err error
			if whole, err = r.readLetters(ctx, part); err != nil {
				return &Stopped{Err: cmp.Or(context.Cause(ctx), err)}
			}
		}
		for _, p := range part {
			if ctx.Err() != nil {
				return &Stopped{Err: context.Cause(ctx)}
			}
			if p.task != begun && r.Halted != nil && r.Halted() {
				return &Stopped{Err: ErrHalted}
			}
			begun = p.task
			if failed[p.task] {
				each(Outcome{Task: p.task, Entries: p.entries, Err: errBehind})
				continue
			}
			out := r.perform(ctx, p, whole)
			out.Task = p.task
			if len(out.Entries) == 0 {
				continue // somebody else was done with them
			}
			failed[p.task] = out.Err != nil
			why := stopping(ctx, out.Err)
			if why != nil {
				out.Err = why
			}
			each(out)
			if why != nil {
				return &Stopped{Err: why, Entry: out.Entries[out.Done], Unsure: out.Unsure}
			}
		}
	}
	return nil
}

// ErrHalted is why a Run ended where Halted said so.
var ErrHalted = errors.New("it was to end between two keys")

var errBehind = errors.New("an earlier letter of the key was not sent")

// readLetters reads the entries again. A dry run needs only those from which something is
// missing.
func (r *Redriver) readLetters(ctx context.Context, part []chunk) (map[Location]*Letter, error) {
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
	return r.ReadLetters(ctx, entries)
}

// chunk is a run of a task's entries that fits into memory.
type chunk struct {
	task    *Task
	entries []*Entry
}

// size is that of the value, also of one that has to be read from its table.
func (e *Entry) size() int { return max(e.Size, int(min(e.ValueBytes, chunkBytes))) }

// chunks cuts the tasks into parts that fit into memory. A large task is cut too; its
// pieces stay in order.
func chunks(tasks []Task, most int) [][]chunk {
	var all [][]chunk
	var part []chunk
	bytes, entries := 0, 0
	for i := range tasks {
		task := &tasks[i]
		for left := task.Entries; len(left) > 0; {
			n := 0
			for n < len(left) && (entries == 0 || bytes+left[n].size() <= chunkBytes && entries < most) {
				bytes, entries, n = bytes+left[n].size(), entries+1, n+1
			}
			if n > 0 {
				part = append(part, chunk{task, left[:n]})
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
func (r *Redriver) perform(ctx context.Context, p chunk, whole map[Location]*Letter) Outcome {
	p.entries = slices.DeleteFunc(slices.Clone(p.entries), func(e *Entry) bool { return e.Done != "" })
	if r.refused[r.Topic] { // what is sent could not be marked
		return Outcome{Entries: p.entries, Err: notTried(r.Topic)}
	}
	out := Outcome{Entries: p.entries, Done: len(p.entries)}
	if !r.Discard {
		out = r.deliver(ctx, p.entries, whole)
		// That the brokers have a record stays true whoever has the letters by now.
		outliving, cancel := withStopGrace(ctx)
		defer cancel()
		ctx = outliving
	}
	if out.Done == 0 || r.DryRun {
		return out
	}
	if err := r.writeMarkers(ctx, p, out.Done); err != nil {
		out.Err = errors.Join(out.Err, fmt.Errorf("mark as done: %w%s", err, map[bool]string{false: "; they will be sent again"}[r.Discard]))
		out.Unsure, out.Done = max(out.Unsure+out.Done, 1), 0
	}
	return out
}

// outgoing is a record on its way.
type outgoing struct {
	record record.Record
	entry  *Entry // the first that it comes from
	sum    digest // of the record as it was read or restored
	done   int    // entries that are done with once it is durable
}

// deliver sends the records of the entries. Copies of one record are sent once.
func (r *Redriver) deliver(ctx context.Context, entries []*Entry, whole map[Location]*Letter) Outcome {
	out := Outcome{Entries: entries}
	var queue []outgoing
	for done := 0; done < len(entries); {
		e, n := oneOf(entries[done:])
		rec, err := r.record(ctx, e, whole)
		if err == nil {
			err = r.check(e, rec)
		}
		if err != nil {
			out.Err = err
			break
		}
		done += n
		queue = append(queue, outgoing{*rec, e, digestOf(rec), done})
	}
	if len(queue) == 0 {
		return out
	}
	out.Topic = queue[0].record.Topic
	n := len(queue)
	if !r.DryRun {
		begun := ctx.Err() == nil
		var err error
		if n, err = r.sendChecked(ctx, queue); err != nil {
			out.Err = err
			if begun {
				out.Unsure = queue[len(queue)-1].done
			}
		}
		out.Records = n
	}
	if n > 0 {
		out.Done = queue[n-1].done
		out.Unsure = max(0, out.Unsure-out.Done)
	}
	for _, o := range queue[:n] {
		switch {
		case o.entry.found == changed:
			out.Changed++
		case o.entry.found == recoded:
			out.Recoded++
		case o.entry.unproven():
			out.Unproven++
		}
	}
	return out
}

// oneOf is which of the letters to send that hold the first one's record, a whole one if
// there is one, and how many they are.
func oneOf(entries []*Entry) (e *Entry, n int) {
	e, n = entries[0], 1
	of := e // or the first that has the time of its commit
	for ; n < len(entries) && entries[n].copyOf(of); n++ {
		if of.Committed.IsZero() {
			of = entries[n]
		}
		if !e.Complete() && entries[n].Complete() {
			e = entries[n]
		}
	}
	return e, n
}

// sendChecked sends the records and returns how many the brokers acknowledged, from the first on.
// A record whose bytes differ from those that were read or restored does not count, whether this
// shows before or after it was sent.
func (r *Redriver) sendChecked(ctx context.Context, queue []outgoing) (int, error) {
	if err := refuseChanged(queue); err != nil {
		return 0, err
	}
	records := make([]record.Record, len(queue))
	for i := range queue {
		records[i] = queue[i].record
	}
	n, err := r.send(ctx, records)
	if changed := refuseChanged(queue[:n]); changed != nil {
		return 0, changed
	}
	return n, err
}

func refuseChanged(queue []outgoing) error {
	for i := range queue {
		if o := &queue[i]; digestOf(&o.record) != o.sum {
			return fmt.Errorf("the record of the letter at partition %d, offset %d changed in memory while it was sent; no letter of its key is marked, and the record that was sent may be wrong: report this as a defect of cdc-relay", o.entry.Partition, o.entry.Offset)
		}
	}
	return nil
}

// check refuses a record for a topic that is not a row's, or that the brokers refused another one for.
func (r *Redriver) check(e *Entry, rec *record.Record) error {
	if err := r.Reserved.Check(rec.Topic); err != nil {
		return fmt.Errorf("the letter at partition %d, offset %d cannot be sent: %w", e.Partition, e.Offset, err)
	}
	if r.refused[rec.Topic] {
		return notTried(rec.Topic)
	}
	return nil
}

// record is what is to be sent for an entry.
func (r *Redriver) record(ctx context.Context, e *Entry, whole map[Location]*Letter) (*record.Record, error) {
	l, ok := whole[e.Location()]
	switch {
	case r.Lost != nil && r.Own(e.Source) && r.Lost(e):
		return nil, fmt.Errorf("the row of the letter at partition %d, offset %d, of timeline %d, was lost in a failover, so the database does not have it; discard the letter, and write the event again if it is to be sent", e.Partition, e.Offset, e.Timeline)
	case r.DryRun && e.Complete():
		return &e.Record, nil // what an entry lacks of it is sent, not looked at
	case !ok:
		return nil, fmt.Errorf("the letter at partition %d, offset %d is gone from the topic", e.Partition, e.Offset)
	case l.ID != e.ID || l.Source != e.Source || l.Group != e.Group || digestOf(&l.Record) != e.sum:
		return nil, fmt.Errorf("partition %d, offset %d holds another letter than it held a moment ago: was the topic deleted and recreated? Run the command again", e.Partition, e.Offset)
	case l.Complete():
		return &l.Record, nil
	case !r.Own(l.Source):
		return nil, fmt.Errorf("the letter at partition %d, offset %d is not complete and comes from %s, whose table this configuration does not read; re-drive it with the configuration of that pipeline, or discard it and write the event again", e.Partition, e.Offset, l.Source)
	}
	made, found, err := l.choose(r.Restore(ctx, l))
	if err != nil {
		return nil, err
	}
	e.found, e.keyed = found, l.keyTells()
	return l.completed(made.Record), nil
}

// completed returns the letter's record, with the missing parts from the record that its row
// makes now. What the letter has stays as it is, as the row may have been changed, or be another
// one. Where the value is missing for another reason than its size, the whole record comes from the
// row, because the other parts may belong to the value. The position headers come from the letter.
func (l *Letter) completed(made *record.Record) *record.Record {
	lacks := func(part string) bool { return slices.Contains(l.Missing, part) }
	if lacks(router.PartValue) && (len(l.Missing) > 1 || l.ValueBytes == 0) {
		return l.positioned(*made)
	}
	rec := l.Record
	if lacks(router.PartTopic) {
		rec.Topic = made.Topic
	}
	if lacks(router.PartKey) {
		rec.Key = made.Key
	}
	if lacks(router.PartValue) {
		rec.Value = made.Value
	}
	if lacks(router.PartTimestamp) {
		rec.Timestamp = made.Timestamp
	}
	if lacks(router.PartPartition) {
		rec.Partition = made.Partition
	}
	if lacks(router.PartHeaders) {
		rec.Headers = l.positioned(*made).Headers
	}
	return &rec
}

// positioned gives a record the position headers of the letter.
func (l *Letter) positioned(rec record.Record) *record.Record {
	rec.Headers = slices.Clone(rec.Headers)
	for _, h := range l.Record.Headers {
		if h.Key == record.HeaderLSN || h.Key == record.HeaderSeq || h.Key == record.HeaderCommitTime {
			rec.Headers = append(rec.Headers, h)
		}
	}
	return &rec
}

// maxRanges bounds what one marker names, and with it its size.
const maxRanges = 1000

// writeMarkers writes markers for the first done entries of a piece, in the partitions of the
// letters. After partitions were added to the topic, a group may lie in two.
func (r *Redriver) writeMarkers(ctx context.Context, p chunk, done int) error {
	outcome := Sent
	if r.Discard {
		outcome = Discarded
	}
	now := make(map[*Entry]bool, done)
	for _, e := range p.entries[:done] {
		now[e] = true
	}
	isDone := func(e *Entry) bool { return now[e] || e.Done != "" }
	for waiting := p.task.waiting; len(waiting) > 0; {
		n := 1
		for n < len(waiting) && waiting[n].Partition == waiting[0].Partition && waiting[n].Group == waiting[0].Group {
			n++
		}
		there := waiting[:n]
		waiting = waiting[n:]
		if !slices.ContainsFunc(there, func(e *Entry) bool { return now[e] }) {
			continue
		}
		ranges := coverage(there, isDone)
		for part := range slices.Chunk(ranges, maxRanges) {
			m := Marker{Source: there[0].Source, Group: there[0].Group, Outcome: outcome, Partition: there[0].Partition, Offsets: part, Through: through(there, isDone)}
			if _, err := r.send(ctx, []record.Record{m.Record(r.Topic, there[0].Record.Key)}); err != nil {
				return err
			}
		}
	}
	for e := range now {
		e.Done = outcome
	}
	return nil
}

// through returns the highest row if everything is done. One range then covers it all for readers
// of an earlier build, and covers nothing that waits.
func through(there []*Entry, done func(*Entry) bool) wal.Place {
	if slices.ContainsFunc(there, func(e *Entry) bool { return !done(e) }) {
		return wal.Place{}
	}
	return slices.MaxFunc(there, func(a, b *Entry) int { return a.Place.Compare(b.Place) }).Place
}
