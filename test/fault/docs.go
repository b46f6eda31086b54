package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// The part of docs/fault-results.md that the program writes.
const (
	beginMark = "<!-- figures: written by test/fault, do not edit -->"
	endMark   = "<!-- end of figures -->"
)

// document replaces the figures in a file.
func (f *Figures) document(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text := string(data)
	begin, end := strings.Index(text, beginMark), strings.Index(text, endMark)
	if begin < 0 || end < begin {
		return fmt.Errorf("%s lacks the lines %q and %q, between which the figures go", path, beginMark, endMark)
	}
	return os.WriteFile(path, []byte(text[:begin]+beginMark+"\n\n"+f.markdown()+"\n"+text[end:]), 0o644)
}

// table is written line by line, as Markdown.
type table struct{ strings.Builder }

func (t *table) row(cells ...string) { t.WriteString("| " + strings.Join(cells, " | ") + " |\n") }

func (t *table) head(cells ...string) {
	t.row(cells...)
	t.WriteString(strings.Repeat("|---", len(cells)) + "|\n")
}

// markdown is everything that is told of a run.
func (f *Figures) markdown() string {
	var t table
	fmt.Fprintf(&t, "Of %s, %s, commit %s; %s of work.\n\n", f.Day, f.Host, f.Commit, time.Duration(f.Took).Round(time.Minute))
	f.totals(&t)
	t.WriteString("\n")
	f.pieces(&t)
	t.WriteString("\n")
	f.byKind(&t)
	if len(f.Bar) > 0 {
		t.WriteString("\nWhat others lose, repeat or hold up, as tests of their own at full size:\n\n")
		for _, each := range f.Bar {
			t.WriteString("* " + each + "\n")
		}
	}
	return t.String()
}

func (f *Figures) totals(t *table) {
	t.head("all parts", "")
	var servers []string
	for _, name := range sortedKeys(f.Servers) {
		servers = append(servers, fmt.Sprintf("%s: %d", name, f.Servers[name]))
	}
	t.row("runs", fmt.Sprintf("%d, failed %d (%s)", f.Seeds, f.Failed, strings.Join(servers, "; ")))
	t.row("faults", fmt.Sprintf("%s of %d kinds; there are %d", grouped(total(f.Faults)), len(f.Faults), len(kinds)))
	t.row("kill -9 of a relay", grouped(f.Kills))
	t.row("rows", grouped(f.Rows))
	t.row("lost", grouped(f.Lost))
	t.row("out of order", grouped(f.Disordered))
	t.row("commits of unknown outcome", grouped(int(f.Unknown)))
	t.row("late records of an owner that had lost the slot", grouped(f.Late))
	t.row("dead letters, all of them delivered but those left waiting or discarded on purpose", fmt.Sprintf("%s; %s rows left, %s discarded", grouped(f.Letters), grouped(f.Waiting), grouped(f.Discarded)))
	t.row("duplicates", fmt.Sprintf("%s; allowed %s", grouped(f.Duplicates), grouped(f.Bound)))
	t.row("samples of the slot's position, none ahead of what the brokers have", grouped(f.Samples))
	t.row("recovery, from a fault's end until all that was written by then is confirmed", spread(f.Recovery))
	for _, each := range []struct{ kind, name string }{
		{"standby_takes_over_term", "takeover, clean stop"}, {"standby_takes_over_kill", "takeover, kill -9"},
		{"standby_takes_over_freeze", fmt.Sprintf("takeover, frozen leader, `wal_sender_timeout` %s", senderTimeout)},
	} {
		spans := f.Takeover[each.kind]
		if alone := f.part("standby"); alone != nil { // without other faults beside it
			spans = alone.Takeover[each.kind]
		}
		t.row(each.name, spread(spans))
	}
	t.row("longest stall of the confirmed position under load without a fault", short(f.Stall))
	t.row("drain after SIGTERM", spread(f.Drain))
	t.row("fast stop of PostgreSQL, whatever else was wrong", spread(f.PgStop))
	t.row("longest settling after the last fault", short(f.Settled))
	t.row("peak memory of a relay", fmt.Sprintf("%d MiB", f.Peak>>20))
}

// pieces has a line for each part.
func (f *Figures) pieces(t *table) {
	t.head("part", "outcome", "took", "rows", "kills", "sessions", "lost", "out of order", "duplicates", "allowed", "recovery p50", "p99")
	for _, each := range f.Parts {
		g := each.Figures
		if g.Seeds == 0 { // it counts something else
			t.row(each.About, endOf(each), g.Took.String(), "", "", "", "", "", "", "", "", "")
			continue
		}
		t.row(each.About, endOf(each), g.Took.String(), grouped(g.Rows), grouped(g.Kills), grouped(g.Sessions), grouped(g.Lost), grouped(g.Disordered),
			grouped(g.Duplicates), grouped(g.Bound), known(g.Recovery, .5), known(g.Recovery, .99))
	}
}

func endOf(p Part) string {
	if len(p.Figures.Mutants) == 0 {
		return p.Outcome
	}
	found, first := 0, 0
	for _, m := range p.Figures.Mutants {
		if m.By != "" {
			found++
		}
		if m.By != "" && m.Seeds <= 1 {
			first++
		}
	}
	return fmt.Sprintf("%s: %d of %d found, %d of them by the first seed or a test", p.Outcome, found, len(p.Figures.Mutants), first)
}

// byKind tells a duplicate to the fault that began last before it, so a fault that
// repeats nothing by itself has some where another one overlapped.
func (f *Figures) byKind(t *table) {
	t.head("fault", "made", "duplicates after it", "allowed after it")
	for _, name := range sortedKeys(f.Faults) {
		t.row("`"+name+"`", grouped(f.Faults[name]), grouped(f.DuplicateBy[name]), grouped(f.BoundBy[name]))
	}
	if n := f.DuplicateBy["none"]; n > 0 || f.BoundBy["none"] > 0 {
		t.row("none", "", grouped(n), grouped(f.BoundBy["none"]))
	}
}

func total(counts map[string]int) int {
	n := 0
	for _, each := range counts {
		n += each
	}
	return n
}

func spread(sorted []Span) string {
	if len(sorted) == 0 {
		return "not measured"
	}
	return fmt.Sprintf("p50 %s, p99 %s, longest %s (of %d)", short(quantile(sorted, .5)), short(quantile(sorted, .99)), short(sorted[len(sorted)-1]), len(sorted))
}

// known is a quantile where something was measured.
func known(sorted []Span, q float64) string {
	if len(sorted) == 0 {
		return "–"
	}
	return short(quantile(sorted, q))
}

// grouped is a number with a space between thousands.
func grouped(n int) string {
	text := fmt.Sprint(n)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + " " + text[at:]
	}
	return text
}
