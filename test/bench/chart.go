package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// chart is a picture of horizontal bars.
type chart struct {
	section           string // whose figures it draws
	file, title, unit string
	measured          string // machine and time
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
		each := rowsText(t.PerTxn) + " per transaction"
		at := r.measured(t.Name)
		rate := chart{section: t.Name, file: t.Name + "-rate.svg", title: "Draining a backlog, " + each, unit: "rows per second", measured: at}
		cpu := chart{section: t.Name, file: t.Name + "-cpu.svg", title: "CPU time of draining a backlog, " + each, unit: "seconds per million rows", measured: at}
		peak := chart{section: t.Name, file: t.Name + "-memory.svg", title: "Peak resident memory while draining a backlog, " + each, unit: "MB", measured: at}
		for _, l := range t.Lines {
			rate.bars = append(rate.bars, bar{l.Contestant, l.rate()})
			cpu.bars = append(cpu.bars, bar{l.Contestant, l.cpu(groupContestant)})
			peak.bars = append(peak.bars, bar{l.Contestant, l.peak()})
		}
		all = append(all, rate, cpu, peak)
	}
	for _, rate := range latencyRates {
		c := chart{section: sectionLatency, file: fmt.Sprintf("latency-%d.svg", rate), title: fmt.Sprintf("INSERT to consumer at %d transactions per second, p50 and p99", rate), unit: "ms", measured: r.measured(sectionLatency)}
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

// shown is a contestant's name in a picture, which has no legend.
func shown(name string) string {
	contestant, percentile, _ := strings.Cut(name, " ")
	known := map[string]string{
		relayDiscard: "cdc-relay, no Kafka", relayKfake: "cdc-relay, kfake", relayKafka: "cdc-relay", relayExactly: "cdc-relay, exactly once",
		debezium: "Debezium", debeziumWarm: "Debezium, warm", debeziumHeap: "Debezium, 512 MB heap", debeziumSoon: "Debezium, low latency", polling: "polling publisher",
	}
	if text, ok := known[contestant]; ok {
		contestant = text
	}
	return strings.TrimSpace(contestant + " " + percentile)
}

func rowsText(n int) string {
	if n == 1 {
		return "one row"
	}
	return fmt.Sprintf("%d rows", n)
}

// measured says where and when a section's figures are from.
func (r *Results) measured(section string) string {
	from, ok := r.Earlier[section]
	if !ok {
		from = Origin{Started: r.Started, Machine: r.Machine}
	}
	day, _, _ := strings.Cut(from.Started, "T")
	return "cdc-relay (blue) compared with others, " + day + ", " + from.Machine
}

// The picture's measures, in pixels.
const (
	chartWidth = 760
	chartLeft  = 200 // names end there
	chartTop   = 78
	chartStep  = 26
	chartThick = 18
	chartFull  = chartWidth - chartLeft - 110
)

// spread is the ratio of values from which on an axis is logarithmic: shorter bars could
// not be told from each other.
const spread = 20

// axis turns values into lengths.
type axis struct {
	low, high float64 // at the ends; low is zero on a linear axis
}

func (c chart) axis() axis {
	values := make([]float64, 0, len(c.bars))
	for _, b := range c.bars {
		if b.value > 0 {
			values = append(values, b.value)
		}
	}
	if len(values) == 0 {
		return axis{}
	}
	low, high := slices.Min(values), slices.Max(values)
	if high/low <= spread {
		return axis{high: high}
	}
	low = math.Pow(10, math.Floor(math.Log10(low)))
	if slices.Min(values) < 1.2*low { // a bar has to be seen
		low /= 10
	}
	return axis{low: low, high: high}
}

func (a axis) logarithmic() bool { return a.low > 0 }

func (a axis) length(value float64) float64 {
	switch {
	case a.high == 0 || value <= 0:
		return 0
	case a.logarithmic():
		return math.Log(value/a.low) / math.Log(a.high/a.low) * chartFull
	}
	return value / a.high * chartFull
}

func (c chart) svg() string {
	var s strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&s, format, args...) }
	scale := c.axis()
	bottom := chartTop + chartStep*len(c.bars)
	height := bottom + 10
	unit := c.unit
	if scale.logarithmic() {
		height += 18
		unit += ", logarithmic axis"
	}
	p(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`+"\n", chartWidth, height)
	p(`<rect width="%d" height="%d" fill="#fff"/>`+"\n", chartWidth, height)
	p(`<text x="10" y="22" font-size="15" font-weight="bold">%s</text>`+"\n", escape(c.title))
	p(`<text x="10" y="41">%s</text>`+"\n", escape(unit))
	p(`<text x="10" y="58" font-size="11" fill="#52606d">%s</text>`+"\n", escape(c.measured))
	if scale.logarithmic() {
		for at := scale.low; at <= scale.high; at *= 10 {
			x := chartLeft + scale.length(at)
			p(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#cbd2d9"/>`, x, chartTop-6, x, bottom-4)
			p(`<text x="%.1f" y="%d" font-size="11" fill="#52606d" text-anchor="middle">%s</text>`+"\n", x, bottom+12, short(at))
		}
	}
	for i, b := range c.bars {
		y := chartTop + i*chartStep
		length := max(scale.length(b.value), 1)
		fill := "#9aa5b1"
		if strings.HasPrefix(b.name, "relay") {
			fill = "#2f6fab"
		}
		p(`<text x="%d" y="%d" text-anchor="end">%s</text>`, chartLeft-8, y+14, escape(shown(b.name)))
		p(`<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`, chartLeft, y, length, chartThick, fill)
		p(`<text x="%.1f" y="%d">%s</text>`+"\n", chartLeft+length+6, y+14, short(b.value))
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
