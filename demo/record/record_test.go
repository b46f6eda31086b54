//go:build linux

package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestScreen_ShowsWhatATerminalWould(t *testing.T) {
	var s screen
	for _, part := range []string{"\x1b[?1049h\x1b[?25l\x1b[2J\x1b[Hone\r\n\x1b[1mtw", "o\x1b", "[0m three\x1b[K\r\nfour\x1b[H", "O\x1b[J"} {
		if _, err := s.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	f := s.frame()
	if got := strings.Fields(f.text()); len(got) != 1 || got[0] != "O" {
		t.Errorf("clearing from the cursor on leaves %q", got)
	}
	_, _ = s.Write([]byte("\x1b[2J" + strings.Repeat("x", columns+1) + "\x1b[31m!"))
	f = s.frame()
	if f[1][0].r != 'x' || f[1][1] != (cell{'!', red}) {
		t.Errorf("a long line is not wrapped: %v", f[1][:3])
	}
	_, _ = s.Write([]byte("\x1b[0m\x1b[?1049l" + strings.Repeat("a\r\n", rows) + "end"))
	f = s.frame()
	if f[rows-1][0].r != 'e' || f[0][0].r != 'a' || s.alternate() {
		t.Errorf("the screen does not scroll:\n%s", f.text())
	}
}

func TestSVG_HasOneSizeWhateverItShows(t *testing.T) {
	var s screen
	_, _ = s.Write([]byte("a <b> & \x1b[1m\x1b[32mgreen"))
	for _, frames := range [][]frame{{s.frame()}, {{}, s.frame(), {}}} {
		picture := svg(frames)
		if !strings.HasPrefix(picture, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 470" width="860" height="470"`) {
			t.Errorf("another size: %.120s", picture)
		}
		if strings.Count(picture, "<g class=") != len(frames) || !strings.Contains(picture, `class="b g">green</text>`) || !strings.Contains(picture, "a &lt;b&gt; &amp;") {
			t.Errorf("got\n%s", picture)
		}
		for decoder := xml.NewDecoder(strings.NewReader(picture)); ; {
			if _, err := decoder.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
}
