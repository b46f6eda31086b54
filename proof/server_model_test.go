package proof

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// world is a simulated server with one table, its writers, slots, relays, brokers and
// operators. One step of one of them happens at a time.
type world struct {
	random *rand.Rand
	loud   bool
	story  []string
	faults []string // what the oracle found
	bug    bug

	// The server. Positions are counted in bytes of records.
	inserted, flushed, async uint64 // async: behind the newest commit that did not wait for the disk
	records                  []record
	connections              int // number of the crash or failover since which they live
	line                     wal.Origin
	forked                   uint64 // where the newest timeline begins

	next, completed uint32 // transaction ids: the next one, the newest that ended
	open            []*tx  // begun and not ended, prepared ones too
	commits         []*tx  // by the place of the record in the WAL
	heap            map[TID]*version
	file            uint32 // that has the heap

	slots  []*slot
	topic  topic
	orders []func() bool // steps of an operator at work; false: to be tried again
	events int
	skips  bool // relay.on_reject: skip
	storm  bool // the server and the slots have much trouble
	shaky  bool // the server crashes often, and commits do not wait for the disk
	still  bool // the WAL is on disk and delivered up to where it ends, and nothing was acted on since
	quiet  bool
	acted  int
}

// record is one of the WAL, of any kind.
type record struct {
	start, end uint64
	xid        uint32
	tx         *tx // whose commit it is
}

type stage int

const (
	writing stage = iota
	prepared
	recorded // the commit record is in the WAL
	durable  // and flushed, or does not wait for that
	visible  // to others
	aborted
)

type tx struct {
	xids   []uint32 // the top-level one, then that of each savepoint that is open; 0: none yet
	depths [][]*version
	wrote  []*version
	killed []*version
	kept   uint64 // byte behind the PREPARE record
	stage  stage
	async  bool
	waits  bool // for a synchronous standby, before others see it

	start, end uint64 // of the commit record
}

// event is a row as the stream has it once; its versions share it.
type event struct {
	number int
	id     string // empty: NULL
	shard  int
	by     *tx

	sent    bool // the sink has it
	letter  bool // a dead letter waits
	skipped bool
}

type version struct {
	TID
	xmin   uint32
	event  *event
	by     *tx
	killer *tx // that deleted or updated it, if it commits
	gone   bool
}

func (v *version) seen() bool {
	return !v.gone && v.by.stage == visible && (v.killer == nil || v.killer.stage != visible)
}

func (w *world) say(format string, args ...any) {
	if w.loud {
		w.story = append(w.story, fmt.Sprintf(format, args...))
	}
}

func (w *world) chance(percent int) bool { return w.random.IntN(100) < percent }

// write puts a record into the WAL and returns its bounds.
func (w *world) write(xid uint32, by *tx) record {
	size := uint64(24 + 8*w.random.IntN(60))
	if w.chance(15) { // to the end of the page
		if left := pageLeft(w.inserted); left >= 24 && left < 6000 {
			size = left
		}
	}
	r := record{w.inserted, w.inserted + size, xid, by}
	w.records = append(w.records, r)
	w.inserted = r.end
	return r
}

// xid gives a transaction, or its innermost savepoint, its number.
func (w *world) xid(t *tx) uint32 {
	for i := range t.xids { // those outside first, as the server does
		if t.xids[i] == 0 {
			t.xids[i] = w.next
			w.next++
		}
	}
	return t.xids[len(t.xids)-1]
}

func (w *world) begin() *tx {
	t := &tx{xids: []uint32{0}, depths: [][]*version{nil}, async: w.shaky || w.chance(50), waits: w.chance(15)}
	w.open = append(w.open, t)
	return t
}

// place finds a free one, a used one first.
func (w *world) place() TID {
	for block := uint32(0); ; block++ {
		for item := uint16(1); item <= 3; item++ {
			if at := (TID{block, item}); w.heap[at] == nil {
				return at
			}
		}
	}
}

func (w *world) insert(t *tx, e *event) *version {
	xid := w.xid(t)
	w.write(xid, nil)
	v := &version{TID: w.place(), xmin: xid, event: e, by: t}
	w.heap[v.TID] = v
	t.wrote = append(t.wrote, v)
	top := len(t.depths) - 1
	t.depths[top] = append(t.depths[top], v)
	return v
}

func (w *world) newEvent(t *tx) *event {
	w.events++
	e := &event{number: w.events, id: fmt.Sprintf("e%d", w.events), shard: w.random.IntN(len(w.slots)), by: t}
	if w.chance(10) {
		e.id = ""
	}
	return e
}

// kill deletes a version of the table; nobody else may be at it.
func (w *world) kill(t *tx, v *version) {
	w.write(w.xid(t), nil)
	v.killer = t
	t.killed = append(t.killed, v)
}

func (w *world) savepoint(t *tx) {
	t.xids, t.depths = append(t.xids, 0), append(t.depths, nil)
}

// release keeps what the innermost savepoint wrote; undo takes it back.
func (w *world) release(t *tx) {
	top := len(t.depths) - 1
	t.depths[top-1] = append(t.depths[top-1], t.depths[top]...)
	t.xids, t.depths = t.xids[:top], t.depths[:top]
}

func (w *world) undo(t *tx) {
	top := len(t.depths) - 1
	for _, v := range t.depths[top] {
		v.gone = true
	}
	t.xids, t.depths = t.xids[:top], t.depths[:top]
}

// advance brings a transaction that ends one step on.
func (w *world) advance(t *tx) {
	switch t.stage {
	case writing, prepared:
		r := w.write(t.xids[0], t)
		t.start, t.end = r.start, r.end
		t.stage = recorded
		w.commits = append(w.commits, t)
	case recorded:
		if t.async {
			w.async = max(w.async, t.end)
		} else {
			w.flushed = max(w.flushed, t.end)
		}
		t.stage = durable
	case durable:
		if t.waits && !w.chance(8) {
			return
		}
		t.stage = visible
		w.ended(t)
	}
}

func (w *world) ended(t *tx) {
	w.completed = max(w.completed, slices.Max(t.xids))
	w.open = slices.DeleteFunc(w.open, func(o *tx) bool { return o == t })
}

func (w *world) abort(t *tx) {
	w.write(t.xids[0], nil) // nobody flushes it
	w.discard(t)
	w.ended(t)
}

func (w *world) discard(t *tx) {
	t.stage = aborted
	for _, v := range t.wrote {
		v.gone = true
	}
	for _, v := range t.killed {
		v.killer = nil
	}
}

func (w *world) prepare(t *tx) {
	r := w.write(t.xids[0], nil)
	w.flushed = max(w.flushed, r.end)
	t.kept, t.stage = r.end, prepared
}

// vacuum frees the places of versions that nobody can see any more, not even after a crash.
func (w *world) vacuum() {
	maps.DeleteFunc(w.heap, func(_ TID, v *version) bool {
		return v.gone || v.killer != nil && v.killer.stage == visible && v.killer.end <= w.flushed
	})
}

// rewrite is VACUUM FULL: versions keep their transactions and get other places. It waits for
// whoever has written, and nobody waits for it here.
func (w *world) rewrite() {
	if slices.ContainsFunc(w.open, func(t *tx) bool { return t.xids[0] != 0 }) {
		return
	}
	w.vacuum()
	places, former := w.places(), w.heap
	w.heap, w.file = map[TID]*version{}, w.file+1
	for _, at := range places {
		v := former[at]
		v.TID = w.place()
		w.heap[v.TID] = v
	}
	w.flushed = w.write(w.next, nil).end
	w.completed = w.next
	w.next++
}

// background is the WAL writer: whole pages, else what was committed asynchronously.
func (w *world) background() {
	page := w.flushed
	for next := page + pageLeft(page); next <= w.inserted; next += pageLeft(next) {
		page = next
	}
	if page == w.flushed {
		page = max(page, w.async)
	}
	w.flushed = page
}

// switchSegment begins a new segment, and flushes what was before.
func (w *world) switchSegment() {
	w.write(0, nil)
	if left := w.inserted % segmentUsable; left > 0 {
		w.inserted += segmentUsable - left
		w.records[len(w.records)-1].end = w.inserted
	}
	w.flushed = w.inserted
}

// crash loses what was not flushed, and the numbers of its transactions. keep is how much of
// the flushed WAL there still is: all of it, or less on a standby.
func (w *world) crash(keep uint64) {
	w.connections++
	survived := uint64(0)
	w.next = 3
	w.records = slices.DeleteFunc(w.records, func(r record) bool {
		if r.end > keep {
			return true
		}
		survived = max(survived, r.end)
		w.next = max(w.next, r.xid+1)
		return false
	})
	w.inserted, w.flushed, w.async, w.completed = survived, survived, 0, w.next-1
	all := w.open
	for _, t := range w.commits {
		if t.stage == visible && t.end > survived {
			all = append(all, t)
		}
	}
	w.open = nil
	w.commits = slices.DeleteFunc(w.commits, func(t *tx) bool { return t.end > survived })
	for _, t := range all {
		switch {
		case t.stage >= recorded && t.end <= survived:
			t.stage = visible
		case t.kept > 0 && t.kept <= survived:
			t.stage = prepared
			w.open = append(w.open, t)
		default:
			w.discard(t)
		}
	}
	maps.DeleteFunc(w.heap, func(_ TID, v *version) bool { return v.gone }) // they were in memory
	for _, s := range w.slots {
		s.crash(endPosition(survived))
	}
}
