package deadletter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/topics"
)

// world is a model of everything around the dead letters, small enough to be wrong about
// nothing: databases with histories that fork, relays that crash, a dead-letter topic that
// several of them share, and people who re-drive and discard. Parked, Backlog, Redriver
// and the form of letters and markers are the real ones. A seed decides everything, and
// nothing waits for a clock.
type world struct {
	random *rand.Rand
	log    [][]*topics.Message // the dead-letter topic, by partition, without what expired
	next   []int64             // offset of the next record, by partition
	topic  []landed            // orders: what the brokers took, in order
	pipes  []*pipe
	strict bool // the brokers refuse what is bad

	events  map[digest]*event // by what their records are to be
	all     []*event
	of      map[Location]*event // of letters
	acked   map[digest]bool     // that a redrive got an acknowledgement for
	dropped map[*event]bool     // that somebody discarded on purpose, or the topic's retention took
	story   []string
	faults  []string
}

type landed struct {
	sum digest
	by  string
}

// event is one record that a row makes.
type event struct {
	source string
	id     ID
	want   record.Record // what has to arrive
	keyed  bool          // its order counts
	kind   kind
	made   bool // the topic has, or had, a letter of it
	late   bool // its topic is made when it is re-driven, and its order counts from then on
}

type kind int

const (
	good    kind = iota
	bad          // the brokers refuse it while they are strict
	unmade       // the router makes no topic of it
	huge         // bad, and the dead-letter topic refuses its value
	monster      // bad, and the dead-letter topic refuses its value and headers
)

var kinds = []kind{good, good, good, good, good, good, bad, bad, unmade, huge, huge, monster}

type change struct {
	commit wal.LSN
	seq    uint64
	serial int // event id, empty for records without one
	events []*event
	row    *wal.Row
}

// pipe is a database, its slot and the relay.
type pipe struct {
	w        *world
	source   string
	slotName string
	park     bool
	origin   wal.Origin
	rows     []*change
	commit   wal.LSN // of the next transaction
	serial   int
	slot     int // rows that are confirmed

	parked  *Parked // nil without parking
	at      int     // rows that the relay has read
	flight  []flying
	seen    []int64 // offset up to which the topic was followed, by partition
	expired bool    // letters expired while the relay ran
	old     bool    // the relay is an earlier build
	aged    bool    // it was
}

type flying struct {
	rec  record.Record
	e    *event
	rows int // read when it was sent
}

func newWorld(seed uint64) *world {
	w := &world{
		random: rand.New(rand.NewPCG(seed, 7)), strict: true, events: map[digest]*event{}, of: map[Location]*event{},
		acked: map[digest]bool{}, dropped: map[*event]bool{},
	}
	w.grow()
	for _, source := range []string{SourceID("7000", "5", "orders"), SourceID("7000", "5", "billing"), SourceID("8000", "5", "orders"), SourceID("7000", "6", "orders")}[:1+w.random.IntN(4)] {
		_, _, slot := SplitSource(source)
		p := &pipe{w: w, source: source, slotName: slot, park: w.random.IntN(4) > 0, commit: 0x100, origin: wal.Origin{SystemID: source[:4], Timeline: 1}, old: w.random.IntN(4) == 0}
		p.aged = p.old
		w.pipes = append(w.pipes, p)
		p.start()
	}
	return w
}

func (w *world) say(format string, args ...any) {
	w.story = append(w.story, fmt.Sprintf(format, args...))
}

func (w *world) fault(format string, args ...any) {
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
	w.say("FAULT "+format, args...)
}

func (w *world) chance(percent int) bool { return w.random.IntN(100) < percent }

// grow gives the dead-letter topic one more partition.
func (w *world) grow() {
	w.log, w.next = append(w.log, nil), append(w.next, 0)
	for _, p := range w.pipes {
		p.seen = append(p.seen, 0)
	}
}

func (w *world) partition(key []byte) int {
	sum := len(key)
	for _, c := range key {
		sum += int(c)
	}
	return sum % len(w.log)
}

// append makes a record of the dead-letter topic durable.
func (w *world) append(rec *record.Record) Location {
	partition := int(rec.Partition)
	if rec.Partition == record.AutoPartition {
		partition = w.partition(rec.Key)
	}
	m := &topics.Message{Topic: topic, Partition: int32(partition), Offset: w.next[partition], Timestamp: time.Unix(int64(len(w.story)), 0), Key: bytes.Clone(rec.Key), Value: bytes.Clone(rec.Value)}
	for _, h := range rec.Headers {
		m.Headers = append(m.Headers, record.Header{Key: h.Key, Value: bytes.Clone(h.Value)})
	}
	w.log[partition] = append(w.log[partition], m)
	w.next[partition] += int64(1 + w.random.IntN(2)) // a transaction's end takes an offset too
	return Location{m.Partition, m.Offset}
}

// land makes a record of the topic durable.
func (w *world) land(rec *record.Record, by string) {
	sum := digestOf(rec)
	if e := w.events[sum]; e == nil {
		w.fault("%s sent bytes that no row makes: key %s, value %q", by, rec.Key, rec.Value)
	} else {
		w.say("%s sends %s", by, e)
	}
	w.topic = append(w.topic, landed{sum, by})
}

func (e *event) String() string {
	return fmt.Sprintf("%s:%d:%s.%d(%s)", e.source, e.id.Timeline, e.id.Place, e.id.Nth, e.want.Key)
}

// insert commits a transaction of one row or two.
func (p *pipe) insert() {
	w := p.w
	txn := &wal.Txn{Commit: p.commit, Time: time.Unix(40, 0)}
	for seq := range 1 + w.random.IntN(2) {
		p.serial++
		c := &change{commit: p.commit, seq: uint64(seq + 1), serial: p.serial}
		c.row = &wal.Row{Txn: txn, Ordinal: c.seq, Relation: &wal.Relation{Namespace: "public", Name: "outbox"}}
		switch {
		case w.chance(15):
			c.serial = 0
		case w.chance(20) && len(p.rows) > 0: // no unique index prevents it
			c.serial = p.rows[w.random.IntN(len(p.rows))].serial
		}
		key := []byte{byte('a' + w.random.IntN(3))}
		if w.chance(10) {
			key = nil
		}
		for nth := range 1 + w.random.IntN(5)/4 {
			c.events = append(c.events, p.event(c, key, nth))
		}
		p.rows = append(p.rows, c)
	}
	p.commit += 0x10
	w.say("%s commits row %d up to %s", p.source, len(p.rows), p.commit)
}

func (p *pipe) event(c *change, key []byte, nth int) *event {
	e := &event{source: p.source, id: ID{p.origin.Timeline, wal.Place{Commit: c.commit, Ordinal: c.seq}, nth}, kind: kinds[p.w.random.IntN(len(kinds))]}
	if nth > 0 {
		e.kind = good // a tombstone
	}
	text := e.String()
	e.want = record.Record{Topic: "orders", Key: key, Partition: record.AutoPartition, Row: c.row, Nth: uint8(nth)}
	if c.serial > 0 {
		e.want.Headers = append(e.want.Headers, record.Header{Key: "id", Value: fmt.Append(nil, c.serial)})
	}
	e.want.Headers = append(e.want.Headers, record.Header{Key: "event", Value: []byte(text)})
	if nth == 0 {
		e.want.Value = []byte(text)
	}
	if p.w.chance(5) {
		e.want.Headers = append(e.want.Headers, record.Header{Key: HeaderDone, Value: []byte(Sent)})
	}
	e.keyed = p.park && key != nil && e.kind != unmade
	e.late = key != nil && e.kind == unmade
	p.w.events[digestOf(&e.want)] = e
	p.w.all = append(p.w.all, e)
	return e
}

// start runs a new process from where the slot is.
func (p *pipe) start() {
	p.parked, p.flight, p.at, p.expired = nil, nil, p.slot, false
	p.seen = make([]int64, len(p.w.log))
	if p.park {
		p.parked = NewParked(MaxParked, p.slotName)
		p.parked.Source(p.source)
		p.follow(1 << 30)
	}
	p.w.say("%s starts at row %d", p.source, p.slot)
}

// follow reads records of the dead-letter topic.
func (p *pipe) follow(most int) {
	if p.parked == nil {
		return
	}
	for partition, log := range p.w.log {
		for _, m := range log {
			if m.Offset >= p.seen[partition] && most > 0 {
				p.parked.Read(m)
				p.seen[partition] = m.Offset + 1
				most--
			}
		}
	}
	if most > 0 {
		p.checkParked()
	}
}

// step reads the next row and sends what happens to its records.
func (p *pipe) step() {
	if p.at == len(p.rows) {
		return
	}
	c := p.rows[p.at]
	p.at++
	for _, e := range c.events {
		p.flight = append(p.flight, flying{p.send(e), e, p.at})
	}
}

func (p *pipe) send(e *event) record.Record {
	rec := e.want
	id := ID{p.origin.TimelineOf(e.id.Commit), e.id.Place, e.id.Nth}
	keyed := p.parked != nil && rec.Key != nil
	switch refused := e.kind != good && p.w.strict; {
	case e.kind == unmade:
		rec.Topic = ""
		return p.letter(e, &rec, "route", router.PartTopic)
	case keyed && p.parked.Follow(KeyGroup(rec.Topic, rec.Key), id):
		return p.letter(e, &rec, CauseParked)
	case refused && keyed:
		if err := p.parked.Park(KeyGroup(rec.Topic, rec.Key), id); err != nil {
			p.w.fault("park: %v", err)
		}
		fallthrough
	case refused:
		return p.letter(e, &rec, "record_too_large")
	}
	return rec
}

func (p *pipe) letter(e *event, rec *record.Record, reason string, missing ...string) record.Record {
	out := Wrap(rec, topic, Cause{Reason: reason, Err: errors.New("refused"), Source: p.source, Timeline: p.origin.TimelineOf(e.id.Commit), Missing: missing})
	for range max(0, int(e.kind-huge)+1) {
		Strip(&out)
	}
	if p.old {
		out.Headers = slices.DeleteFunc(out.Headers, func(h record.Header) bool { return h.Key == HeaderTimeline || h.Key == HeaderNth })
	}
	return out
}

// settle has the brokers take what was sent, from the oldest on.
func (p *pipe) settle(most int) {
	for ; most > 0 && len(p.flight) > 0; most-- {
		f := p.flight[0]
		p.flight = p.flight[1:]
		if f.rec.Topic == topic {
			f.e.made = true
			p.w.of[p.w.append(&f.rec)] = f.e
			p.w.say("%s sets %s aside", p.source, f.e)
		} else {
			p.w.land(&f.rec, p.source)
		}
		if len(p.flight) == 0 || p.flight[0].rows > f.rows {
			if p.w.chance(70) {
				p.slot = max(p.slot, f.rows)
			}
		}
	}
}

// crash ends the process or its session. What was sent may have arrived or not.
func (p *pipe) crash() {
	p.settle(p.w.random.IntN(len(p.flight) + 1))
	p.flight = nil
	if p.old || p.parked == nil || p.w.chance(50) {
		p.old = p.old && p.w.chance(50)
		p.start()
		return
	}
	p.w.say("%s reconnects at row %d", p.source, p.slot)
	p.at = p.slot
	p.follow(1 << 30)
}

// fork loses the newest rows of the database. Others take their positions and ids.
func (p *pipe) fork() {
	if len(p.rows) == 0 || p.aged {
		return // a letter of an earlier build does not say that its row was lost
	}
	p.settle(p.w.random.IntN(len(p.flight) + 1))
	p.flight = nil
	keep := p.w.random.IntN(len(p.rows))
	at := p.rows[keep].commit
	for keep > 0 && p.rows[keep-1].commit == at {
		keep--
	}
	for _, c := range p.rows[keep:] {
		if c.serial > 0 {
			p.serial = min(p.serial, c.serial-1)
		}
	}
	p.rows, p.commit = p.rows[:keep:keep], at
	forks := slices.DeleteFunc(slices.Clone(p.origin.Forks), func(f wal.Fork) bool { return f.At > at })
	p.origin.Forks = append(forks, wal.Fork{Timeline: p.origin.TimelineOf(at), At: at})
	p.origin.Timeline++
	p.slot = min(p.slot, keep)
	p.w.say("%s forks at %s", p.source, at)
	if p.parked == nil || p.w.chance(50) {
		p.start()
		return
	}
	p.parked.Gone(p.lost)
	p.at = p.slot
	p.follow(1 << 30)
}

// lost says that the history of the database has no such row.
func (p *pipe) lost(id ID) bool {
	return id.Timeline > 0 && p.origin.TimelineOf(id.Commit) != id.Timeline
}

// backlog is what the dead-letter topic says.
func (w *world) backlog(filter Filter) *Backlog {
	b := newBacklog()
	for _, log := range w.log {
		for _, m := range log {
			b.add(m, filter)
		}
	}
	return b
}

// expire takes letters off the beginning of a partition. Mostly such as are done with.
func (w *world) expire() {
	partition := w.random.IntN(len(w.log))
	any := w.chance(10)
	waiting := map[Location]*Entry{}
	for _, e := range w.backlog(Filter{}).Entries {
		if e.Done == "" {
			waiting[e.Location()] = e
		}
	}
	for n := w.random.IntN(10); n > 0 && len(w.log[partition]) > 0; n-- {
		m := w.log[partition][0]
		if slices.ContainsFunc(w.pipes, func(p *pipe) bool { return p.park && p.seen[partition] <= m.Offset }) {
			return // relays are not that late
		}
		if e := waiting[Location{m.Partition, m.Offset}]; e != nil {
			if !any {
				return
			}
			if lost := w.eventOf(e); lost != nil {
				w.dropped[lost] = true
			}
			for _, p := range w.pipes {
				p.expired = true
			}
		}
		w.log[partition] = w.log[partition][1:]
	}
}

// eventOf is what a letter is of.
func (w *world) eventOf(e *Entry) *event { return w.of[e.Location()] }

// errKilled ends a redrive at once.
var errKilled = errors.New("killed")

// operator is whoever re-drives: a process that may be killed at every step.
type operator struct {
	w     *world
	p     *pipe // whose configuration it has
	steps int   // until it is killed; negative: never
	calm  bool  // nothing but the redrive happens
	buf   []byte
	share bool // its Restore has a fault: records share memory
}

func (o *operator) point() {
	if o.steps--; o.steps == 0 {
		panic(errKilled) //nolint:forbidigo // it stands for kill -9, which runs nothing more
	}
}

// meanwhile lets the relays go on, and somebody else discard a letter.
func (o *operator) meanwhile() {
	if !o.calm && o.w.chance(3) {
		o.interfere()
	}
	for range o.w.random.IntN(3) {
		if !o.calm {
			o.w.relays()
		}
	}
}

func (o *operator) interfere() {
	letters := o.w.backlog(Filter{}).Entries
	if len(letters) == 0 {
		return
	}
	one := letters[o.w.random.IntN(len(letters))]
	if one.Source == o.p.source {
		o.w.say("somebody else discards %v", one.Location())
		other := &operator{w: o.w, p: o.p, steps: -1, calm: true}
		other.redrive(Filter{Partition: &one.Partition, Offset: &one.Offset}, true, false)
	}
}

func (o *operator) Send(_ context.Context, records []record.Record, done func(error)) {
	o.meanwhile()
	var failed []sink.Failure
	for i := range records {
		rec := &records[i]
		o.point()
		e := o.w.events[digestOf(rec)]
		switch {
		case failed != nil:
			failed = append(failed, sink.Failure{Index: i, Class: sink.Retry, Err: sink.ErrHalted})
			continue
		case rec.Topic != topic && o.w.strict && e != nil && e.kind != good && e.kind != unmade:
			failed = append(failed, sink.Failure{Index: i, Class: sink.Rejected, Reason: "record_too_large", Err: errors.New("too large")})
			continue
		case !o.calm && o.w.chance(5):
			failed = append(failed, sink.Failure{Index: i, Class: sink.Retry, Err: errors.New("network")})
			if o.w.chance(50) {
				continue
			}
		}
		if rec.Topic == topic {
			o.w.append(rec)
			o.w.say("redrive marks %s", rec.Headers)
		} else {
			o.w.land(rec, "redrive")
			if e != nil && e.source == o.p.source && o.p.lost(e.id) {
				o.w.fault("redrive sent %s, which its database lost", e)
			}
			if len(failed) == 0 {
				o.w.acked[digestOf(rec)] = true
			}
		}
		o.point()
	}
	if failed != nil {
		done(&sink.FailedError{Failures: failed})
		return
	}
	done(nil)
}

func (o *operator) Resume(context.Context)      {}
func (o *operator) Halt()                       {}
func (o *operator) Overhead(int) int            { return 0 }
func (o *operator) Reachable() error            { return nil }
func (o *operator) Ready(context.Context) error { return nil }
func (o *operator) Close(context.Context) error { return nil }

// restore reads the rows from the operator's table, whoever wrote the letter.
func (o *operator) restore(_ context.Context, l *Letter) iter.Seq2[Restored, error] {
	return func(yield func(Restored, error) bool) {
		o.point()
		rows := 0
		for _, c := range o.p.rows {
			if c.serial > 0 && l.EventID() == fmt.Sprint(c.serial) {
				rows++
				if !yield(o.made(c, l), nil) {
					return
				}
			}
		}
		switch {
		case rows == 0:
			yield(Restored{}, errors.New("no such row"))
		case rows > 1:
			o.w.say("%d rows have the event id of one letter", rows)
		}
	}
}

func (o *operator) made(c *change, l *Letter) Restored {
	if len(c.events) != 1 || l.Nth > 0 {
		return Restored{Err: errors.New("it makes several records")}
	}
	rec := c.events[0].want
	if o.share {
		o.buf = append(o.buf[:0], rec.Value...)
		rec.Value = o.buf
	}
	return Restored{Record: &rec, Payload: rec.Value}
}

// redrive runs the operator over what the filter selects, and returns what happened to it.
func (o *operator) redrive(filter Filter, discard, wholeKey bool) (outcomes []Outcome, killed bool) {
	defer func() {
		if failure := recover(); failure != nil {
			if failure != any(errKilled) {
				panic(failure) //nolint:forbidigo // not ours
			}
			killed = true
			o.w.say("redrive is killed")
		}
	}()
	backlog := o.w.backlog(filter)
	tasks := backlog.Whole()
	if discard && !wholeKey {
		tasks = backlog.Selected()
	}
	var wanted []*Entry
	if discard {
		wanted = o.intend(backlog, wholeKey)
	}
	o.meanwhile()
	r := &Redriver{
		Topic: topic, Sink: o, Discard: discard, Restore: o.restore, Lost: func(e *Entry) bool { return o.p.lost(e.ID) }, most: 1 + o.w.random.IntN(4),
		Own: func(source string) bool { return source == o.p.source },
		ReadLetters: func(_ context.Context, entries []*Entry) (map[Location]*Letter, error) {
			o.point()
			o.meanwhile()
			return o.w.fill(entries), nil
		},
	}
	err := r.Run(context.Background(), tasks, func(out Outcome) { outcomes = append(outcomes, out) })
	if err != nil {
		o.w.fault("redrive: %v", err)
	}
	if !slices.ContainsFunc(outcomes, func(out Outcome) bool { return out.Err != nil }) {
		o.discarded(wanted)
	}
	return outcomes, false
}

// discarded checks that nothing of what somebody gave up is left.
func (o *operator) discarded(wanted []*Entry) {
	left := o.w.states(func(string) bool { return true })
	for _, e := range wanted {
		if state, there := left[e.Location()]; there && state == "" {
			o.w.fault("%s was discarded, and its letter at %v waits", o.w.eventOf(e), e.Location())
		}
	}
}

// intend writes down what somebody wants to give up.
func (o *operator) intend(b *Backlog, wholeKey bool) (all []*Entry) {
	for _, e := range b.Entries {
		if e.Done != "" {
			continue
		}
		wanted := e.Matched
		found := o.w.eventOf(e)
		// Where a topic of the key is not known, all letters of the key belong together.
		open := e.Record.Key != nil && slices.ContainsFunc(b.Entries, func(other *Entry) bool {
			return other.Done == "" && other.Source == e.Source && other.Record.Topic == "" && other.Record.Key != nil && bytes.Equal(other.Record.Key, e.Record.Key)
		})
		for _, other := range b.Entries {
			together := other.Group == e.Group || open && other.Record.Key != nil && bytes.Equal(other.Record.Key, e.Record.Key)
			same := other.Source == e.Source && together && other.Done == "" && other.Matched
			wanted = wanted || same && (wholeKey || other.ID == e.ID && (e.Timeline > 0 || other.sum == e.sum))
		}
		if wanted {
			all = append(all, e)
			o.w.dropped[found] = true
		}
	}
	return all
}

// relays lets something happen to one of the relays.
func (w *world) relays() {
	p := w.pipes[w.random.IntN(len(w.pipes))]
	switch n := w.random.IntN(20); {
	case n < 5:
		p.insert()
	case n < 11:
		p.step()
	case n < 15:
		p.settle(1 + w.random.IntN(3))
	case n < 18:
		p.follow(1 + w.random.IntN(4))
	case n < 19:
		p.crash()
	}
}

func (w *world) tell() string {
	return strings.Join(w.story, "\n")
}
