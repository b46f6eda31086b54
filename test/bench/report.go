package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// Results are what one run of the benchmark found. Only verified runs are in it.
type Results struct {
	Started   string
	Earlier   map[string]Origin `json:",omitempty"` // section → where it is from, if not of this run
	Machine   string
	Versions  map[string]string
	Drains    []Table
	Outage    *Outage `json:",omitempty"`
	Latencies []Latency
	Starts    []Start
	Idles     []Idle
	Figures   []Figure          `json:",omitempty"`
	Missing   map[string]string // contestant → why
}

// Origin is the run that a section is of.
type Origin struct {
	Started, Machine string
	Versions         map[string]string
}

// beside says what is different from the run that r is of.
func (o Origin) beside(r *Results) string {
	text := o.Started
	if o.Machine != r.Machine {
		text += " on " + o.Machine
	}
	var other []string
	for name, version := range o.Versions {
		if version != r.Versions[name] {
			other = append(other, versionOf(name, version))
		}
	}
	if slices.Sort(other); len(other) > 0 {
		text += ", with " + strings.Join(other, " · ")
	}
	return text
}

func versionOf(name, version string) string {
	return name + " " + strings.TrimPrefix(version, name+" ")
}

// empty says that nothing was measured.
func (r *Results) empty() bool {
	return len(r.Drains)+len(r.Latencies)+len(r.Starts)+len(r.Idles)+len(r.Figures) == 0 && r.Outage == nil
}

// Table is one backlog and who drained it.
type Table struct {
	Name                          string
	Rows, PerTxn, Payload, Topics int
	Wide                          int `json:",omitempty"` // bytes of a column that no mapping reads
	Lines                         []Line
}

// Line is one contestant's runs.
type Line struct {
	Contestant string
	Runs       []Run
}

// Run is one verified drain.
type Run struct {
	Seconds, RowsPerSecond, MBPerSecond float64
	CPUPerMillion                       map[string]float64 // seconds a million rows, by group of processes
	PeakMB                              map[string]float64

	// AllocsPerRow counts what the contestant allocated on its heap; zero where it
	// does not say.
	AllocsPerRow float64 `json:",omitempty"`

	// StoodStill is how many seconds the slot's position did not move at most, between its
	// first move and the last record; zero where nobody looked or it did not move before.
	StoodStill float64 `json:",omitempty"`
}

func (r Run) String() string {
	s := fmt.Sprintf("%8.0f rows/s %6.1f MB/s %7.2f s", r.RowsPerSecond, r.MBPerSecond, r.Seconds)
	for _, group := range []string{groupContestant, groupServer, groupBroker} {
		if cpu, ok := r.CPUPerMillion[group]; ok {
			s += fmt.Sprintf("  %s %.2f s/M", group, cpu)
		}
	}
	s += fmt.Sprintf("  peak %.1f MB", r.PeakMB[groupContestant])
	if r.AllocsPerRow > 0 {
		s += fmt.Sprintf("  %.3f allocs/row", r.AllocsPerRow)
	}
	if r.StoodStill > 0 {
		s += fmt.Sprintf("  position stood still %.2f s", r.StoodStill)
	}
	return s
}

// Outage is a drain with the broker away.
type Outage struct {
	Seconds float64
	Rows    int
	PeakMB  float64
}

// Latency is a steady rate, in milliseconds from INSERT to consumer.
type Latency struct {
	Contestant         string
	Rate               int
	Reached            float64 // rows a second that were written
	Rows               int
	P50, P95, P99, Max float64
	ConfirmedAge       float64 // seconds that the slot's position stood still at most
	CPUPercent         float64 // of a core

	// P50s are those of all runs in their order; the line is of one of them, but for
	// ConfirmedAge, which is the worst.
	P50s []float64 `json:",omitempty"`
}

func (l Latency) String() string {
	return fmt.Sprintf("%5d/s (reached %.0f): p50 %.1f ms  p95 %.1f  p99 %.1f  max %.1f; position stood still %.2f s; %.1f %% of a core",
		l.Rate, l.Reached, l.P50, l.P95, l.P99, l.Max, l.ConfirmedAge, l.CPUPercent)
}

// Start is the time to the first record.
type Start struct {
	Contestant string
	Seconds    float64 // median
	Runs       []float64
}

// Idle is a contestant without work.
type Idle struct {
	Contestant string
	CPUPercent float64
	MB         float64
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return 0
	}
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}

func (l Line) median(of func(Run) float64) float64 {
	values := make([]float64, len(l.Runs))
	for i, r := range l.Runs {
		values[i] = of(r)
	}
	return median(values)
}

func (l Line) rate() float64 { return l.median(func(r Run) float64 { return r.RowsPerSecond }) }

func (l Line) cpu(group string) float64 {
	return l.median(func(r Run) float64 { return r.CPUPerMillion[group] })
}

// cpuText is `-` for processes that were not there or that nobody saw: a run may be over
// before it was looked at.
func (l Line) cpuText(group string) string {
	for _, r := range l.Runs {
		if _, seen := r.CPUPerMillion[group]; !seen {
			return "-"
		}
	}
	return fmt.Sprintf("%.2f", l.cpu(group))
}

// peak is the worst of all runs: a limit is not kept on the average.
func (l Line) peak() float64 {
	worst := 0.0
	for _, r := range l.Runs {
		worst = max(worst, r.PeakMB[groupContestant])
	}
	return worst
}

// allocs is the median of the runs that say it; `-` without one.
func (l Line) allocs() string {
	var said []float64
	for _, r := range l.Runs {
		if r.AllocsPerRow > 0 {
			said = append(said, r.AllocsPerRow)
		}
	}
	if len(said) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f", median(said))
}

// still is the worst of the runs that say it; `-` without one.
func (l Line) still() string {
	worst := 0.0
	for _, r := range l.Runs {
		worst = max(worst, r.StoodStill)
	}
	if worst == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", worst)
}

func (t Table) rateOf(names ...string) float64 {
	for _, name := range names {
		for _, l := range t.Lines {
			if l.Contestant == name {
				return l.rate()
			}
		}
	}
	return 0
}

// ratio is empty where one of both was not measured.
func ratio(a, b float64) string {
	if a == 0 || b == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", a/b)
}

// Sections beside the drains, whose names are those of their tables.
const (
	sectionOutage  = "outage"
	sectionLatency = "latency"
	sectionStart   = "start"
	sectionIdle    = "idle"
)

// keep takes over the sections that an earlier run measured and this one did not.
// Within a section everything is of one run, so its ratios hold on whatever machine.
func (r *Results) keep(old *Results) {
	took := func(section string) {
		if r.Earlier == nil {
			r.Earlier = map[string]Origin{}
		}
		from, ok := old.Earlier[section]
		if !ok {
			from = Origin{old.Started, old.Machine, old.Versions}
		}
		r.Earlier[section] = from
	}
	for _, t := range old.Drains {
		if !slices.ContainsFunc(r.Drains, func(mine Table) bool { return mine.Name == t.Name }) {
			r.Drains = append(r.Drains, t)
			took(t.Name)
		}
	}
	if r.Outage == nil && old.Outage != nil {
		r.Outage = old.Outage
		took(sectionOutage)
	}
	if len(r.Latencies) == 0 && len(old.Latencies) > 0 {
		r.Latencies = old.Latencies
		took(sectionLatency)
	}
	if len(r.Starts) == 0 && len(old.Starts) > 0 {
		r.Starts = old.Starts
		took(sectionStart)
	}
	if len(r.Idles) == 0 && len(old.Idles) > 0 {
		r.Idles = old.Idles
		took(sectionIdle)
	}
	r.keepFigures(old, took)
	// In the order of the suites, whoever measured what.
	slices.SortStableFunc(r.Drains, func(a, b Table) int { return cmp.Compare(place(a.Name), place(b.Name)) })
}

// place is that of the suite that a section is of.
func place(section string) int {
	return slices.IndexFunc(suites(), func(s suite) bool { return section == s.name || strings.HasPrefix(section, s.name+"_") })
}

// questions are what the sections answer, by the name of the suite.
var questions = map[string]string{
	"drain":        "How fast is a backlog drained, and what does it cost?",
	"single":       "The same, when each row is a transaction of its own.",
	"large":        "The same, when all rows are one transaction.",
	"thousand":     "The same, with a thousand rows per transaction.",
	"payload":      "What does the width of a row change?",
	"topics":       "What does the number of topics change?",
	"shards":       "What do more slots give on two cores?",
	"columns":      "What does a publication of the mapped columns save?",
	"ways":         "What do TLS and a network between relay and broker cost?",
	"formats":      "What does encoding by a schema registry cost?",
	"backfill":     "How fast is a table sent, beside COPY of its rows in the same order?",
	"backlog":      "Does the rate depend on the length of the backlog?",
	"resume":       "How soon does a backfill go on after kill -9, and how soon the stream behind it?",
	"cutover":      "How long do writers wait for the trigger?",
	"retention":    "How fast are delivered rows removed, and what does the stream notice?",
	"partition":    "How long do writers wait while partitions are dropped?",
	"marks":        "What do marks cost the writers, and how late are they?",
	"audit":        "How long does an audit take, and how much memory and disk?",
	"subjects":     "How much memory do the schemas of a registry take?",
	"proof":        "How long does the proof wait until the slot has passed a position?",
	sectionOutage:  "How much memory does an outage of the broker take?",
	sectionLatency: "How long does a row take from its INSERT to a consumer, at a steady rate?",
	sectionStart:   "How long does a start take?",
	sectionIdle:    "What does a relay cost that has nothing to do?",
}

func question(section string) string {
	suite, _, _ := strings.Cut(section, "_")
	return questions[suite]
}

func (r *Results) markdown() string { return r.markdownWith(nil) }

// markdownWith puts each section's pictures behind its table.
// markdownWriter writes the results section by section.
type markdownWriter struct {
	strings.Builder
	r        *Results
	pictures map[string][]chart
}

func (m *markdownWriter) line(format string, args ...any) { fmt.Fprintf(m, format+"\n", args...) }

func (m *markdownWriter) heading(section, format string, args ...any) {
	m.line("### "+format+"\n", args...)
	if q := question(section); q != "" {
		m.line("%s\n", q)
	}
	if from, ok := m.r.Earlier[section]; ok {
		m.line("Measured in another run: %s.\n", from.beside(m.r))
	}
}

func (m *markdownWriter) draw(section string) {
	m.line("")
	for _, c := range m.pictures[section] {
		m.line("![%s](benchmarks/%s)\n", c.title, c.file)
	}
}

func (r *Results) markdownWith(pictures map[string][]chart) string {
	m := &markdownWriter{r: r, pictures: pictures}
	m.line("%s. Measured %s.\n", r.Machine, r.Started)
	names := make([]string, 0, len(r.Versions))
	for name := range r.Versions {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		names[i] = versionOf(name, r.Versions[name])
	}
	m.line("%s.\n", strings.Join(names, " · "))
	m.drains()
	m.latencies()
	m.startsAndIdles()
	m.figures()
	m.missing()
	return strings.TrimRight(m.String(), "\n") + "\n"
}

func (m *markdownWriter) drains() {
	r := m.r
	for _, t := range r.Drains {
		m.heading(t.Name, "Drain `%s`: %s", t.Name, shape{rows: t.Rows, perTxn: t.PerTxn, payload: t.Payload, topics: t.Topics, wide: t.Wide})
		m.line("| contestant | rows/s | MB/s | spread | CPU s per M rows | PostgreSQL | broker | peak MB | allocs/row | position stood still, s | ÷ pg_recvlogical | ÷ Debezium |")
		m.line("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
		recv, deb := t.rateOf(limit), t.rateOf(debeziumWarm, debezium)
		for _, l := range t.Lines {
			rates := make([]float64, len(l.Runs))
			for i, run := range l.Runs {
				rates[i] = run.RowsPerSecond
			}
			m.line("| %s | %.0f | %.1f | %.0f–%.0f | %s | %s | %s | %.1f | %s | %s | %s | %s |", l.Contestant, l.rate(),
				l.median(func(r Run) float64 { return r.MBPerSecond }), slices.Min(rates), slices.Max(rates),
				l.cpuText(groupContestant), l.cpuText(groupServer), l.cpuText(groupBroker), l.peak(), l.allocs(), l.still(), ratio(l.rate(), recv), ratio(l.rate(), deb))
		}
		if out := t.rateOf(copyOut); out > 0 {
			m.line("\nCompared with `COPY … ORDER BY … TO STDOUT`, from the command's start to its end: %s with at_least_once, %s with exactly_once.", ratio(t.rateOf(backfillAny), out), ratio(t.rateOf(backfillOnce), out))
		}
		if plain, quick := t.rateOf(relayKafka), t.rateOf(relayLink); t.rateOf(relayTLS) > 0 {
			m.line("\nCompared with `relay-kafka`: %s with TLS; `pg_recvlogical`, which sends nothing on: %s. Compared with the link without delay: %s with a round trip of 1 ms.", ratio(t.rateOf(relayTLS), plain), ratio(t.rateOf(limitTLS), t.rateOf(limit)), ratio(t.rateOf(relayMillisecond), quick))
		}
		if plain := t.rateOf(relayKafka); plain > 0 && t.rateOf(relayAvro) > 0 {
			m.line("\nCompared with `relay-kafka`: %s as Avro, %s as JSON Schema, %s as Protobuf. Debezium with Avro compared with Debezium without: %s. Avro by the relay compared with Avro by Debezium: %s.",
				ratio(t.rateOf(relayAvro), plain), ratio(t.rateOf(relayJSONSchema), plain), ratio(t.rateOf(relayProtobuf), plain),
				ratio(t.rateOf(debeziumAvro), t.rateOf(debeziumWarm)), ratio(t.rateOf(relayAvro), t.rateOf(debeziumAvro)))
		}
		m.draw(t.Name)
	}
	if o := r.Outage; o != nil {
		m.heading(sectionOutage, "Broker away for %.0f s in the middle of %d rows", o.Seconds, o.Rows)
		m.line("Peak %.1f MB; every row arrived once.\n", o.PeakMB)
	}
}

func (m *markdownWriter) latencies() {
	r := m.r
	if len(r.Latencies) > 0 {
		m.heading(sectionLatency, "Latency, INSERT to consumer, ms")
		m.line("| contestant | transactions/s | reached | p50 | p95 | p99 | max | position stood still, s | CPU %% of a core | runs | their p50 |")
		m.line("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
		for _, l := range r.Latencies {
			p50s := l.P50s
			if len(p50s) == 0 {
				p50s = []float64{l.P50}
			}
			m.line("| %s | %d | %.0f | %.1f | %.1f | %.1f | %.1f | %.2f | %.1f | %d | %.1f–%.1f |", l.Contestant, l.Rate, l.Reached, l.P50, l.P95, l.P99, l.Max,
				l.ConfirmedAge, l.CPUPercent, len(p50s), slices.Min(p50s), slices.Max(p50s))
		}
		m.draw(sectionLatency)
	}
}

func (m *markdownWriter) startsAndIdles() {
	r := m.r
	if len(r.Starts) > 0 {
		m.heading(sectionStart, "Start of the process to its first record")
		m.line("| contestant | median s | best | worst |")
		m.line("|---|--:|--:|--:|")
		for _, l := range r.Starts {
			m.line("| %s | %.3f | %.3f | %.3f |", l.Contestant, l.Seconds, slices.Min(l.Runs), slices.Max(l.Runs))
		}
		m.line("")
	}
	if len(r.Idles) > 0 {
		m.heading(sectionIdle, "Idle, attached to a quiet slot")
		m.line("| contestant | CPU %% of a core | resident MB |")
		m.line("|---|--:|--:|")
		for _, l := range r.Idles {
			m.line("| %s | %.2f | %.1f |", l.Contestant, l.CPUPercent, l.MB)
		}
		m.line("")
	}
}

func (m *markdownWriter) missing() {
	r := m.r
	missing := make([]string, 0, len(r.Missing))
	for name := range r.Missing {
		missing = append(missing, name)
	}
	slices.Sort(missing)
	for i, name := range missing {
		if i == 0 {
			m.line("Without a figure:\n")
		}
		line, _, _ := strings.Cut(r.Missing[name], "\n")
		m.line("* %s: %s", name, line)
	}
}

func (r *Results) print(w io.Writer) { fmt.Fprintln(w, "\n"+r.markdown()) }

func (r *Results) writeJSON(path string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

func readResults(path string) (*Results, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &Results{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if r.Started == "" || r.empty() {
		return nil, fmt.Errorf("read %s: it holds no results", path)
	}
	return r, nil
}
