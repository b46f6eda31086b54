package deadletter

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cdc-relay/cdc-relay/sink"
)

// MaxParked bounds the keys that are parked at a time, and with them the memory for
// that: about 10 MiB. Beyond it a rejected row blocks.
const MaxParked = 100_000

// ErrFull says that no further key can be parked.
var ErrFull = errors.New("too many keys are parked; look at the dead letters and re-drive them: `cdc-relay deadletter list`")

// Parked is the keys of one source whose rows go to the dead-letter topic, each with
// the last row that did. Its methods may be called from any goroutine.
type Parked struct {
	limit int
	count atomic.Int64

	mu     sync.Mutex // guards the following
	source string
	keys   map[Group]Row
	others map[string]map[Group]Row // of sources that are not ours, or not yet
	full   map[string]error         // by source: what the topic says does not fit
}

// NewParked returns an empty set for at most limit keys.
func NewParked(limit int) *Parked {
	return &Parked{limit: limit, keys: make(map[Group]Row), others: make(map[string]map[Group]Row), full: make(map[string]error)}
}

// Source says whose rows Park and Follow speak of.
func (p *Parked) Source(source string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.source == source {
		return
	}
	p.others[p.source] = p.keys
	p.source = source
	if p.keys = p.others[source]; p.keys == nil {
		p.keys = make(map[Group]Row)
	}
	delete(p.others, source)
	p.count.Store(int64(len(p.keys)))
}

// Len is how many keys of the source are parked.
func (p *Parked) Len() int { return int(p.count.Load()) }

// Park has later rows of the group follow row.
func (p *Parked) Park(g Group, row Row) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.park(p.keys, g, row)
}

func (p *Parked) park(keys map[Group]Row, g Group, row Row) error {
	last, parked := keys[g]
	if !parked && len(keys) >= p.limit {
		return fmt.Errorf("%w (limit: %d)", ErrFull, p.limit)
	}
	if !parked || last.Compare(row) < 0 {
		keys[g] = row
	}
	p.count.Store(int64(len(p.keys)))
	return nil
}

// Follow says whether row has to follow an earlier one of its group, and if so
// counts it as the last one.
func (p *Parked) Follow(g Group, row Row) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, parked := p.keys[g]
	if parked && last.Compare(row) < 0 {
		p.keys[g] = row
	}
	return parked
}

// Read takes a record of the dead-letter topic, in the order of its partition. What
// is neither letter nor marker is passed over.
func (p *Parked) Read(m *sink.Message) {
	letter, marker, err := Parse(m)
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case marker != nil:
		keys := p.of(marker.Source)
		if last, parked := keys[marker.Group]; parked && last.Compare(marker.Through) <= 0 {
			delete(keys, marker.Group)
			p.count.Store(int64(len(p.keys)))
		}
	case letter.Keyed:
		if err := p.park(p.of(letter.Source), letter.Group, letter.Row); err != nil {
			p.full[letter.Source] = err
		}
	}
}

func (p *Parked) of(source string) map[Group]Row {
	if source == p.source {
		return p.keys
	}
	if p.others[source] == nil {
		p.others[source] = make(map[Group]Row)
	}
	return p.others[source]
}

// Err says that the topic holds more keys than fit.
func (p *Parked) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.full[p.source]
}
