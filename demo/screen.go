package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/frame"
	"github.com/cdc-relay/cdc-relay/relay/status"
)

// screen draws the show: over and over on a terminal, else line by line.
type screen struct {
	show     *show
	terminal *terminal // nil without one
	shown    int       // events delivered when the last plain line was written
	model    frame.Model
	rated    time.Time // when the model got its last rate
}

// lookAt says what to look at in the console.
const lookAt = "  in it: Now has rates, lag and the way of the rows, Tail the rows as they pass, Tables how they become records"

func newScreen(s *show) *screen {
	c := &screen{show: s}
	if !s.opts.plain {
		c.terminal = openTerminal()
	}
	return c
}

func (c *screen) close() {
	if c.terminal != nil {
		c.terminal.close()
	}
}

// run draws until ctx ends.
func (c *screen) run(ctx context.Context) {
	every, draw := time.Second, c.line
	var keys <-chan byte
	if c.terminal != nil {
		every, draw = 250*time.Millisecond, c.paint
		keys = c.terminal.keys
	} else {
		fmt.Println(c.show.stage.origin)
		fmt.Println("the relay's console, for a browser: http://" + c.show.stage.http + "/")
		fmt.Println(lookAt)
		for _, line := range c.show.pasteLines() {
			fmt.Println("  " + line)
		}
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			draw()
			return
		case key := <-keys:
			c.show.press(ctx, key)
		case <-tick.C:
		}
		draw()
	}
}

// line writes the newest event and where things stand.
func (c *screen) line() {
	v := c.show.snapshot()
	if len(v.events) > 0 && v.delivered > c.shown {
		e := v.events[len(v.events)-1]
		fmt.Printf("  %-16s %-15s partition %d offset %-5d key %s  %s\n", e.kind, e.topic, e.partition, e.offset, e.key, e.latency())
	}
	c.shown = v.delivered
	fmt.Printf("%5.1fs  %-12s committed %d, delivered %d, %d/s, p50 %s, p99 %s, lag %s, confirmed %s\n", v.running.Seconds(), v.state(),
		v.committed, v.delivered, v.rate, milliseconds(v.p50), milliseconds(v.p99), status.BytesText(v.status.LagBytes), v.confirmed())
}

const (
	bold  = "\x1b[1m"
	dim   = "\x1b[2m"
	red   = "\x1b[31m"
	green = "\x1b[32m"
	plain = "\x1b[0m"
)

// paint redraws everything in one write, so that nothing flickers.
func (c *screen) paint() {
	v := c.show.snapshot()
	width, height := c.terminal.size()
	var out bytes.Buffer
	out.WriteString("\x1b[H")
	row := func(format string, args ...any) {
		out.WriteString(cut(fmt.Sprintf(format, args...), width) + plain + "\x1b[K\r\n")
	}
	row("%scdc-relay demo%s  %s%s", bold, plain, dim, c.show.stage.origin)
	row("the relay's console, for a browser: %shttp://%s/%s", bold, c.show.stage.http, plain)
	if v.note == "" {
		v.note = dim + lookAt + "; press k, and its headline says what stands in the way" + plain
	}
	row("%s", v.note)
	n := c.summary(row, v, width, max(3, height/3))
	row("")
	row("%s%-16s %-16s %4s %8s  %-36s %10s", dim, "event", "topic", "part", "offset", "key", "end to end")
	paste := c.show.pasteLines()
	lines := max(1, height-13-n-rowsOf(paste, width))
	first := max(0, len(v.events)-lines)
	for i := range lines {
		if first+i >= len(v.events) {
			row("")
			continue
		}
		e := v.events[first+i]
		row("%-16s %-16s %4d %8d  %-36s %10s", e.kind, e.topic, e.partition, e.offset, e.key, e.latency())
	}
	row("")
	row("%sfrom another terminal:", dim)
	for _, line := range paste { // whole, so that the terminal wraps and a copy has no breaks
		out.WriteString(line + "\x1b[K\r\n")
	}
	row("")
	fmt.Fprintf(&out, "%s\x1b[J", cut(fmt.Sprintf("%sk%s brokers away for 10 s   %sr%s kill the relay   %sb%s burst of 10 000   %sa%s audit   %sq%s quit",
		bold, plain, bold, plain, bold, plain, bold, plain, bold, plain), width))
	_, _ = os.Stdout.Write(out.Bytes())
}

// rowsOf is how many rows lines take that the terminal wraps.
func rowsOf(lines []string, width int) int {
	rows := 0
	for _, line := range lines {
		rows += (len(line) + width - 1) / width
	}
	return rows
}

// summary is what the relay shows of itself, as status --watch draws it, and what the consumer
// sees. It returns how many lines the relay's part has.
func (c *screen) summary(row func(string, ...any), v view, width, height int) int {
	colour := green
	if !v.reachable || v.status.State != status.Streaming || v.status.Reason != "" {
		colour = red
	}
	now := time.Now()
	c.model.Status, c.model.Now = v.status, now
	if now.Sub(c.rated) >= time.Second {
		c.rated = now
		c.model.Rates = append(c.model.Rates, float64(v.rate))
		c.model.Rates = c.model.Rates[max(0, len(c.model.Rates)-60):]
	}
	row("relay        %s%s%s", colour, bold, v.state())
	of := []string{}
	if v.reachable {
		of = frame.Summary(&c.model, frame.Size{Width: width, Height: height, Colour: true})
	}
	for _, line := range of {
		row("%s", line)
	}
	row("  events     %d committed, %s%d delivered%s, %d/s", v.committed, bold, v.delivered, plain, v.rate)
	row("  latency    p50 %s, p99 %s, from commit to consumer", milliseconds(v.p50), milliseconds(v.p99))
	return len(of)
}

func (v view) state() string {
	state := string(v.status.State)
	switch {
	case !v.reachable:
		state = "not running"
	case v.status.Reason != "":
		state += " (" + v.status.Reason + ")"
	}
	if v.away > 0 {
		state += fmt.Sprintf(", brokers back in %.0f s", v.away.Seconds())
	}
	return state
}

func (v view) confirmed() string {
	text, err := v.status.LSN.Confirmed.MarshalText()
	if err != nil || len(text) == 0 {
		return "-"
	}
	return string(text)
}

func (a arrival) latency() string {
	if !a.timed {
		return "again"
	}
	return milliseconds(a.took)
}

// cut shortens to width columns; colour codes take none.
func cut(text string, width int) string {
	var out strings.Builder
	columns, escape := 0, false
	for _, r := range text {
		switch {
		case r == '\x1b':
			escape = true
		case escape:
			escape = r == '[' || r == ';' || r >= '0' && r <= '9'
		case columns >= width:
			continue
		default:
			columns++
		}
		out.WriteRune(r)
	}
	return out.String()
}
