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
	Duplicates  int              `json:"duplicates"`
	Bound       int              `json:"duplicates_bound"`
	DuplicateBy map[string]int   `json:"duplicates_by_fault"`
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
	Parts       []string         `json:"parts,omitempty"`
	began       time.Time
}

func newFigures() *Figures {
	return &Figures{Servers: map[string]int{}, Faults: map[string]int{}, DuplicateBy: map[string]int{}, Takeover: map[string]Spans{}, began: time.Now()}
}

func (f *Figures) add(plan Plan, v *Verdict) {
	f.Seeds++
	if len(v.Violations) > 0 {
		f.Failed++
	}
	f.Servers["PostgreSQL "+plan.Postgres+", "+plan.Broker]++
	for name, n := range v.Faults {
		f.Faults[name] += n
	}
	for name, n := range v.DuplicateBy {
		f.DuplicateBy[name] += n
	}
	for name, spans := range v.Takeover {
		f.Takeover[name] = append(f.Takeover[name], spans...)
	}
	f.Kills += v.Kills
	f.Sessions += v.Sessions
	f.Rows += v.Rows
	f.Unknown += v.Unknown
	f.Lost += v.Lost
	f.Disordered += v.Disordered
	f.Late += v.Late
	f.Duplicates += v.Duplicates
	f.Bound += v.Bound
	f.Samples += v.Samples
	f.Recovery = append(f.Recovery, v.Recovery...)
	f.PgStop = append(f.PgStop, v.PgStop...)
	f.Drain = append(f.Drain, v.Drain...)
	f.Stall, f.Settled, f.Peak = max(f.Stall, v.Stall), max(f.Settled, v.Settled), max(f.Peak, v.Peak)
}

// finish sorts what quantiles are taken of.
func (f *Figures) finish() {
	f.Took = Span(time.Since(f.began).Round(time.Second))
	for _, spans := range f.Takeover {
		slices.Sort(spans)
	}
	slices.Sort(f.Recovery)
	slices.Sort(f.PgStop)
	slices.Sort(f.Drain)
}

func (f *Figures) String() string {
	f.finish()
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
		line("  "+name, "%d, %d duplicates after it", f.Faults[name], f.DuplicateBy[name])
	}
	line("kill -9 of a relay", "%d", f.Kills)
	line("sessions", "%d", f.Sessions)
	line("rows", "%d", f.Rows)
	line("commits of unknown outcome", "%d", f.Unknown)
	line("lost", "%d", f.Lost)
	line("order violations", "%d", f.Disordered)
	line("late records of a lost owner", "%d", f.Late)
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
		line("", "%s", part)
	}
	line("took", "%s", f.Took)
	return b.String()
}

func short(s Span) string { return time.Duration(s).Round(time.Millisecond).String() }

func (f *Figures) store(file string) error {
	f.finish()
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
