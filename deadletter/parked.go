package deadletter

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cdc-relay/cdc-relay/sink/topics"
)

// MaxParked is the maximum number of parked keys, about 20 MiB of memory. Beyond it a rejected
// row blocks.
const MaxParked = 100_000

// ErrFull means that no further key can be parked.
var ErrFull = errors.New("too many keys are parked; list the dead letters with `cdc-relay deadletter list`, fix the cause, and send them with `cdc-relay deadletter redrive --all --yes`")

// Parked is the set of keys of one source whose rows go to the dead-letter topic. Its methods may
// be called from any goroutine.
//
// A key is parked while the topic holds a letter of it that no marker covers, and from Park or
// Follow until that row's letter was read.
type Parked struct {
	limit int
	slot  string // whose letters count; empty: those of any
	count atomic.Int64

	mu     sync.Mutex // guards the following
	source string
	keys   parkedKeys
	others map[string]parkedKeys // of sources that the slot may turn out to be of
	full   map[string]error      // by source: what the topic says does not fit
}

type parkedKeys map[Group]*parkedKey

// parkedKey is what is known of one key.
type parkedKey struct {
	first ID     // lowest record that was set aside: the ones before it were delivered
	sent  ID     // highest record whose letter was announced and not read yet; zero: none
	spans []span // of the partitions with letters that wait: one as a rule

	repeated bool // records from before first were repeated, and may be on their way: see Overtakes
}

func (k *parkedKey) free() bool { return k.sent == ID{} && len(k.spans) == 0 }

// NewParked returns an empty set for at most limit keys. slot selects the rows of a slot, in any
// database system; empty selects all.
func NewParked(limit int, slot string) *Parked {
	return &Parked{limit: limit, slot: slot, keys: make(parkedKeys), others: make(map[string]parkedKeys), full: make(map[string]error)}
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
		p.keys = make(parkedKeys)
	}
	delete(p.others, source)
	p.count.Store(int64(len(p.keys)))
}

// Len is how many keys of the source are parked.
func (p *Parked) Len() int { return int(p.count.Load()) }

// Waiting is how many keys of the source have a letter that was read and waits. Others are parked for
// a letter that was only announced.
func (p *Parked) Waiting() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.keys {
		if len(k.spans) > 0 {
			n++
		}
	}
	return n
}

// Park has later records of the group follow a record whose letter is about to be sent.
func (p *Parked) Park(g Group, id ID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	k, err := p.key(p.keys, g, id)
	if err == nil && k.sent.Compare(id) < 0 {
		k.sent = id
	}
	return err
}

// key finds or adds a key that a record of was set aside.
func (p *Parked) key(keys parkedKeys, g Group, id ID) (*parkedKey, error) {
	k := keys[g]
	switch {
	case k == nil && len(keys) >= p.limit:
		return nil, fmt.Errorf("%w (limit: %d)", ErrFull, p.limit)
	case k == nil:
		k = &parkedKey{first: id}
		keys[g] = k
		p.count.Store(int64(len(p.keys)))
	case id.Compare(k.first) < 0:
		k.first = id
	}
	return k, nil
}

// Follow reports whether a record has to follow an earlier one of its group; the caller then
// sends its letter. A record from before the group's first letter was delivered earlier and is
// only repeated, so it goes to its topic.
func (p *Parked) Follow(g Group, id ID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.keys[g]
	if k == nil || id.Compare(k.first) < 0 {
		return false
	}
	if k.sent.Compare(id) < 0 {
		k.sent = id
	}
	return true
}

// Overtakes reports whether the letter of a record may be durable before repeated records of its
// group, which are on their way to their own topic: a redrive would then send it ahead of them. A
// record from before the group's first letter is such a repeated one, and is remembered until Settled.
func (p *Parked) Overtakes(g Group, id ID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.keys[g]
	if k == nil {
		return false
	}
	if id.Compare(k.first) < 0 {
		k.repeated = true
		return false
	}
	return k.repeated
}

// Settled notes that no record is on its way.
func (p *Parked) Settled() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.keys {
		k.repeated = false
	}
}

// Gone forgets announced letters that will never be written, because the server's history left
// their rows after a fork. Letters in the topic stay.
func (p *Parked) Gone(gone func(ID) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for g, k := range p.keys {
		if k.sent != (ID{}) && gone(k.sent) {
			k.sent = ID{}
			p.release(p.keys, g)
		}
	}
}

// release forgets a key of which nothing waits.
func (p *Parked) release(keys parkedKeys, g Group) {
	if keys[g].free() {
		delete(keys, g)
		p.count.Store(int64(len(p.keys)))
	}
}

// Read adds a record of the dead-letter topic, in the order of its partition. It ignores records
// that are neither letter nor marker. nil means that the topic was deleted and recreated.
func (p *Parked) Read(m *topics.Message) {
	if m == nil {
		p.forget()
		return
	}
	letter, marker, err := Parse(m)
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case marker != nil && p.counts(marker.Source):
		p.applyMarker(marker)
	case letter != nil && letter.Keyed && p.counts(letter.Source):
		p.letter(letter)
	}
}

// forget drops what was read: those letters are gone. A key stays parked while one of it is
// on its way.
func (p *Parked) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.others)
	clear(p.full)
	for g, k := range p.keys {
		k.spans = nil
		p.release(p.keys, g)
	}
}

// counts leaves out the letters of other pipelines, which may be many and share the topic.
func (p *Parked) counts(source string) bool {
	_, _, slot := SplitSource(source)
	return p.slot == "" || p.slot == slot
}

func (p *Parked) letter(l *Letter) {
	k, err := p.key(p.of(l.Source), l.Group, l.ID)
	if err != nil {
		p.full[l.Source] = err
		return
	}
	if k.sent == l.ID {
		k.sent = ID{}
	}
	i := slices.IndexFunc(k.spans, func(s span) bool { return s.partition == l.Partition })
	if i < 0 {
		k.spans = append(k.spans, span{partition: l.Partition, first: l.Offset, last: l.Offset, row: l.Place})
		return
	}
	s := &k.spans[i]
	if s.last = l.Offset; s.row.Compare(l.Place) < 0 {
		s.row = l.Place
	}
}

// applyMarker drops the marker's partition from its key when no letter of the key waits there.
func (p *Parked) applyMarker(m *Marker) {
	keys := p.of(m.Source)
	k := keys[m.Group]
	if k == nil {
		return
	}
	for i := range k.spans {
		s := &k.spans[i]
		if s.partition == m.Partition && (m.byRow && s.row.Compare(m.Through) <= 0 || s.cover(m.Offsets)) {
			k.spans = slices.Delete(k.spans, i, i+1)
			break
		}
	}
	p.release(keys, m.Group)
}

func (p *Parked) of(source string) parkedKeys {
	if source == p.source {
		return p.keys
	}
	if p.others[source] == nil {
		p.others[source] = make(parkedKeys)
	}
	return p.others[source]
}

// Err is an error where the topic holds more keys than fit.
func (p *Parked) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.full[p.source]
}
