package producer

import (
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kzerolog"
)

// repeatAfter is how long a line that was just written is only counted.
const repeatAfter = 30 * time.Second

// clientLog writes the client's warnings and errors. Its loops say the same
// again at every try while brokers are unreachable: such lines are written once in a
// while, with how many were left out.
type clientLog struct {
	*kzerolog.Logger
	now func() time.Time

	mu    sync.Mutex
	lines map[string]*line
}

type line struct {
	written time.Time
	left    int
}

func newClientLog(log zerolog.Logger) *clientLog {
	log = log.With().Str("client", "franz-go").Logger()
	return &clientLog{Logger: kzerolog.New(&log), now: time.Now, lines: make(map[string]*line)}
}

// Level keeps the client from building lines that would not be written.
func (l *clientLog) Level() kgo.LogLevel { return min(kgo.LogLevelWarn, l.Logger.Level()) }

// Log writes a line unless its like was written a moment ago. Alike are lines
// with the same text about the same topic or broker.
func (l *clientLog) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	if level > l.Level() {
		return
	}
	key := msg
	for i := 0; i+1 < len(keyvals); i += 2 {
		switch keyvals[i] {
		case "topic", "broker", "addr":
			key += fmt.Sprintf("|%v", keyvals[i+1])
		}
	}
	left, ok := l.admit(key)
	if !ok {
		return
	}
	if left > 0 {
		keyvals = append(keyvals[:len(keyvals):len(keyvals)], "left_out", left)
	}
	l.Logger.Log(level, msg, keyvals...)
}

func (l *clientLog) admit(key string) (left int, ok bool) {
	const most = 1000
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	seen := l.lines[key]
	if seen == nil {
		if len(l.lines) >= most {
			clear(l.lines)
		}
		l.lines[key] = &line{written: now}
		return 0, true
	}
	if now.Sub(seen.written) < repeatAfter {
		seen.left++
		return 0, false
	}
	left = seen.left
	*seen = line{written: now}
	return left, true
}
