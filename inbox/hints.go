package inbox

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Hints remember keys beside the table, for less than the table costs. They may forget, be down,
// be shared with others, or say what is not so: the table has the last word on every key. A key
// that they have seen is looked up, and counts as a duplicate where it is there; every other key is
// claimed.
type Hints interface {
	// Seen reports, by place in keys, which were given to Add. An error counts as none.
	Seen(ctx context.Context, keys []Key) ([]bool, error)

	// Add gets keys when their claims are committed.
	Add(ctx context.Context, keys []Key) error
}

const (
	hintLimit = 5 * time.Millisecond // of a call: a claim takes less
	hintPause = time.Second          // without hints, after a call that failed
)

// hints ask nothing for a while where a call failed.
type hints struct {
	Hints

	mu     sync.Mutex // guards the following
	silent time.Time  // until then
}

var errHintsSilent = errors.New("hints failed a moment ago")

func (h *hints) call(ctx context.Context, f func(context.Context) error) error {
	h.mu.Lock()
	silent := time.Now().Before(h.silent)
	h.mu.Unlock()
	if silent {
		return errHintsSilent
	}
	ctx, cancel := context.WithTimeout(ctx, hintLimit)
	defer cancel()
	answered := make(chan error, 1)
	go func() { answered <- f(ctx) }()
	var err error
	select {
	case err = <-answered:
	case <-ctx.Done():
		err = ctx.Err() // a call that ignores its context is left behind
	}
	if err != nil {
		h.mu.Lock()
		h.silent = time.Now().Add(hintPause)
		h.mu.Unlock()
	}
	return err
}

// hinted returns which keys are claimed for certain: hints have seen them, and the table has them.
// It is nil where nothing is known.
func (b *Inbox) hinted(ctx context.Context, tx Tx, keys []Key) ([]bool, error) {
	if b.hints == nil {
		return nil, nil
	}
	given := slices.Clone(keys) // a call that was left behind reads them when the caller has them back
	answer := make(chan []bool, 1)
	err := b.hints.call(ctx, func(ctx context.Context) error {
		seen, err := b.hints.Seen(ctx, given)
		answer <- seen
		return err
	})
	if err != nil {
		return nil, nil //nolint:nilerr // hints that fail say nothing
	}
	seen := <-answer
	var places []int
	var asked []Key
	for i := range keys {
		if i < len(seen) && seen[i] {
			places, asked = append(places, i), append(asked, keys[i])
		}
	}
	if len(asked) == 0 {
		return nil, nil
	}
	known, err := b.Known(ctx, tx, asked)
	if err != nil {
		return nil, err
	}
	claimed := make([]bool, len(keys))
	for i, place := range places {
		claimed[place] = known[i]
	}
	return claimed, nil
}

// Remember gives keys to the hints of Config. Call it when the transaction that claimed them is
// committed. OnceIn and kafkainbox do.
func (b *Inbox) Remember(ctx context.Context, keys []Key) {
	if b.hints == nil || len(keys) == 0 {
		return
	}
	given := slices.Clone(keys)
	_ = b.hints.call(ctx, func(ctx context.Context) error { return b.hints.Add(ctx, given) }) // the table has them
}

// Recent are Hints in the process: the newest keys, as many as given.
func Recent(n int) Hints {
	return &recent{ring: make([]string, max(n, 1)), there: make(map[string]bool, max(n, 1))}
}

type recent struct {
	mu    sync.Mutex // guards the following
	ring  []string
	next  int
	there map[string]bool
}

func (r *recent) Seen(_ context.Context, keys []Key) ([]bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := make([]bool, len(keys))
	for i := range keys {
		seen[i] = r.there[keys[i].text]
	}
	return seen, nil
}

func (r *recent) Add(_ context.Context, keys []Key) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range keys {
		if r.there[keys[i].text] {
			continue
		}
		if old := r.ring[r.next]; old != "" {
			delete(r.there, old)
		}
		r.ring[r.next] = keys[i].text
		r.there[keys[i].text] = true
		r.next = (r.next + 1) % len(r.ring)
	}
	return nil
}
