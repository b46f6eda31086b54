package deadletter

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// Restored is what the row that has a letter's event id makes now.
type Restored struct {
	Record  *record.Record
	Payload []byte // the payload column as it is
}

// hashOf is a value's hash, as a header has it.
func hashOf(value []byte) string {
	sum := sha256.Sum256(value)
	return hex.EncodeToString(sum[:])
}

// likeness reports whether the row that has the letter's event id now is unchanged since the letter
// was written.
type likeness byte

const (
	unknown likeness = iota // the letter has nothing of the value
	same
	changed
)

func (l *Letter) compare(now Restored) likeness {
	missing := slices.Contains(l.Missing, router.PartValue)
	like := func(equal bool) likeness {
		if equal {
			return same
		}
		return changed
	}
	switch {
	case !missing:
		return like(bytes.Equal(l.Record.Value, now.Record.Value) && (l.Record.Value == nil) == (now.Record.Value == nil))
	case l.ValueHash != "":
		return like(l.ValueHash == hashOf(now.Record.Value) || l.ValueHash == hashOf(now.Payload))
	case l.Record.Value != nil: // the payload, of which no value could be made
		return like(bytes.Equal(l.Record.Value, now.Payload))
	}
	return unknown
}

// accept decides whether the row may complete the letter. A row with another key may be another
// row and is refused. With the same key and another value, it was changed, which the redrive
// reports. Without a key, only the value tells two rows with one event id apart.
func (l *Letter) accept(now Restored) (likeness, error) {
	if !slices.Contains(l.Missing, router.PartKey) && !bytes.Equal(now.Record.Key, l.Record.Key) {
		return changed, l.another("makes another key")
	}
	found := l.compare(now)
	if found == changed && !l.keyTells() {
		return changed, l.another("holds another value, and no key of its own tells it from others")
	}
	return found, nil
}

// keyTells reports whether the key tells rows of one event id apart. Rows of a table without
// a key have the event id for one.
func (l *Letter) keyTells() bool {
	return !slices.Contains(l.Missing, router.PartKey) && l.Record.Key != nil && string(l.Record.Key) != l.EventID()
}

func (l *Letter) another(how string) error {
	return fmt.Errorf("the letter at partition %d, offset %d is not complete, and the row that now has its event id %s: it may be another row; discard the letter, and write the event again", l.Partition, l.Offset, how)
}
