package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// Figures add up the verdicts of many runs.
type Figures struct {
	Host        string           `json:"host,omitempty"`
	Commit      string           `json:"commit,omitempty"` // of what was put to the test
	Day         string           `json:"day,omitempty"`
	Seeds       int              `json:"seeds"`
	Failed      int              `json:"failed"`
	Servers     map[string]int   `json:"servers"` // seeds by PostgreSQL and brokers
	Faults      map[string]int   `json:"faults"`
	Kills       int              `json:"kills"`
	Sessions    int              `json:"sessions"`
	Rows        int              `json:"rows"`
	Unknown     int64            `json:"unknown_commits"`
	Lost        int              `json:"lost"`
	Disordered  int              `json:"order_violations"`
	Late        int              `json:"late_records"`
	Letters     int              `json:"dead_letters"`
	Waiting     int              `json:"dead_letters_waiting"`
	Discarded   int              `json:"dead_letters_discarded"`
	Removed     int              `json:"removed,omitempty"` // rows, by the relay
	Marked      int              `json:"marked,omitempty"`
	Duplicates  int              `json:"duplicates"`
	Bound       int              `json:"duplicates_bound"`
	DuplicateBy map[string]int   `json:"duplicates_by_fault"`
	BoundBy     map[string]int   `json:"duplicates_bound_by_fault"`
	Recovery    []Span           `json:"recovery"`
	Takeover    map[string]Spans `json:"takeover"`
	PgStop      []Span           `json:"postgres_fast_stop"`
	Drain       []Span           `json:"drain"`
	Stall       Span             `json:"longest_stall_without_a_fault"`
	Settled     Span             `json:"longest_settling"`
	Peak        int64            `json:"peak_memory"`
	Samples     int              `json:"samples"`
	Took        Span             `json:"took"`
	Bar         []string         `json:"bar,omitempty"`
	Mutants     []Kill           `json:"mutants,omitempty"`
	Parts       []Part           `json:"parts,omitempty"`
	began       time.Time
}

// Part is one part of the whole programme, with figures of its own.
type Part struct {
	Name    string   `json:"name"`
	About   string   `json:"about"`
	Outcome string   `json:"outcome"`
	Figures *Figures `json:"figures"`
}

func newFigures() *Figures {
	return &Figures{Servers: map[string]int{}, Faults: map[string]int{}, DuplicateBy: map[string]int{}, BoundBy: map[string]int{}, Takeover: map[string]Spans{}, began: time.Now()}
}

func (f *Figures) add(plan Plan, v *Verdict) {
	brokers := plan.Broker
	if plan.ExactlyOnce {
		brokers += ", exactly once"
	}
	one := &Figures{
		Seeds: 1, Servers: map[string]int{"PostgreSQL " + plan.Postgres + ", " + brokers: 1}, Faults: v.Faults, Kills: v.Kills, Sessions: v.Sessions, Rows: v.Rows, Unknown: v.Unknown,
		Lost: v.Lost, Disordered: v.Disordered, Late: v.Late, Letters: v.Letters, Waiting: v.Waiting, Discarded: v.Discarded, Removed: v.Removed, Marked: v.Marked, Duplicates: v.Duplicates, Bound: v.Bound, DuplicateBy: v.DuplicateBy, BoundBy: v.BoundBy,
		Recovery: v.Recovery, Takeover: v.Takeover, PgStop: v.PgStop, Drain: v.Drain, Stall: v.Stall, Settled: v.Settled, Peak: v.Peak, Samples: v.Samples,
	}
	if len(v.Violations) > 0 {
		one.Failed = 1
	}
	f.join(one)
}

// join adds other figures to these.
func (f *Figures) join(o *Figures) {
	for _, each := range []struct{ to, from *int }{
		{&f.Seeds, &o.Seeds}, {&f.Failed, &o.Failed}, {&f.Kills, &o.Kills}, {&f.Sessions, &o.Sessions}, {&f.Rows, &o.Rows}, {&f.Lost, &o.Lost},
		{&f.Disordered, &o.Disordered}, {&f.Late, &o.Late}, {&f.Duplicates, &o.Duplicates}, {&f.Bound, &o.Bound}, {&f.Samples, &o.Samples},
		{&f.Letters, &o.Letters}, {&f.Waiting, &o.Waiting}, {&f.Discarded, &o.Discarded}, {&f.Removed, &o.Removed}, {&f.Marked, &o.Marked},
	} {
		*each.to += *each.from
	}
	for _, each := range []struct{ to, from map[string]int }{{f.Servers, o.Servers}, {f.Faults, o.Faults}, {f.DuplicateBy, o.DuplicateBy}, {f.BoundBy, o.BoundBy}} {
		for name, n := range each.from {
			each.to[name] += n
		}
	}
	for name, spans := range o.Takeover {
		f.Takeover[name] = append(f.Takeover[name], spans...)
	}
	f.Unknown += o.Unknown
	f.Recovery = append(f.Recovery, o.Recovery...)
	f.PgStop = append(f.PgStop, o.PgStop...)
	f.Drain = append(f.Drain, o.Drain...)
	f.Bar, f.Mutants = append(f.Bar, o.Bar...), append(f.Mutants, o.Mutants...)
	f.Stall, f.Settled, f.Peak = max(f.Stall, o.Stall), max(f.Settled, o.Settled), max(f.Peak, o.Peak)
}

// sum makes figures of a whole programme out of those of its parts.
func sum(parts []Part) *Figures {
	f := newFigures()
	for _, each := range parts {
		f.join(each.Figures)
		f.Took += each.Figures.Took
	}
	f.Parts = parts
	f.sort()
	return f
}

// part is the part of a name; nil if it did not run.
func (f *Figures) part(name string) *Figures {
	for _, each := range f.Parts {
		if each.Name == name {
			return each.Figures
		}
	}
	return nil
}

// finish ends what is being measured.
func (f *Figures) finish() {
	if f.Parts == nil {
		f.Took = Span(time.Since(f.began).Round(time.Second))
	}
	f.sort()
}

// sort is for what quantiles are taken of.
func (f *Figures) sort() {
	for _, spans := range f.Takeover {
		slices.Sort(spans)
	}
	slices.Sort(f.Recovery)
	slices.Sort(f.PgStop)
	slices.Sort(f.Drain)
}

func (f *Figures) String() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-34s %s\n", name, fmt.Sprintf(format, args...))
	}
	total := 0
	for _, n := range f.Faults {
		total += n
	}
	b.WriteString("\n")
	line("seeds", "%d, failed %d", f.Seeds, f.Failed)
	for _, name := range sortedKeys(f.Servers) {
		line("  "+name, "%d", f.Servers[name])
	}
	line("faults", "%d of %d kinds", total, len(f.Faults))
	for _, name := range sortedKeys(f.Faults) {
		line("  "+name, "%d, %d duplicates after it, bound %d", f.Faults[name], f.DuplicateBy[name], f.BoundBy[name])
	}
	line("kill -9 of a relay", "%d", f.Kills)
	line("sessions", "%d", f.Sessions)
	line("rows", "%d", f.Rows)
	line("commits of unknown outcome", "%d", f.Unknown)
	line("lost", "%d", f.Lost)
	line("order violations", "%d", f.Disordered)
	line("late records of a lost owner", "%d", f.Late)
	line("dead letters", "%d; %d rows left waiting, %d discarded on purpose", f.Letters, f.Waiting, f.Discarded)
	if f.Removed+f.Marked > 0 {
		line("rows removed by the relay", "%d, and %d marked", f.Removed, f.Marked)
	}
	line("duplicates", "%d, bound %d", f.Duplicates, f.Bound)
	line("slot samples", "%d", f.Samples)
	quantiles := func(name string, spans []Span) {
		if len(spans) > 0 {
			line(name, "p50 %s, p99 %s, longest %s (%d)", short(quantile(spans, .5)), short(quantile(spans, .99)), short(spans[len(spans)-1]), len(spans))
		}
	}
	quantiles("recovery after a fault", f.Recovery)
	for _, name := range sortedKeys(f.Takeover) {
		quantiles(name, f.Takeover[name])
	}
	quantiles("drain after SIGTERM", f.Drain)
	quantiles("fast stop of PostgreSQL", f.PgStop)
	line("longest stall without a fault", "%s", short(f.Stall))
	line("longest settling", "%s", short(f.Settled))
	line("peak memory", "%d MiB", f.Peak>>20)
	for _, each := range f.Bar {
		line("bar", "%s", each)
	}
	for _, m := range f.Mutants {
		line("mutant "+m.Name, "seeds %d, %s", m.Seeds, m.By)
	}
	for _, part := range f.Parts {
		line(part.Name, "%s: %s in %s", part.About, part.Outcome, part.Figures.Took)
	}
	line("took", "%s", f.Took)
	return b.String()
}

func short(s Span) string { return time.Duration(s).Round(time.Millisecond).String() }

func (f *Figures) store(file string) error {
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// load reads figures that an earlier run stored.
func load(file string) (*Figures, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	f := newFigures()
	if err := json.Unmarshal(text, f); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(f.Parts) > 0 {
		whole := sum(f.Parts)
		whole.Host, whole.Commit, whole.Day = f.Host, f.Commit, f.Day
		return whole, nil
	}
	f.sort()
	return f, nil
}
