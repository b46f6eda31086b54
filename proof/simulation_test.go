package proof

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

var (
	seedFlag  = flag.Uint64("proof.seed", 0, "the one `seed` that the simulation runs")
	seedsFlag = flag.Uint64("proof.seeds", 10000, "how many `seeds` the simulation runs")
)

// What is acted on is delivered, and what is delivered is acted on in the end, whatever
// writers, relays, operators and the server do meanwhile.
func TestSimulation_OnlyDeliveredRowsAreActedOn(t *testing.T) {
	first, last := uint64(1), *seedsFlag
	if *seedFlag > 0 {
		first, last = *seedFlag, *seedFlag
	} else if testing.Short() {
		last = min(last, 1000)
	}
	var all tally
	for seed := first; seed <= last; seed++ {
		w := run(t, seed, bug{}, *seedFlag > 0, &all)
		if w.faults != nil {
			t.Fatalf("seed %d: %s\n%s", seed, strings.Join(w.faults, "\n"), strings.Join(w.story, "\n"))
		}
	}
	t.Logf("%+v", all)
	if *seedFlag == 0 && last >= 1000 && !all.everything() {
		t.Errorf("the simulation does not come to everything: %+v", all)
	}
}

// Each of these is a mistake that a proof may have: the simulation finds it. With -short
// it looks for those that the first seeds find.
func TestSimulation_FindsPlantedBugs(t *testing.T) {
	const early, all = 250, 40000
	for name, planted := range bugs {
		last := uint64(all)
		if planted.early {
			last = early
		} else if testing.Short() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= last; seed++ {
				if w := run(t, seed, planted, false, &tally{}); w.faults != nil {
					t.Logf("%s: seed %d: %s", name, seed, w.faults[0])
					return
				}
			}
			t.Errorf("none of %d seeds finds that %s", last, name)
		})
	}
}

// tally is what the seeds came to.
type tally struct {
	Named, Held, Acted, Refused map[string]int
}

func (a *tally) add(w *world, out Outcome, err error) {
	if a.Named == nil {
		a.Named, a.Held, a.Acted, a.Refused = map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
	}
	phase := "busy"
	if w.quiet {
		phase = "quiet"
	}
	a.Named[phase] += out.Named
	a.Held[phase] += out.Held
	a.Acted[phase] += out.Acted
	switch reason := reasonOf(err); {
	case errors.Is(err, errGone):
		a.Refused["connection lost"]++
	case err != nil:
		a.Refused[reason]++
	}
}

func (a *tally) everything() bool {
	for _, reason := range []string{
		"connection lost", fault.ReasonBeforeSlotUnknown, fault.ReasonSlotBehind, fault.ReasonSlotMoved, fault.ReasonRowsSkipped, fault.ReasonSlotMissing, fault.ReasonSlotLost,
	} {
		if a.Refused[reason] == 0 {
			return false
		}
	}
	return min(a.Acted["busy"], a.Acted["quiet"], a.Held["busy"], a.Held["quiet"]) > 0
}

func run(t *testing.T, seed uint64, planted bug, loud bool, all *tally) *world {
	w := &world{
		random: rand.New(rand.NewPCG(seed, 1)), loud: loud, bug: planted,
		next: 3, completed: 2, line: wal.Origin{SystemID: systemID, Timeline: 1}, heap: map[TID]*version{},
		topic: topic{positions: map[string]placed{}, before: map[string]stored.BeforeSlot{}},
	}
	synctest.Test(t, func(t *testing.T) { w.live(t, int(seed%4)*8, all) })
	return w
}

// live is one seed: some time in which everything happens, and then a quiet end. Up to ahead rows
// wait for the slots, and those of one page.
func (w *world) live(t *testing.T, ahead int, all *tally) {
	w.found()
	cfg := Config{Table: tableOID, Positions: stored.Promises, Wait: 3 * time.Second, NudgeAfter: time.Second, Skipped: w.skips && !w.bug.ignoresSkipped}
	for _, s := range w.slots {
		if len(cfg.Slots) == 0 || !w.bug.firstSlotOnly {
			cfg.Slots = append(cfg.Slots, s.name)
		}
	}
	c := w.connect()
	prover := New(cfg, brokers{&c, w})
	cfg.Wait = 2 * time.Minute
	patient := New(cfg, brokers{&c, w})
	var passes *Passes
	quiet := w.quiet
	pass := func() (Outcome, error) {
		if c.number != w.connections && !w.bug.keepsBatch {
			c, passes = w.connect(), nil
		}
		if passes == nil || quiet != w.quiet {
			now := prover
			if quiet = w.quiet; quiet {
				now = patient
			}
			passes = now.Passes(c, ahead)
		}
		out, err := passes.Next(t.Context())
		if err != nil && !w.bug.keepsBatch {
			passes = nil
		}
		w.say("pass: %+v, %v", out, err)
		all.add(w, out, err)
		return out, err
	}
	for n := 6 + w.random.IntN(14); n > 0 && w.faults == nil; n-- {
		for range w.random.IntN(30) {
			w.step()
		}
		pass()
	}
	if w.faults == nil {
		w.calm()
		w.end(pass)
	}
}

// found is the beginning: a table, perhaps with rows, and its slots.
func (w *world) found() {
	w.skips, w.storm, w.shaky = w.chance(5), w.chance(25), w.chance(15)
	for i := range 1 + w.random.IntN(3) {
		w.slots = append(w.slots, &slot{name: fmt.Sprintf("slot_%d", i), shard: i})
	}
	if w.chance(40) { // writers are there already
		for _, s := range w.slots {
			w.orders = append(w.orders, w.steps(s)...)
		}
		return
	}
	before := stored.BeforeNone
	if w.chance(15) {
		before = stored.BeforeUnknown
		old := w.begin()
		for range 3 {
			w.insert(old, w.newEvent(old))
		}
		for old.stage != visible {
			w.advance(old)
		}
	}
	point := w.make(w.slots[0])
	for _, s := range w.slots {
		s.exists, s.confirmed, s.saved = true, point, point
		w.topic.positions[s.name] = placed{point, 1}
		w.setBefore(s, before, point)
	}
}

// calm ends what is open and repairs what can be repaired, or not.
func (w *world) calm() {
	w.quiet = true
	for len(w.open) > 0 {
		t := w.open[0]
		switch {
		case t.xids[0] == 0:
			w.open = w.open[1:]
		case t.stage == writing && w.chance(50):
			w.abort(t)
		default:
			w.advance(t)
		}
	}
	for len(w.orders) > 0 {
		w.step()
	}
	if w.chance(40) {
		return
	}
	for _, s := range w.slots {
		for range 2 { // make it, send what lies before it
			w.setup(s)
			for len(w.orders) > 0 {
				w.step()
			}
			w.acceptGap(s)
			for len(w.orders) > 0 {
				w.step()
			}
			for range 30 {
				w.relay(s)
			}
			w.makeGood(s)
		}
	}
	switch {
	case w.chance(50):
		w.write(w.next, nil) // of a transaction that is rolled back: nobody flushes it
		w.next++
	case w.chance(50):
		w.standStill()
	}
}

// standStill has everything on disk and delivered, at the beginning of a page.
func (w *world) standStill() {
	if w.chance(50) {
		w.switchSegment()
	} else {
		w.records = append(w.records, record{w.inserted, w.inserted + pageLeft(w.inserted), 0, nil})
		w.inserted += pageLeft(w.inserted)
		w.flushed = w.inserted
	}
	for range 200 {
		for _, s := range w.slots {
			w.relay(s)
		}
	}
	w.still = !slices.ContainsFunc(w.slots, func(s *slot) bool { return s.confirmed != endPosition(w.inserted) })
}

// end checks that everything goes in the end, or the reason why not.
func (w *world) end(pass func() (Outcome, error)) {
	var err error
	for refused, n := 0, 0; refused < 4 && n < 2*w.events+20; n++ {
		_, err = pass()
		switch {
		case w.faults != nil, err == nil && !w.due():
			return
		case err != nil:
			refused++
		}
	}
	reason := reasonOf(err)
	ok := false
	switch reason {
	case fault.ReasonRowsSkipped:
		ok = w.skips
	case fault.ReasonSlotMissing, fault.ReasonSlotLost, fault.ReasonSlotMoved, fault.ReasonBeforeSlotUnknown:
		ok = slices.ContainsFunc(w.slots, w.broken)
	case fault.ReasonSlotBehind:
		ok = slices.ContainsFunc(w.slots, func(s *slot) bool { return !s.runs && w.broken(s) })
	}
	if !ok {
		w.accuse("rows are delivered and stay: %v", err)
	}
}

// broken says of a slot that nothing may be done.
func (w *world) broken(s *slot) bool {
	limit, known := w.deliveredBy(s.name)
	before, found := w.topic.before[s.name]
	fork, left := w.line.Fork(before.Timeline)
	return !s.exists || s.lost || !known || s.confirmed > limit || !found || !before.Before.Known() || left && fork.At < before.Point
}

// due reports whether rows are left that nothing holds.
func (w *world) due() bool {
	waiting := w.waiting()
	for _, v := range w.heap {
		row := Row{ID: v.event.id, NoID: v.event.id == ""}
		if v.seen() && len(waiting.without([]Row{row})) > 0 {
			return true
		}
	}
	return false
}

// step is one thing that happens.
func (w *world) step() {
	if len(w.orders) > 0 && w.chance(12) {
		if w.orders[0]() {
			w.orders = w.orders[1:]
		}
		return
	}
	if w.quiet {
		if w.chance(30) {
			w.background()
		} else {
			w.relay(w.slots[w.random.IntN(len(w.slots))])
		}
		return
	}
	if w.shaky && w.chance(3) {
		w.crash(w.flushed)
		return
	}
	switch k := w.random.IntN(1000); {
	case k < 450:
		w.writer()
	case k < 800:
		w.relay(w.slots[w.random.IntN(len(w.slots))])
	case k < 900:
		w.background()
	case k < 930:
		if w.chance(50) {
			w.rewrite()
		} else {
			w.vacuum()
		}
	case k < 950:
		for _, s := range w.slots { // a checkpoint
			s.saved = s.confirmed
		}
	case k < 960:
		w.redrive()
	case k < 970:
		w.switchSegment()
	case k < 985:
		w.write(0, nil)
	case k < 988 || w.storm && w.chance(80):
		w.adversity()
	}
}

func (w *world) adversity() {
	switch k := w.random.IntN(10); {
	case k < 3:
		w.say("crash")
		w.crash(w.flushed)
	case k < 5:
		w.failOver()
	default:
		w.trouble()
	}
}

// writer is one of the application's sessions.
func (w *world) writer() {
	if len(w.open) == 0 || len(w.open) < 4 && w.chance(25) {
		w.begin()
	}
	t := w.open[w.random.IntN(len(w.open))]
	if t.stage != writing {
		if t.stage == prepared && w.chance(20) {
			w.abort(t)
			return
		}
		w.advance(t)
		return
	}
	switch k := w.random.IntN(100); {
	case k < 35:
		w.insert(t, w.newEvent(t))
	case k < 45 && len(t.depths) < 3:
		w.savepoint(t)
	case k < 55 && len(t.depths) > 1:
		if w.chance(50) {
			w.release(t)
		} else {
			w.undo(t)
		}
	case k < 65 && len(t.depths) == 1:
		w.change(t)
	case t.xids[0] == 0:
	case k < 90:
		w.advance(t)
	case k < 95 && w.chance(50):
		w.prepare(t)
	default:
		w.abort(t)
	}
}

// change updates a row, deletes one, or deletes one and inserts it again.
func (w *world) change(t *tx) {
	for _, at := range w.places() {
		v := w.heap[at]
		if !v.seen() || v.killer != nil && v.killer.stage != aborted || w.chance(60) {
			continue
		}
		w.kill(t, v)
		switch w.random.IntN(3) {
		case 0:
			w.insert(t, v.event)
		case 1:
			again := w.newEvent(t)
			again.id = v.event.id
			w.insert(t, again)
		}
		return
	}
}
