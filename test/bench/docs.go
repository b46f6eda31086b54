package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The part of benchmarks.md that the program writes.
const (
	page      = "benchmarks.md"
	beginMark = "<!-- results: written by test/bench, do not edit -->"
	endMark   = "<!-- end of results -->"
)

// writeDocs replaces the results in folder/benchmarks.md, and its charts and data
// in folder/benchmarks/. Sections that this run did not measure stay as
// an earlier one left them.
func (r *Results) writeDocs(folder string) error {
	before, after, err := readPage(folder)
	if err != nil {
		return err
	}
	charts := filepath.Join(folder, "benchmarks")
	if err := os.MkdirAll(charts, 0o755); err != nil {
		return err
	}
	results := resultsOf(folder)
	if old, err := readResults(results); err == nil && old.Started != r.Started {
		r.keep(old)
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := r.writeJSON(results); err != nil {
		return err
	}
	var pictures strings.Builder
	for _, c := range r.charts() {
		if err := os.WriteFile(filepath.Join(charts, c.file), []byte(c.svg()), 0o644); err != nil {
			return err
		}
		fmt.Fprintf(&pictures, "![%s](benchmarks/%s)\n", c.title, c.file)
	}
	out := before + beginMark + "\n\n" + r.markdown() + "\n" + pictures.String() + "\n" + after
	return os.WriteFile(filepath.Join(folder, page), []byte(out), 0o644)
}

// readPage gives what is around the results; after begins with the mark of their end.
func readPage(folder string) (before, after string, err error) {
	path := filepath.Join(folder, page)
	data, err := os.ReadFile(path)
	if err != nil {
		return "", "", err
	}
	text := string(data)
	begin, end := strings.Index(text, beginMark), strings.Index(text, endMark)
	if begin < 0 || end < begin {
		return "", "", fmt.Errorf("%s lacks the lines %q and %q, between which the results go", path, beginMark, endMark)
	}
	return text[:begin], text[end:], nil
}

func resultsOf(folder string) string { return filepath.Join(folder, "benchmarks", "results.json") }

// chart is a picture of horizontal bars.
type chart struct {
	file, title, unit string
	bars              []bar
}

type bar struct {
	name  string
	value float64
}

// charts are the pictures that the results have figures for.
func (r *Results) charts() []chart {
	var all []chart
	for _, t := range r.Drains {
		if t.Name != "drain" && t.Name != "single" {
			continue
		}
		rate := chart{file: t.Name + "-rate.svg", title: fmt.Sprintf("Drain, %d rows a transaction", t.PerTxn), unit: "rows/s"}
		cpu := chart{file: t.Name + "-cpu.svg", title: fmt.Sprintf("CPU time of the contestant, %d rows a transaction", t.PerTxn), unit: "s per million rows"}
		peak := chart{file: t.Name + "-memory.svg", title: fmt.Sprintf("Peak resident memory in a drain, %d rows a transaction", t.PerTxn), unit: "MB"}
		for _, l := range t.Lines {
			rate.bars = append(rate.bars, bar{l.Contestant, l.rate()})
			cpu.bars = append(cpu.bars, bar{l.Contestant, l.cpu(groupContestant)})
			peak.bars = append(peak.bars, bar{l.Contestant, l.peak()})
		}
		all = append(all, rate, cpu, peak)
	}
	for _, rate := range latencyRates {
		c := chart{file: fmt.Sprintf("latency-%d.svg", rate), title: fmt.Sprintf("Latency at %d transactions a second, p50 and p99", rate), unit: "ms"}
		for _, l := range r.Latencies {
			if l.Rate == rate {
				c.bars = append(c.bars, bar{l.Contestant + " p50", l.P50}, bar{l.Contestant + " p99", l.P99})
			}
		}
		if len(c.bars) > 0 {
			all = append(all, c)
		}
	}
	return all
}

func (c chart) svg() string {
	const width, left, top, step, thick = 760, 190, 46, 26, 18
	largest := 0.0
	for _, b := range c.bars {
		largest = max(largest, b.value)
	}
	var s strings.Builder
	height := top + step*len(c.bars) + 10
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`+"\n", width, height)
	fmt.Fprintf(&s, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", width, height)
	fmt.Fprintf(&s, `<text x="10" y="24" font-size="15" font-weight="bold">%s (%s)</text>`+"\n", escape(c.title), escape(c.unit))
	for i, b := range c.bars {
		y := top + i*step
		length := 0.0
		if largest > 0 {
			length = b.value / largest * (width - left - 110)
		}
		fill := "#9aa5b1"
		if strings.HasPrefix(b.name, "relay") {
			fill = "#2f6fab"
		}
		fmt.Fprintf(&s, `<text x="%d" y="%d" text-anchor="end">%s</text>`, left-8, y+14, escape(b.name))
		fmt.Fprintf(&s, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`, left, y, max(length, 1), thick, fill)
		fmt.Fprintf(&s, `<text x="%.1f" y="%d">%s</text>`+"\n", float64(left)+max(length, 1)+6, y+14, short(b.value))
	}
	s.WriteString("</svg>\n")
	return s.String()
}

func short(v float64) string {
	switch {
	case v >= 10_000:
		return fmt.Sprintf("%.0f k", v/1000)
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}
