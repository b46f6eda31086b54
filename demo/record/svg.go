//go:build linux

package main

import (
	"fmt"
	"html"
	"strings"
)

type style uint8

const (
	bold style = 1 << iota
	dim
	red
	green
)

type cell struct {
	r     rune
	style style
}

type frame [rows][columns]cell

func (f *frame) text() string {
	var out strings.Builder
	for _, row := range f {
		for _, c := range row {
			out.WriteRune(max(c.r, ' '))
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// The picture's measures. Each run of text is stretched to its cells, whatever the font
// of the viewer is.
const (
	cellWidth, cellHeight = 8, 17
	margin                = 14
	width                 = columns*cellWidth + 2*margin
	height                = rows*cellHeight + 2*margin
)

// svg shows the frames one after the other, a second each, and the last one for longer.
// What knows no animation shows the frame in the middle of the outage.
func svg(frames []frame) string {
	var s strings.Builder
	total := len(frames) - 1 + lastFor
	poster := min(len(frames)-1, 10)
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="13">`+"\n", width, height, width, height)
	s.WriteString("<title>The demo: an order service, PostgreSQL, the relay and brokers that go away for ten seconds; at the end every committed event is accounted for</title>\n<style>")
	fmt.Fprintf(&s, "text{white-space:pre;fill:#d9e1ea}.d{fill:#8593a3}.b{font-weight:bold}.r{fill:#ff7b72}.g{fill:#56d364}.f{animation:f %ds infinite step-end}.l{animation:l %ds infinite step-end}", total, total)
	fmt.Fprintf(&s, "@keyframes f{0%%{visibility:visible}%.4f%%,100%%{visibility:hidden}}@keyframes l{0%%{visibility:visible}%.4f%%,100%%{visibility:hidden}}", 100/float64(total), 100*float64(lastFor)/float64(total))
	s.WriteString("@media (prefers-reduced-motion:reduce){.f,.l{animation:none}}</style>\n")
	fmt.Fprintf(&s, `<rect width="%d" height="%d" rx="8" fill="#0d1117"/>`+"\n", width, height)
	for i := range frames {
		class, visibility := "f", ` visibility="hidden"`
		if i == len(frames)-1 {
			class = "l"
		}
		if i == poster {
			visibility = ""
		}
		fmt.Fprintf(&s, `<g class="%s"%s style="animation-delay:%ds">`+"\n", class, visibility, i-total)
		frames[i].draw(&s)
		s.WriteString("</g>\n")
	}
	s.WriteString("</svg>\n")
	return s.String()
}

// draw writes each row as runs of one style. Runs end at two blanks.
func (f *frame) draw(s *strings.Builder) {
	for y, row := range f {
		for x := 0; x < columns; {
			if row[x].r == 0 || row[x].r == ' ' {
				x++
				continue
			}
			end := x
			for at := x; at < columns && row[at].r != 0 && row[at].style == row[x].style; at++ {
				if row[at].r != ' ' {
					end = at + 1
				} else if at+1 < columns && row[at+1].r == ' ' {
					break
				}
			}
			var text strings.Builder
			for _, c := range row[x:end] {
				text.WriteRune(c.r)
			}
			fmt.Fprintf(s, `<text x="%d" y="%d" textLength="%d"%s>%s</text>`+"\n",
				margin+x*cellWidth, margin+y*cellHeight+13, (end-x)*cellWidth, row[x].style.class(), html.EscapeString(text.String()))
			x = end
		}
	}
}

func (s style) class() string {
	var names []string
	for _, each := range []struct {
		bit  style
		name string
	}{{bold, "b"}, {dim, "d"}, {red, "r"}, {green, "g"}} {
		if s&each.bit != 0 {
			names = append(names, each.name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return ` class="` + strings.Join(names, " ") + `"`
}
