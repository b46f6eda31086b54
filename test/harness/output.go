package harness

import (
	"bytes"
	"sync"
)

// Output collects what several goroutines write, as they do to a file. The zero value is ready.
type Output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write adds bytes.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// String returns what was written so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
