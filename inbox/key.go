package inbox

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// Key names an event for a consumer: two deliveries with equal keys are one event. The zero Key
// names none.
type Key struct {
	text string
	at   time.Time
}

// maxKey is the longest id that is in the table as it is. Of a longer one, and of one that is not
// printable ASCII, the table has the SHA-256: a row of an index takes 2.7 kB, and not every
// database takes every character.
const maxKey = 256

// ByID is the key of an event with this header id. Scope is where ids are unique: the topic. An
// empty id is no key.
func ByID(scope, id string) Key { return key(scope, "i", id) }

// ByIdempotencyKey is the key of an event with this header idempotency_key, which an outbox keeps
// from being written twice. Scope is where keys are unique: the topic.
func ByIdempotencyKey(scope, idempotencyKey string) Key { return key(scope, "k", idempotencyKey) }

// ByPlace is the key of a record that has no other: its partition, offset and timestamp. What the
// consumer's side repeats has the same place. What is in the topic twice has two. The timestamp
// tells records of a topic that was deleted and created again.
func ByPlace(topic string, partition int32, offset int64, timestamp time.Time) Key {
	return key(topic, "p", fmt.Sprintf("%d-%d-%d", partition, offset, timestamp.UnixMilli()))
}

// key has the kind in it, as an id may equal another event's idempotency key.
func key(scope, kind, value string) Key {
	if value == "" {
		return Key{}
	}
	if !plain(scope) || strings.Contains(scope, "/") {
		scope = "~" + digest(scope)
	}
	if !plain(value) {
		kind, value = kind+"~", digest(value)
	}
	return Key{text: scope + "/" + kind + "/" + value}
}

func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return len(s) <= maxKey
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// At is the key with the time that counts for Prune, in place of the time of the claim. Give
// records' timestamps where old records may be read again late: keys then live as long by the
// clock of the records, and a consumer that was away for a month does not delete the keys that it
// needs. The zero time is the time of the claim.
func (k Key) At(at time.Time) Key { return Key{k.text, at} }

// IsZero reports whether the key names no event.
func (k Key) IsZero() bool { return k.text == "" }

// String is the key as the table has it: scope, kind and id. It is data of the event: do not log it.
func (k Key) String() string { return k.text }

const timeFormat = "2006-01-02T15:04:05.999999Z07:00"

// arrays are the keys and their times as literals of PostgreSQL, which every driver takes.
func arrays(keys []Key) (names, times string) {
	size := 2
	for i := range keys {
		size += len(keys[i].text) + 3
	}
	name, clock := make([]byte, 0, size+size/8), make([]byte, 0, len(keys)*30+2)
	name, clock = append(name, '{'), append(clock, '{')
	for i := range keys {
		if i > 0 {
			name, clock = append(name, ','), append(clock, ',')
		}
		name = append(name, '"')
		for s := keys[i].text; ; {
			j := strings.IndexAny(s, `"\`)
			if j < 0 {
				name = append(name, s...)
				break
			}
			name = append(append(name, s[:j]...), '\\', s[j])
			s = s[j+1:]
		}
		name = append(name, '"')
		if keys[i].at.IsZero() {
			clock = append(clock, "NULL"...)
		} else {
			clock = append(clock, '"')
			clock = keys[i].at.UTC().AppendFormat(clock, timeFormat)
			clock = append(clock, '"')
		}
	}
	return string(append(name, '}')), string(append(clock, '}'))
}
