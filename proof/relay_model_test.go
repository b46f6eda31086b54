package proof

import (
	"fmt"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

const (
	tableOID = 16384
	systemID = "7301"
)

// slot is one of the server's, with the relay that streams from it.
type slot struct {
	name      string
	shard     int
	exists    bool
	lost      bool
	confirmed wal.LSN
	saved     wal.LSN // on disk

	runs      bool    // the relay has it
	delivered wal.LSN // everything before is acknowledged, as this session knows
}

func (s *slot) crash(end wal.LSN) {
	s.runs = false
	s.saved = min(s.saved, end)
	s.confirmed = s.saved
}

// topic is the checkpoint topic.
type topic struct {
	positions map[string]placed
	before    map[string]stored.BeforeSlot
}

type placed struct {
	at       wal.LSN
	timeline int32
}

// delivered is how far a slot's newest record goes on the server's history.
func (w *world) deliveredBy(name string) (wal.LSN, bool) {
	p, found := w.topic.positions[name]
	if fork, left := w.line.Fork(p.timeline); found && left && !w.bug.movedTimeline {
		p.at = min(p.at, fork.At)
	}
	return p.at, found
}

// relay does a little for a slot.
func (w *world) relay(s *slot) {
	if !s.runs {
		w.startRelay(s)
		return
	}
	if w.chance(3) && !w.quiet {
		w.say("the relay of %s ends", s.name)
		s.runs = false
		return
	}
	for range w.random.IntN(5) {
		w.deliver(s)
	}
	if w.chance(60) {
		w.topic.positions[s.name] = placed{max(s.delivered, w.position(s.name)), w.line.Timeline}
	}
	if w.chance(60) {
		s.confirmed = max(s.confirmed, min(s.delivered, w.position(s.name)))
	}
}

func (w *world) position(name string) wal.LSN {
	at, _ := w.deliveredBy(name)
	return at
}

func (w *world) startRelay(s *slot) {
	if !s.exists || s.lost {
		return
	}
	limit, known := w.deliveredBy(s.name)
	if known && s.confirmed > limit {
		return // it refuses: somebody moved the slot
	}
	s.runs, s.delivered = true, s.confirmed
	w.topic.positions[s.name] = placed{max(limit, s.confirmed), w.line.Timeline}
}

// deliver takes the next transaction that the server sends.
func (w *world) deliver(s *slot) {
	for _, t := range w.commits {
		if t.end > w.flushed {
			break
		}
		if insertPosition(t.start) < s.delivered { // it was sent, or the server skips it
			continue
		}
		for _, v := range t.wrote {
			if e := v.event; !v.gone && e.by == t && e.shard == s.shard {
				w.publish(e)
			}
		}
		s.delivered = endPosition(t.end)
		return
	}
	var last uint64 // nothing is left: a keep-alive has the end of what was decoded
	for _, r := range w.records {
		if r.end <= w.flushed {
			last = max(last, r.end)
		}
	}
	s.delivered = max(s.delivered, endPosition(last))
}

func (w *world) publish(e *event) {
	switch {
	case e.sent || w.quiet || w.chance(85):
		e.sent = true
	case w.skips:
		e.skipped = true
	default:
		e.letter = true
		w.say("event %d becomes a letter", e.number)
	}
}

// redrive sends a letter.
func (w *world) redrive() {
	for _, e := range w.known() {
		if e.letter {
			e.sent, e.letter = true, false
			return
		}
	}
}

// known are the events that a transaction which is not lost has written.
func (w *world) known() (list []*event) {
	for _, t := range w.commits {
		for _, v := range t.wrote {
			if v.event.by == t {
				list = append(list, v.event)
			}
		}
	}
	return list
}

// setBefore writes what lies before a slot.
func (w *world) setBefore(s *slot, before stored.Before, point wal.LSN) {
	w.say("before %s: %s", s.name, before)
	w.topic.before[s.name] = stored.BeforeSlot{
		System: systemID, Timeline: w.line.Timeline, Slot: s.name, OID: tableOID, Before: before, Point: point, Positions: stored.Promises, At: time.Unix(0, 0),
	}
}

// make makes a slot, which waits for every open transaction.
func (w *world) make(s *slot) wal.LSN {
	w.write(0, nil)
	w.flushed = w.inserted
	s.exists, s.lost, s.runs = true, false, false
	s.confirmed = endPosition(w.inserted)
	s.saved = s.confirmed
	return s.confirmed
}

// setup makes a slot that is missing, step by step, as `cdc-relay setup --accept-gap` does.
func (w *world) setup(s *slot) {
	if len(w.orders) > 0 || s.exists && !s.lost {
		return
	}
	w.orders = w.steps(s)
}

// steps are those of setup for one slot.
func (w *world) steps(s *slot) []func() bool {
	w.say("setup makes %s", s.name)
	var point wal.LSN
	unknown := func() bool { w.setBefore(s, stored.BeforeUnknown, point); return true }
	position := func() bool { w.topic.positions[s.name] = placed{point, w.line.Timeline}; return true }
	if w.bug.forgetsFirst {
		unknown, position = position, unknown
	}
	steps := []func() bool{
		func() bool { s.exists, s.runs = false, false; return true },
		w.afterOpen(func() { point = w.make(s) }),
		unknown, position,
		w.afterOpen(func() {
			if s.exists && !w.anyVisible() {
				w.setBefore(s, stored.BeforeNone, point)
			}
		}),
	}
	if w.bug.looksAtOnce {
		steps[4] = func() bool {
			if s.exists && !w.anyVisible() {
				w.setBefore(s, stored.BeforeNone, point)
			}
			return true
		}
	}
	return steps
}

// afterOpen does something once the transactions have ended that are open at the first try.
func (w *world) afterOpen(do func()) func() bool {
	var awaited []*tx
	first := true
	return func() bool {
		if first {
			first, awaited = false, slices.Clone(w.open)
		}
		if slices.ContainsFunc(awaited, func(t *tx) bool { return slices.Contains(w.open, t) }) {
			return false
		}
		do()
		return true
	}
}

// acceptGap lets a relay go on from where a slot stands.
func (w *world) acceptGap(s *slot) {
	limit, known := w.deliveredBy(s.name)
	if len(w.orders) > 0 || !s.exists || s.lost || s.runs || !known || s.confirmed <= limit {
		return
	}
	w.say("the gap before %s is accepted", s.name)
	unknown := func() bool { w.setBefore(s, stored.BeforeUnknown, s.confirmed); return true }
	forget := func() bool { delete(w.topic.positions, s.name); return true }
	if w.bug.forgetsFirst {
		unknown, forget = forget, unknown
	}
	w.orders = []func() bool{unknown, forget}
}

func (w *world) anyVisible() bool {
	for _, v := range w.heap {
		if v.seen() {
			return true
		}
	}
	return false
}

// makeGood sends what lies before a slot, while nothing commits.
func (w *world) makeGood(s *slot) {
	if len(w.open) > 0 || len(w.orders) > 0 || !s.exists || s.lost || w.topic.before[s.name].Before.Known() {
		return
	}
	if limit, known := w.deliveredBy(s.name); !known || s.confirmed > limit {
		return
	}
	for _, v := range w.heap {
		if v.seen() && v.event.shard == s.shard {
			v.event.sent = true
		}
	}
	w.setBefore(s, stored.BeforeSent, s.confirmed)
}

func (w *world) byHand(s *slot) {
	w.orders = []func() bool{w.afterOpen(func() {
		if !s.exists {
			w.say("%s is made by hand", s.name)
			w.make(s)
		}
	})}
}

// trouble is what goes wrong with slots, and what operators do about it.
func (w *world) trouble() {
	s := w.slots[w.random.IntN(len(w.slots))]
	switch w.random.IntN(16) {
	case 0:
		w.say("%s is lost", s.name)
		s.lost, s.runs = true, false
	case 1:
		if s.exists && !s.lost && !s.runs {
			w.say("%s is moved", s.name)
			s.confirmed = max(s.confirmed, endPosition(w.flushed))
		}
	case 2:
		if !s.runs {
			w.say("%s is dropped", s.name)
			s.exists = false
		}
	case 3:
		if !s.exists && len(w.orders) == 0 {
			w.byHand(s)
		}
	case 4, 5, 6, 7:
		w.setup(s)
	case 8, 9, 10:
		w.acceptGap(s)
	default:
		w.makeGood(s)
	}
}

// failOver goes on on a standby, which may have less.
func (w *world) failOver() {
	keep := w.flushed
	if n := len(w.records); n > 0 && w.chance(50) {
		keep = max(w.forked, min(keep, w.records[max(0, n-1-w.random.IntN(6))].end))
	}
	w.say("failover at %s", endPosition(keep))
	w.crash(keep)
	w.line.Forks = append(slices.Clip(w.line.Forks), wal.Fork{Timeline: w.line.Timeline, At: endPosition(w.inserted)})
	w.line.Timeline++
	w.forked = w.inserted
	synced := w.chance(50)
	for _, s := range w.slots {
		s.exists = s.exists && synced
		if !s.exists && len(w.orders) == 0 && w.chance(70) {
			w.byHand(s)
		}
	}
}

func (w *world) accuse(format string, args ...any) {
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}
