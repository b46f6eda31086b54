package deadletter

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

var (
	seedFlag  = flag.Uint64("letters.seed", 0, "the one `seed` that the simulation runs")
	seedsFlag = flag.Uint64("letters.seeds", 1500, "how many `seeds` the simulation runs")
)

// What happens to the letters, the markers and the parked keys under everything that may
// happen at once. See oracle for what holds.
func TestSimulation_LettersAreNeitherLostNorMixed(t *testing.T) {
	first, last := uint64(1), *seedsFlag
	if *seedFlag > 0 {
		first, last = *seedFlag, *seedFlag
	} else if testing.Short() {
		last = min(last, 300) // most that goes wrong shows in the first few
	}
	var found tallied
	for seed := first; seed <= last; seed++ {
		w := newWorld(seed)
		synctest.Test(t, func(*testing.T) { w.live() })
		if w.faults != nil {
			t.Fatalf("seed %d: %s\n%s", seed, strings.Join(w.faults, "\n"), w.tell())
		}
		found.add(w)
	}
	t.Logf("%+v", found)
	if *seedFlag == 0 && last >= 500 && !found.everything() {
		t.Errorf("the simulation does not come to everything: %+v", found)
	}
}

// tallied is what the seeds came to.
type tallied struct{ events, letters, sent, discarded, kills, forks, expired, lost, shared int }

func (f *tallied) add(w *world) {
	f.events += len(w.events)
	for _, e := range w.backlog(Filter{}).Entries {
		f.letters++
		switch e.Done {
		case Sent:
			f.sent++
		case Discarded:
			f.discarded++
		}
	}
	for _, line := range w.story {
		switch {
		case line == "redrive is killed":
			f.kills++
		case strings.Contains(line, "rows have the event id of one letter"):
			f.shared++
		case strings.Contains(line, "was lost in a failover"):
			f.lost++
		case strings.Contains(line, "forks at"):
			f.forks++
		case strings.Contains(line, "expire"):
			f.expired++
		}
	}
}

func (f *tallied) everything() bool {
	return min(f.events, f.letters, f.sent, f.discarded, f.kills, f.forks, f.expired, f.lost, f.shared) > 0
}

// live is one seed: some time in which everything happens, and then a quiet end.
func (w *world) live() {
	for n := 40 + w.random.IntN(60); n > 0 && w.faults == nil; n-- {
		switch k := w.random.IntN(100); {
		case k < 80:
			w.relays()
		case k < 83:
			w.strict = !w.strict
		case k < 84 && len(w.log) < 3:
			w.say("one more partition")
			w.grow()
		case k < 86:
			w.pipes[w.random.IntN(len(w.pipes))].fork()
		case k < 88:
			w.say("letters expire")
			w.expire()
		default:
			w.operate()
			w.check()
		}
	}
	if w.faults == nil {
		w.end()
	}
}

// operate is somebody with the configuration of one of the relays.
func (w *world) operate() {
	o := &operator{w: w, p: w.pipes[w.random.IntN(len(w.pipes))], steps: -1, share: w.chance(20)}
	if w.chance(60) {
		o.steps = 1 + w.random.IntN(25)
	}
	filter, own := Filter{}, true
	if w.chance(20) {
		own = false
	} else {
		filter.Source = func(source string) bool { return source == o.p.source }
	}
	discard := w.chance(25)
	if letters := w.backlog(Filter{}).Entries; discard && len(letters) > 0 {
		one := letters[w.random.IntN(len(letters))]
		filter.Partition, filter.Offset = &one.Partition, &one.Offset
	} else if w.chance(30) {
		filter.Reason = "record_too_large"
	} else if len(letters) > 0 && w.chance(50) {
		one := letters[w.random.IntN(len(letters))]
		filter.Partition, filter.Offset = &one.Partition, &one.Offset
	}
	before := w.states(func(source string) bool { return own && source != o.p.source })
	w.say("%s re-drives, discard %t, own %t, faulty %t", o.p.source, discard, own, o.share)
	outcomes, killed := o.redrive(filter, discard, w.chance(30))
	w.say("done: %s, killed %t", summary(outcomes), killed)
	after := w.states(func(source string) bool { return own && source != o.p.source })
	for place, state := range after {
		if was, known := before[place]; known && was != state {
			w.fault("%s touched the letter of another source at %v: %q, then %q", o.p.source, place, was, state)
		}
	}
}

func summary(outcomes []Outcome) string {
	var all []string
	for _, out := range outcomes {
		all = append(all, fmt.Sprintf("%d of %d, %d records, %v", out.Done, len(out.Entries), out.Records, out.Err))
	}
	return strings.Join(all, "; ")
}

func (w *world) states(which func(source string) bool) map[Location]string {
	states := map[Location]string{}
	for _, e := range w.backlog(Filter{}).Entries {
		if which(e.Source) {
			states[e.Location()] = e.Done
		}
	}
	return states
}

func (w *world) fill(entries []*Entry) map[Location]*Letter {
	f := newFilling(entries)
	for _, log := range w.log {
		for _, m := range log {
			if err := f.add(m); err != nil {
				w.fault("%v", err)
			}
		}
	}
	return f.found
}

// check is the oracle, for every moment.
//
//  1. A letter counts as sent only when a redrive got the acknowledgement for exactly the
//     record that its row makes, in the topic of that record.
//  2. A letter counts as discarded only when somebody wanted that.
//  3. The topic has no bytes but those that rows make (land).
//  4. A redrive of its own source touches no letter of another (operate).
//  5. A key is parked as long as the topic has a letter of it that waits, and no longer
//     (checkParked).
//  6. Records of a parked key arrive in the order of the stream, counted by their first
//     arrival. So do records that had no topic until they were re-driven.
func (w *world) check() {
	b := w.backlog(Filter{})
	if b.Foreign > 0 {
		w.fault("%d records of the topic are not understood", b.Foreign)
	}
	for _, e := range b.Entries {
		found := w.eventOf(e)
		switch {
		case found == nil:
		case e.Done == Sent && !w.acked[digestOf(&found.want)]:
			w.fault("%s counts as sent, at %v, and was not acknowledged", found, e.Location())
		case e.Done == Discarded && !w.dropped[found]:
			w.fault("%s counts as discarded, and nobody wanted that", found)
		}
	}
	w.checkOrder()
}

func (w *world) checkOrder() {
	seen, highest := map[*event]bool{}, map[string]*event{}
	for _, l := range w.topic {
		e := w.events[l.sum]
		if e == nil || seen[e] || !e.keyed && !e.late || w.dropped[e] {
			continue
		}
		seen[e] = true
		key := fmt.Sprintf("%s %t %s", e.source, e.late, e.want.Key)
		if last := highest[key]; last != nil && e.id.Compare(last.id) < 0 {
			w.fault("%s came after %s (%s)", e, last, l.by)
		}
		highest[key] = e
	}
}

// checkParked compares a relay that read the topic to its end with what waits there.
func (p *pipe) checkParked() {
	waiting := map[Group]bool{}
	for of, group := range p.w.backlog(Filter{}).groups {
		if of.source == p.source && len(group.waiting) > 0 && group.waiting[0].Keyed {
			waiting[of.group] = true
		}
	}
	for g := range waiting {
		if !p.expired && p.parked.keys[g] == nil {
			p.w.fault("%s: a key is free of which letters wait", p.source)
		}
	}
	for g, k := range p.parked.keys {
		if !p.expired && !p.old && (k.sent == (ID{}) || p.lost(k.sent)) && !waiting[g] {
			p.w.fault("%s: a key stays parked of which nothing waits", p.source)
		}
	}
}

// end heals everything, lets the relays finish and re-drives what is left. After that
// every row is in its topic, but those that were given up, and each key ends with its
// newest record.
func (w *world) end() {
	w.say("the end")
	w.strict = false
	for _, p := range w.pipes {
		p.old = false
		p.settle(1 << 30)
		p.start()
		for p.at < len(p.rows) {
			p.step()
		}
		p.settle(1 << 30)
		p.follow(1 << 30)
		o := &operator{w: w, p: p, steps: -1, calm: true}
		outcomes, _ := o.redrive(Filter{Source: func(source string) bool { return source == p.source }}, false, false)
		for _, out := range outcomes {
			if out.Err != nil && !errors.Is(out.Err, errBehind) {
				w.giveUp(o, out)
			}
		}
		p.follow(1 << 30)
		if p.parked != nil && p.parked.Len() > 0 && !p.expired {
			w.fault("%s: %d keys are parked at the end", p.source, p.parked.Len())
		}
	}
	w.check()
	w.complete()
}

// giveUp discards the first letter of a key that cannot be sent, which has to be one whose row
// was lost, or cannot be found, and sends the rest.
func (w *world) giveUp(o *operator, out Outcome) {
	for out.Err != nil && w.faults == nil {
		e := out.Entries[out.Done]
		if e.Complete() && !o.p.lost(e.ID) {
			w.fault("a whole letter cannot be sent: %v", out.Err)
			return
		}
		if !o.p.lost(e.ID) && o.p.has(w.eventOf(e)) {
			w.fault("%s cannot be sent, and its row is there: %v", w.eventOf(e), out.Err)
			return
		}
		if found := w.eventOf(e); found != nil {
			w.dropped[found] = true
		}
		outcomes, _ := o.redrive(Filter{Partition: &e.Partition, Offset: &e.Offset}, true, false)
		if len(outcomes) == 0 || slices.ContainsFunc(outcomes, func(out Outcome) bool { return out.Err != nil }) {
			w.fault("discard: %s", summary(outcomes))
			return
		}
		outcomes, _ = o.redrive(Filter{Source: func(source string) bool { return source == e.Source }}, false, false)
		out = Outcome{}
		for _, next := range outcomes {
			if next.Err != nil && !errors.Is(next.Err, errBehind) && (next.Entries[0].Group == e.Group || e.Record.Key != nil && next.Entries[0].keyOf() == e.keyOf()) {
				out = next
			}
		}
	}
}

// has reports whether the table has the row of an event, so that a redrive finds it.
func (p *pipe) has(e *event) bool {
	return slices.ContainsFunc(p.rows, func(c *change) bool { return c.serial > 0 && len(c.events) == 1 && c.events[0] == e })
}

func (w *world) complete() {
	arrived, newest, last := map[*event]bool{}, map[string]*event{}, map[string]*event{}
	for _, l := range w.topic {
		e := w.events[l.sum]
		if e == nil {
			continue
		}
		arrived[e] = true
		if key := e.source + string(e.want.Key); e.keyed && !w.dropped[e] {
			last[key] = e
			if newest[key] == nil || newest[key].id.Compare(e.id) < 0 {
				newest[key] = e
			}
		}
	}
	present := map[*event]bool{}
	for _, p := range w.pipes {
		for _, c := range p.rows {
			for _, e := range c.events {
				present[e] = true
			}
		}
	}
	for _, e := range w.all {
		if (present[e] || e.made) && !arrived[e] && !w.dropped[e] {
			w.fault("%s is lost", e)
		}
	}
	for key, e := range newest {
		if present[e] && last[key] != e { // a fork may lose the rest of what comes again
			w.fault("the key %s ends with %s, and not with %s", key, last[key], e)
		}
	}
}
