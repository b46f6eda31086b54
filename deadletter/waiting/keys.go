package waiting

import (
	"context"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/topics"
)

// Load reads the dead-letter topic to its present end, as deadletter.ReadBacklog does.
func Load(ctx context.Context, at broker.Connection, topic string, own func(source string) bool) (*Set, error) {
	s := New(own)
	err := topics.ReadWhole(ctx, at, topic, deadletter.OpenPatience, func() {}, func(m *topics.Message) error { s.Read(m); return nil })
	return s, err
}

// Sources counts the letters that counts selects, by their sources.
func (s *Set) Sources(counts func(source, table string, of deadletter.Table) bool) map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := make(map[string]int)
	for of, letters := range s.groups {
		for _, one := range letters {
			if counts(of.source, one.table, one.of) {
				found[of.source]++
			}
		}
	}
	return found
}

// Oldest is the first row of a key that has a letter that waits.
type Oldest struct {
	Table string
	wal.Place
}

// Keys are the keys with letters that wait.
type Keys map[deadletter.Group]Oldest

// Keys are those of all letters of the set.
func (s *Set) Keys() Keys {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := make(Keys, len(s.groups))
	for of, letters := range s.groups {
		for _, one := range letters {
			if known, ok := keys[of.group]; !ok || one.row.Compare(known.Place) < 0 {
				keys[of.group] = Oldest{one.table, one.row}
			}
		}
	}
	return keys
}

// Of is what waits of a topic's key. A letter whose topic is not known may be of any topic.
func (k Keys) Of(topic string, key []byte) (Oldest, bool) {
	routed, ok := k[deadletter.KeyGroup(topic, key)]
	unrouted, also := k[deadletter.UnroutedGroup(key)]
	if also && (!ok || unrouted.Compare(routed.Place) < 0) {
		return unrouted, true
	}
	return routed, ok
}
