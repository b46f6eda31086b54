// Package frame draws a status for a terminal: a model and a size in, lines out. It is pure.
package frame

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/ways"
	"github.com/cdc-relay/cdc-relay/wording"
)

// Page is what is shown.
type Page int

// The pages.
const (
	Now Page = iota
	Blocked
	Letters
	Help
)

// Model is what is known.
type Model struct {
	Status status.Status
	Now    time.Time
	Page   Page
	Held   bool

	Silent  time.Duration // since the last answer; 0: it has just come
	Failure string        // why none came since

	Rates   []float64 // records acknowledged a second, oldest first
	Lags    []float64 // seconds behind
	Largest int64     // backlog that was seen, in bytes

	Ways []ways.Way // out of what stands in the way

	Letters *LetterList // dead letters; nil: nobody has answered yet
}

// Size is that of the terminal.
type Size struct {
	Width, Height int
	Colour        bool
}

// least is the width below which nothing is left out any more.
const least = 20

// Summary are the lines of the figures alone, at most so many.
func Summary(m *Model, size Size) []string {
	f := &frame{m: m, width: max(size.Width, least), colour: size.Colour}
	f.headline()
	f.now()
	return f.lines[:min(len(f.lines), size.Height)]
}

// Lines are those of the frame: at most Height of them, none of more than Width columns.
func Lines(m *Model, size Size) []string {
	size.Width, size.Height = max(size.Width, least), max(size.Height, 2)
	f := &frame{m: m, width: size.Width, colour: size.Colour}
	f.headline()
	switch m.Page {
	case Blocked:
		f.blocked()
	case Letters:
		f.letters()
	case Help:
		f.help()
	case Now:
		f.now()
	}
	lines := f.lines
	if len(lines) > size.Height-1 {
		lines = lines[:size.Height-1]
	}
	f.lines = lines
	f.keys()
	return f.lines
}

type frame struct {
	m      *Model
	width  int
	colour bool
	lines  []string
}

// Colours are by the kind of text, and each line ends plain.
const (
	bold, dim, red, yellow, green = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[33m", "\x1b[32m"
	plain                         = "\x1b[0m"
)

func (f *frame) paint(colour, text string) string {
	if !f.colour || text == "" {
		return text
	}
	return colour + text + plain
}

func (f *frame) add(text string) {
	text = cut(text, f.width)
	if f.m.Silent > staleAfter {
		text = f.paint(dim, bare(text)) // what was known last
	}
	f.lines = append(f.lines, text)
}

// staleAfter is when what is shown counts as old.
const staleAfter = 3 * time.Second

// signs of a level, which say without a colour what they say.
func (f *frame) sign() (sign, colour string) {
	s := &f.m.Status
	switch {
	case s.State == status.Blocked:
		return "■", red
	case s.State == status.Streaming && s.Reason == "" && s.CatchUp == nil && s.ParkedKeys == 0, s.State == status.Standby:
		return "●", green
	}
	return "▲", yellow
}

func (f *frame) headline() {
	s := &f.m.Status
	if f.m.Silent > staleAfter {
		text := "No answer for " + f.m.Silent.Round(time.Second).String() + "; this is what was known last. " + f.m.Failure
		for _, line := range wrap(wording.Printable(strings.TrimSpace(text)), f.width, 2) {
			f.lines = append(f.lines, f.paint(yellow, line))
		}
	}
	if s.State == "" {
		return
	}
	sign, colour := f.sign()
	for i, line := range wrap(wording.Printable(s.Headline), f.width-2, 3) {
		if i == 0 {
			f.add(f.paint(colour, sign) + " " + f.paint(bold, line))
			continue
		}
		f.add("  " + f.paint(bold, line))
	}
	if s.Message != "" {
		for _, line := range wrap(wording.Printable(s.Message), f.width-2, 4) {
			f.add("  " + line)
		}
	}
	about := []string{cmp.Or(s.Pipeline, "-"), "slot " + s.Slot, cmp.Or(s.Version, "-"), string(s.State) + " for " + f.m.Now.Sub(status.Since(s)).Round(time.Second).String()}
	if o := s.Obstacle; o != nil && o.Attempts > 0 {
		text := wording.Count(o.Attempts, "attempt") + " failed"
		if left := o.NextTry.Sub(f.m.Now); left > 0 {
			text += ", next in " + left.Round(time.Second).String()
		}
		about = append(about, text)
	}
	f.add("  " + f.paint(dim, wording.Printable(strings.Join(about, " · "))))
	f.add("")
}

// row is a label and what belongs to it.
func (f *frame) row(label, text string) {
	f.add("  " + f.paint(dim, fmt.Sprintf("%-10s", label)) + " " + text)
}

func (f *frame) now() {
	s := &f.m.Status
	if s.State == "" {
		return
	}
	if c := s.CatchUp; c != nil {
		f.progress(c)
	}
	if s.Obstacle != nil && len(f.m.Ways) > 0 {
		f.firstWay(&f.m.Ways[0])
	}
	behind := "not known"
	if s.LagSeconds != nil {
		behind = duration(*s.LagSeconds)
	}
	rows := ""
	if s.RowsBehind != nil {
		rows = ", ≈ " + count(float64(*s.RowsBehind)) + " rows"
	}
	if s.LagBytes != nil {
		behind += ", " + wording.Bytes(*s.LagBytes) + " of WAL"
	}
	f.row("behind", behind+rows+" "+f.spark(f.m.Lags, 46+columns(rows)))
	f.row("WAL lasts", walLasts(s, f.m.Now)) // with several shards, of the slot that is lost first
	rate := 0.0
	if n := len(f.m.Rates); n > 0 {
		rate = f.m.Rates[n-1]
	}
	f.row("rate", count(rate)+"/s "+f.spark(f.m.Rates, 46))
	inFlight := wording.Count(s.InFlightEvents, "row") + ", " + wording.Bytes(int64(s.InFlightBytes)) + " of " + wording.Bytes(int64(s.InFlightLimitBytes))
	if s.OldestUnacked != nil && s.InFlightEvents > 0 {
		inFlight += ", oldest " + duration(*s.OldestUnacked)
	}
	f.row("in flight", inFlight)
	aside := fmt.Sprintf("%s, %s parked, %d rejected", wording.Count(s.DeadLetters, "dead letter"), wording.Count(s.ParkedKeys, "key"), s.EventsRejected)
	if s.DeadLetters+s.EventsRejected+int64(s.ParkedKeys) > 0 {
		aside = f.paint(yellow, aside)
	}
	f.row("set aside", aside)
	f.shards()
	f.flows("tables", s.Tables, 5)
	f.flows("topics", s.TopicRates, 10)
}

// firstWay is what to do; page Blocked has the others.
func (f *frame) firstWay(w *ways.Way) {
	f.row("do", wording.Printable(w.Title)+" (b: all ways out)")
	for _, one := range commands(w) {
		label := one.where
		for _, line := range one.lines(f.width - 13) {
			f.row(label, line)
			label = ""
		}
	}
	if w.Restart {
		f.row("then", "restart the relay")
	}
	f.add("")
}

// command is a text to copy, and where it belongs.
type command struct{ where, text, joint string }

func commands(w *ways.Way) (all []command) {
	for _, one := range []command{{"psql", w.SQL, ""}, {"config", w.Config, ""}, {"shell", w.Shell, ` \`}} {
		if one.text != "" {
			all = append(all, one)
		}
	}
	return all
}

func (c command) lines(width int) (all []string) {
	for line := range strings.Lines(c.text) {
		all = append(all, fold(wording.Printable(strings.TrimRight(line, "\n")), width, c.joint)...)
	}
	return all
}

// progress is how much of the largest backlog is read.
func (f *frame) progress(c *status.CatchUp) {
	most := max(f.m.Largest, c.LeftBytes, 1)
	done := 1 - float64(c.LeftBytes)/float64(most)
	room := min(max(f.width-40, 8), 60)
	full := int(done*float64(room) + 0.5)
	text := f.paint(green, strings.Repeat("█", full)) + f.paint(dim, strings.Repeat("░", room-full)) + fmt.Sprintf(" %3.0f %%", done*100)
	if c.Seconds != nil {
		text += ", " + duration(*c.Seconds) + " more"
	}
	f.row("backlog", text)
}

func (f *frame) shards() {
	all := slices.Clone(f.m.Status.Shards)
	order := []status.State{status.Stopping, status.Blocked, status.Reconnecting, status.Starting, status.Streaming, status.Standby}
	slices.SortStableFunc(all, func(a, b status.Status) int {
		return cmp.Or(slices.Index(order, a.State)-slices.Index(order, b.State), cmp.Compare(known(b.LagBytes), known(a.LagBytes)))
	})
	label := "shards"
	for i := range all {
		one := &all[i]
		state := string(one.State)
		if one.Reason != "" {
			state += " (" + one.Reason + ")"
		}
		if one.State == status.Blocked {
			state = f.paint(red, state)
		}
		f.row(label, wording.Printable(one.Slot)+"  "+state+", "+status.BytesText(one.LagBytes)+" behind, "+wording.Count(one.InFlightEvents, "row")+" in flight")
		label = ""
	}
}

// known puts what is not known before every number.
func known(n *int64) int64 {
	if n == nil {
		return math.MaxInt64
	}
	return *n
}

// flows are the busiest of them.
func (f *frame) flows(label string, all []status.Flow, most int) {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b status.Flow) int {
		return cmp.Or(cmp.Compare(b.PerSecond, a.PerSecond), cmp.Compare(b.Total, a.Total))
	})
	left := len(all) - most
	all = all[:min(most, len(all))]
	widest := 0
	for _, one := range all {
		widest = max(widest, columns(wording.Printable(one.Name)))
	}
	narrow := f.width < 60
	room := f.width - 13 - 24
	if narrow {
		room = f.width - 13 - 12
	}
	widest = min(widest, max(room, 8), 60)
	for _, one := range all {
		name := cut(wording.Printable(one.Name), widest)
		text := name + strings.Repeat(" ", widest-columns(name)) + fmt.Sprintf("  %8s/s", count(one.PerSecond))
		if !narrow {
			text += fmt.Sprintf("  %d", one.Total)
		}
		f.row(label, text)
		label = ""
	}
	if left > 0 {
		f.row("", fmt.Sprintf("and %d more", left))
	}
}

func (f *frame) blocked() {
	o := f.m.Status.Obstacle
	if o == nil {
		f.add("  Nothing stands in the way.")
		return
	}
	f.row("reason", o.Reason)
	if r := o.Row; r != nil {
		text := "of the transaction committing at " + position(r.Commit)
		if r.Number != 0 { // else the server could not send it
			text = fmt.Sprintf("%s, row %d %s", wording.Printable(r.Table), r.Number, text)
		}
		f.row("row", text)
		if r.EventID != "" {
			f.row("event", wording.Printable(r.EventID))
		}
		if r.Topic != "" {
			text := wording.Printable(r.Topic) + ", " + wording.Bytes(int64(r.Bytes))
			if r.Limit > 0 {
				text += "; " + r.LimitOf + " is " + wording.Bytes(int64(r.Limit))
			}
			f.row("topic", text)
		}
	}
	f.add("")
	if ways.HealsByItself(o.Reason) {
		f.add("  It passes by itself; the relay goes on trying.")
	}
	for i, w := range f.m.Ways {
		f.add("  " + f.paint(bold, fmt.Sprintf("%d. %s", i+1, wording.Printable(w.Title))))
		cost := "loses rows: " + string(w.Loses)
		if w.Restart {
			cost += ", restart needed"
		}
		if w.Stopped {
			cost += ", with the relay stopped"
		}
		if w.Loses == ways.Rows {
			cost = f.paint(red, cost)
		}
		f.add("     " + cost)
		for _, one := range commands(&w) {
			label := one.where
			for _, line := range one.lines(f.width - 12) {
				f.add("     " + f.paint(dim, fmt.Sprintf("%-6s", label)) + " " + line)
				label = ""
			}
		}
	}
}

func (f *frame) help() {
	for _, line := range []string{
		"q  end", "b  what stands in the way, and the ways out", "d  dead letters that wait", "n  back to the figures", "p  hold, or go on", "?  this help", "",
		"● all is well   ▲ attention   ■ stopped", "",
		"The same with charts in a browser: the address of http.listen.",
	} {
		f.add("  " + line)
	}
}

func (f *frame) keys() {
	text := "q quit · ? help · b blocked · d letters · n now · p hold"
	if f.m.Held {
		text = "held: p goes on · " + text
	}
	f.lines = append(f.lines, f.paint(dim, cut(text, f.width)))
}

var blocks = []rune("▁▂▃▄▅▆▇█")

// spark is a curve of the newest values, as far as there is room behind used columns.
func (f *frame) spark(values []float64, used int) string {
	room := min(f.width-used, 60)
	if room < 8 || len(values) < 2 {
		return ""
	}
	values = values[max(0, len(values)-room):]
	most := slices.Max(values)
	out := make([]rune, len(values))
	for i, v := range values {
		out[i] = blocks[0]
		if most > 0 {
			out[i] = blocks[min(len(blocks)-1, int(max(0, v)/most*float64(len(blocks)-1)+0.5))]
		}
	}
	return f.paint(dim, string(out))
}

func walLasts(s *status.Status, now time.Time) string {
	slot := s.SlotState
	kept := wording.Bytes(s.RetainedWALBytes) + " kept"
	switch {
	case s.LastLook != nil:
		return "not known; " + wording.Bytes(s.LastLook.RetainedWALBytes) + " kept " + duration(now.Sub(s.LastLook.At).Seconds()) + " ago"
	case slot == nil:
		return "not known"
	case slot.WALStatus == "lost":
		return "lost: the slot has lost its WAL"
	case slot.SafeWALBytes == nil:
		return "no limit set: until the disk is full; " + kept
	case slot.SafeSeconds == nil:
		return wording.Bytes(max(0, *slot.SafeWALBytes)) + " more fit; " + kept
	}
	return duration(*slot.SafeSeconds) + "; " + wording.Bytes(max(0, *slot.SafeWALBytes)) + " more fit; " + kept
}

func position(p status.Position) string {
	text, _ := p.MarshalText()
	return cmp.Or(string(text), "-")
}

func count(n float64) string {
	switch {
	case n >= 1e6:
		return fmt.Sprintf("%.1f M", n/1e6)
	case n >= 1e4:
		return fmt.Sprintf("%.1f k", n/1e3)
	case n >= 100 || n == 0:
		return fmt.Sprintf("%.0f", n)
	}
	return fmt.Sprintf("%.1f", n)
}

func duration(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d > 10*24*time.Hour:
		return "more than 10 days"
	}
	return d.Round(time.Second).String()
}
