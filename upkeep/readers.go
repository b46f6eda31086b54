package upkeep

import (
	"context"
	"sync"

	"github.com/cdc-relay/cdc-relay/upkeep/records"
	"github.com/rs/zerolog"
)

// Readers has the jobs of one process read the topics together. The zero value is ready. Its
// methods may be called from any goroutine.
type Readers struct {
	mu  sync.Mutex
	now *reading
}

type reading struct {
	reader *records.Reader
	users  int
}

// take gives the reader that others have, or a new one. The reader is to be released.
func (r *Readers) take(ctx context.Context, cfg *Config, log zerolog.Logger) (*records.Reader, func(), error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now != nil && r.now.reader.Identify(ctx) != nil { // of another server, or nobody knows
		r.now = nil // whoever has it keeps it
	}
	if r.now == nil {
		reader, err := records.Open(ctx, cfg.Relay, cfg.Limits.AlsoWaitFor, log)
		if err != nil {
			return nil, nil, err
		}
		r.now = &reading{reader: reader}
	}
	taken := r.now
	taken.users++
	return taken.reader, func() { r.release(taken) }, nil
}

func (r *Readers) release(taken *reading) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if taken.users--; taken.users > 0 {
		return
	}
	taken.reader.Close()
	if r.now == taken {
		r.now = nil
	}
}
