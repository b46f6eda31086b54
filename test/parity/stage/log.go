package stage

import (
	"bytes"
	"io"
	"regexp"
	"slices"
	"sync"
)

// logLines keeps the warnings and errors of a worker.
type logLines struct {
	to io.Writer // may be nil

	mu    sync.Mutex
	open  []byte
	lines []string
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.to != nil {
		_, _ = l.to.Write(p)
	}
	l.open = append(l.open, p...)
	for {
		line, rest, whole := bytes.Cut(l.open, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		l.keep(string(line))
		l.open = rest
	}
}

var (
	logLine     = regexp.MustCompile(`^(?:\[.*?\] )?((?:WARN|ERROR) [\w.$]+ - .*)$`)
	correlation = regexp.MustCompile(`correlation id \d+`)
)

func (l *logLines) keep(line string) {
	found := logLine.FindStringSubmatch(line)
	if found == nil {
		return
	}
	text := clockTime.ReplaceAllString(correlation.ReplaceAllString(found[1], "correlation id N"), "<N>")
	if !slices.Contains(l.lines, text) {
		l.lines = append(l.lines, text)
	}
}

func (l *logLines) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = nil
}

func (l *logLines) distinct() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}
