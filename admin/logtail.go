package admin

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// LogTail keeps the last lines of the log, as JSON. It is one of the writers of a logger.
type LogTail struct {
	mu    sync.Mutex
	lines []LogLine // oldest first
	bytes int
	next  int64
}

// NewLogTail makes one whose numbers begin at the start of the process, in milliseconds: a page
// that asks for what lies after the last line of an earlier process gets the lines of this one.
func NewLogTail(start time.Time) *LogTail { return &LogTail{next: start.UnixMilli()} }

// LogLine is one line.
type LogLine struct {
	Number int64           `json:"number"` // each is higher than the one before, also over a restart
	Level  string          `json:"level"`
	Line   json.RawMessage `json:"line"`
}

const (
	maxLogLines = 500
	maxLogBytes = 256 << 10
	maxLogLine  = 8 << 10
)

// Write takes a line without a level.
func (l *LogTail) Write(line []byte) (int, error) { return l.WriteLevel(zerolog.NoLevel, line) }

// WriteLevel takes a line.
func (l *LogTail) WriteLevel(level zerolog.Level, line []byte) (int, error) {
	kept := json.RawMessage(append([]byte(nil), line...))
	if len(line) > maxLogLine || !json.Valid(kept) {
		kept, _ = json.Marshal(map[string]string{"msg": "a line of the log that is too long for this page: see standard error"})
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	l.lines = append(l.lines, LogLine{l.next, level.String(), kept})
	l.bytes += len(kept)
	drop := 0
	for len(l.lines)-drop > maxLogLines || l.bytes > maxLogBytes {
		l.bytes -= len(l.lines[drop].Line)
		drop++
	}
	l.lines = append(l.lines[:0], l.lines[drop:]...)
	return len(line), nil
}

// After are the lines after the one with a number, oldest first.
func (l *LogTail) After(number int64) []LogLine {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.lines); n == 0 || number >= l.lines[n-1].Number {
		return nil
	}
	first := 0
	for l.lines[first].Number <= number {
		first++
	}
	return append([]LogLine(nil), l.lines[first:]...)
}
