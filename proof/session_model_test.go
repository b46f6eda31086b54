package proof

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// bug is what a proof could do wrong.
type bug struct {
	fenceBeforeRows    bool // L is read before the rows
	fenceOfOthers      bool // L of the first batch is that of those which are named while it waits
	flushPosition      bool // L is the flush position
	rawPosition        bool // L points behind the header of a page that is not written
	shortHeaderOnly    bool // the header of a segment's first page is not taken off
	firstSlotOnly      bool // the other shards' slots are not waited for
	placeOnly          bool // rows are named by ctid alone
	anyFile            bool // nobody asks whether the table was written anew
	keepsBatch         bool // a batch outlives its connection
	judgesXmin         bool // rows are chosen by pg_visible_in_snapshot of their xmin
	lettersBeforeFence bool // dead letters are read before the slots are past L
	anyLetterID        bool // letters without an id hold nothing
	believesSlots      bool // nobody compares slots with the checkpoint topic
	believesFirstLook  bool // they are compared before the wait, not after it
	ignoresBefore      bool // nobody asks what lies before the slots
	beforeReadFirst    bool // what lies before the slots is read before their positions
	forgetsFirst       bool // positions are written, or forgotten, before it is written that nothing is known
	noNudge            bool // nobody moves a flush position that stands still
	ignoresSkipped     bool // rows that were left out count as delivered
	looksAtOnce        bool // after a slot is made, what commits at that moment is not waited for
	movedTimeline      bool // what a slot confirmed on a timeline that the server left counts whole

	early bool // one of the first seeds finds it
}

var bugs = map[string]bug{
	"L is read before the rows": {fenceBeforeRows: true},
	"L of the first batch is that of those which are named while it waits": {fenceOfOthers: true, early: true},
	"L is the flush position":                                                         {flushPosition: true, early: true},
	"L points behind the header of a page that is not written":                        {rawPosition: true, early: true},
	"the header of a segment's first page is not taken off":                           {shortHeaderOnly: true, early: true},
	"the other shards' slots are not waited for":                                      {firstSlotOnly: true, early: true},
	"rows are named by ctid alone":                                                    {placeOnly: true},
	"nobody asks whether the table was written anew":                                  {anyFile: true},
	"a batch outlives its connection":                                                 {keepsBatch: true},
	"rows are chosen by pg_visible_in_snapshot of their xmin":                         {judgesXmin: true},
	"dead letters are read before the slots are past L":                               {lettersBeforeFence: true, early: true},
	"letters without an id hold nothing":                                              {anyLetterID: true, early: true},
	"nobody compares slots with the checkpoint topic":                                 {believesSlots: true, early: true},
	"they are compared before the wait, not after it":                                 {believesFirstLook: true, early: true},
	"nobody asks what lies before the slots":                                          {ignoresBefore: true, early: true},
	"what lies before the slots is read before their positions":                       {beforeReadFirst: true},
	"positions are written, or forgotten, before it is written that nothing is known": {forgetsFirst: true},
	"nobody moves a flush position that stands still":                                 {noNudge: true, early: true},
	"rows that were left out count as delivered":                                      {ignoresSkipped: true, early: true},
	"after a slot is made, what commits at that moment is not waited for":             {looksAtOnce: true},
	"what a slot confirmed on a timeline that the server left counts whole":           {movedTimeline: true},
}

var errGone = errors.New("the connection is lost")

// connection is a Session with the simulated server.
type connection struct {
	w      *world
	number int
	line   wal.Lineage

	behind   TID     // of the last page
	early    wal.LSN // read before the rows
	first    wal.LSN // of the first batch since something was acted on
	snapshot snapshot
	letters  *Waiting
	looked   error // of a look at the slots before the wait
}

// snapshot is the server's, of numbers alone.
type snapshot struct {
	max      uint32
	progress []uint32
}

func (s snapshot) sees(xid uint32) bool { return xid < s.max && !slices.Contains(s.progress, xid) }

func (w *world) connect() *connection {
	return &connection{w: w, number: w.connections, line: w.line.Lineage()}
}

// while lets the world go on.
func (w *world) while(most int) {
	if w.storm {
		most *= 3
	}
	for range w.random.IntN(most + 1) {
		w.step()
	}
}

// live lets the world go on, and reports whether the connection outlived that.
func (c *connection) live(most int) error {
	c.w.while(most)
	if c.w.bug.keepsBatch {
		return nil
	}
	if c.number != c.w.connections {
		return errGone
	}
	return nil
}

func (c *connection) Lineage() wal.Lineage {
	if c.w.bug.keepsBatch {
		return c.w.line.Lineage()
	}
	return c.line
}

func (c *connection) fence() wal.LSN {
	inserted := insertPosition(c.w.inserted)
	switch {
	case c.w.bug.rawPosition:
		return inserted
	case c.w.bug.shortHeaderOnly:
		return wal.BeforePageHeader(inserted, 1<<40)
	case c.w.bug.flushPosition:
		return endPosition(c.w.flushed)
	}
	return wal.BeforePageHeader(inserted, segmentSize)
}

func (c *connection) Name(context.Context) ([]Row, wal.LSN, error) {
	rows, err := c.name()
	if err != nil || len(rows) == 0 {
		return nil, 0, err
	}
	fence, err := c.fenced()
	return rows, fence, err
}

func (c *connection) name() ([]Row, error) {
	c.early = c.fence()
	c.letters, c.looked = nil, nil
	w := c.w
	if err := c.live(8); err != nil {
		return nil, err
	}
	if w.bug.lettersBeforeFence {
		waiting := w.waiting()
		c.letters = &waiting
	}
	if w.bug.believesFirstLook {
		kept := w.kept()
		for _, s := range w.slots {
			if s.confirmed > kept.Delivered[s.name] {
				c.looked = refuse(fault.ReasonSlotMoved, s.name, "", "at the first look")
			}
		}
	}
	c.snapshot = snapshot{max: w.completed + 1}
	for _, t := range w.open {
		c.snapshot.progress = append(c.snapshot.progress, t.xids[0])
	}
	rows := c.page()
	if len(rows) == 0 && c.behind != (TID{}) { // from the beginning
		c.behind = TID{}
		rows = c.page()
	}
	return rows, nil
}

// page are some rows behind those of the page before: held rows do not fill every page.
func (c *connection) page() (rows []Row) {
	for _, at := range c.w.places() {
		if v := c.w.heap[at]; v.seen() && len(rows) < 8 && compare(at, c.behind) > 0 {
			rows = append(rows, Row{TID: at, XMin: v.xmin, File: c.w.file, ID: v.event.id, NoID: v.event.id == ""})
		}
	}
	if len(rows) > 0 {
		c.behind = rows[len(rows)-1].TID
	}
	return rows
}

func compare(a, b TID) int { return cmp.Or(cmp.Compare(a.Block, b.Block), cmp.Compare(a.Item, b.Item)) }

func (w *world) places() []TID {
	return slices.SortedFunc(maps.Keys(w.heap), compare)
}

// fenced reads the fence after whatever happens behind the naming of rows.
func (c *connection) fenced() (wal.LSN, error) {
	err := c.live(4)
	if c.w.bug.fenceBeforeRows {
		return c.early, err
	}
	if c.w.bug.fenceOfOthers {
		c.first = cmp.Or(c.first, c.fence())
		return c.first, err
	}
	return c.fence(), err
}

func (c *connection) Slots(_ context.Context, names []string) (slots []Slot, err error) {
	if err := c.live(4); err != nil {
		return nil, err
	}
	for _, s := range c.w.slots {
		if !slices.Contains(names, s.name) || !s.exists {
			continue
		}
		shown := Slot{Name: s.name, Confirmed: s.confirmed, Active: s.runs}
		if s.lost {
			shown.Lost = "wal_removed"
		}
		slots = append(slots, shown)
	}
	return slots, nil
}

func (c *connection) Fence(context.Context) (wal.LSN, error) {
	err := c.live(2)
	return wal.BeforePageHeader(insertPosition(c.w.inserted), segmentSize), err
}

func (c *connection) Nudge(context.Context) error {
	if err := c.live(2); err != nil || c.w.bug.noNudge {
		return err
	}
	w := c.w
	if w.still {
		w.accuse("a server that has nothing to flush is nudged")
	}
	w.async = w.write(w.next, nil).end
	w.completed = w.next
	w.next++
	return nil
}

func (c *connection) Act(_ context.Context, rows []Row) (int, error) {
	if err := c.live(4); err != nil {
		return 0, err
	}
	w := c.w
	c.first = 0
	job := w.begin()
	job.async = true
	for _, at := range w.places() {
		v := w.heap[at]
		if !v.seen() || v.killer != nil && v.killer.stage != aborted {
			continue // locked rows are skipped
		}
		named := slices.ContainsFunc(rows, func(r Row) bool { return r.TID == at && (w.bug.anyFile || r.File == w.file) }) &&
			(w.bug.placeOnly || slices.ContainsFunc(rows, func(r Row) bool { return r.XMin == v.xmin }))
		if w.bug.judgesXmin {
			named = c.snapshot.sees(v.xmin) && !v.event.letter
		}
		if named {
			w.judge(v)
			w.kill(job, v)
		}
	}
	w.acted += len(job.killed)
	w.still = false
	if len(job.killed) == 0 {
		w.open = slices.DeleteFunc(w.open, func(t *tx) bool { return t == job })
		return 0, nil
	}
	for job.stage != visible {
		w.advance(job)
	}
	return len(job.killed), nil
}

// judge is the oracle: whatever is acted on has to be delivered.
func (w *world) judge(v *version) {
	switch e := v.event; {
	case e.letter:
		w.accuse("event %d, which waits as a dead letter, was acted on", e.number)
	case e.skipped && !e.sent:
		w.accuse("event %d, which was left out, was acted on", e.number)
	case !e.sent:
		w.accuse("event %d of shard %d, transaction %d, was acted on and not delivered", e.number, e.shard, v.xmin)
	}
}

// brokers are the Records of the simulated topics.
type brokers struct {
	c **connection
	w *world
}

func (w *world) kept() *Kept {
	kept := &Kept{Here: w.line, Delivered: map[string]wal.LSN{}, Before: maps.Clone(w.topic.before)}
	for _, s := range w.slots {
		if at, known := w.deliveredBy(s.name); known {
			kept.Delivered[s.name] = at
		}
	}
	return kept
}

func (b brokers) Kept(_ context.Context, slots []Slot) (*Kept, error) {
	w := b.w
	early := w.kept()
	w.while(5)
	kept := w.kept()
	if w.bug.beforeReadFirst {
		kept.Before = early.Before
	}
	if w.bug.believesSlots || w.bug.believesFirstLook {
		if err := (*b.c).looked; err != nil {
			return nil, err
		}
		for _, s := range slots {
			kept.Delivered[s.Name] = s.Confirmed
		}
	}
	for name, rec := range kept.Before {
		if w.bug.ignoresBefore {
			rec.Before = stored.BeforeNone
		}
		kept.Before[name] = rec
	}
	return kept, nil
}

func (w *world) waiting() Waiting {
	waiting := Waiting{IDs: map[string]struct{}{}}
	for _, e := range w.known() {
		switch {
		case !e.letter:
		case e.id == "":
			waiting.NoID = !w.bug.anyLetterID
		default:
			waiting.IDs[e.id] = struct{}{}
		}
	}
	return waiting
}

func (b brokers) Waiting(context.Context) (Waiting, error) {
	b.w.while(4)
	if early := (*b.c).letters; early != nil {
		return *early, nil
	}
	return b.w.waiting(), nil
}

func reasonOf(err error) string {
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return e.Reason
	}
	return ""
}
