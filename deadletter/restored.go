package deadletter

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/cdc-relay/cdc-relay/router"
)

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
	recoded // it cannot be known: another schema encodes the value, see Restored
)

func (l *Letter) compare(now Restored) likeness {
	missing := slices.Contains(l.Missing, router.PartValue)
	like := func(equal bool) likeness {
		switch {
		case equal:
			return same
		case now.Recoded:
			return recoded
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
	if l.Body != nil { // it is made of the letter itself
		return same, nil
	}
	if !l.sameKey(now) {
		return changed, l.another("makes another key")
	}
	found := l.compare(now)
	if found == changed && !l.keyTells() {
		return changed, l.another("holds another value, and no key of its own tells it from others")
	}
	if found == recoded && !l.keyTells() {
		return found, fmt.Errorf("the letter at partition %d, offset %d is not complete, and %s: bring the schema back, or discard the letter, and write the event again", l.Partition, l.Offset, l.schemaGone())
	}
	return found, nil
}

// schemaGone is why nothing shows whether a row is the letter's.
func (l *Letter) schemaGone() string {
	return fmt.Sprintf("schema %d, which encoded its value, is not in the registry any more, so that nothing shows which row it was made of", l.Schema)
}

// sameKey reports whether the row's record has the key of the letter's, as far as that is known.
func (l *Letter) sameKey(now Restored) bool {
	return slices.Contains(l.Missing, router.PartKey) || bytes.Equal(now.Record.Key, l.Record.Key)
}

// keyTells reports whether the key tells rows of one event id apart. Rows of a table without
// a key have the event id for one.
func (l *Letter) keyTells() bool {
	return !slices.Contains(l.Missing, router.PartKey) && l.Record.Key != nil && string(l.Record.Key) != l.EventID()
}

func (l *Letter) another(how string) error {
	return fmt.Errorf("the letter at partition %d, offset %d is not complete, and the row that now has its event id %s: if the mapping was changed since, run this with the mapping of that time; else it may be another row; discard the letter, and write the event again", l.Partition, l.Offset, how)
}
