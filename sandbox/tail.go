package sandbox

import (
	"io"
	"strings"
	"sync"
)

// tail passes on what a server writes and keeps the end of it for messages.
type tail struct {
	to io.Writer // may be nil

	mu   sync.Mutex
	kept []byte
	more int // kept beyond tailSize
}

const tailSize = 16 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - tailSize - t.more; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	if t.to != nil {
		_, _ = t.to.Write(p) // a full disk under the log must not stop the server
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.kept))
}

func (t *tail) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = t.kept[:0]
}

// keep has n bytes more kept from now on.
func (t *tail) keep(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.more = n
}
