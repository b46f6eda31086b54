package stored

import (
	"strconv"
	"strings"
)

// Key is the key of a slot's records in the checkpoint topic.
func Key(system, slot string) string { return system + "/" + slot }

// PromiseKey is the key of one holder's promised position. Each holder has its own, so that what a
// frozen one writes late takes nothing back. The key says intent, which was the word: topics have it.
func PromiseKey(holder, system, slot string) string {
	return "intent of " + holder + PromiseSuffix(system, slot)
}

// PromiseSuffix ends the promise keys of all who had the slot.
func PromiseSuffix(system, slot string) string { return " for " + Key(system, slot) }

// TransactionalID is that of whoever streams from the slot. It is the same on every
// host and after every failover, so that the newest holder fences all others.
func TransactionalID(system, slot string) string { return TransactionalPrefix + system + "-" + slot }

// TransactionalPrefix begins every transactional id, for a prefixed ACL.
const TransactionalPrefix = "cdc-relay-"

// BeforeSlotKey is the key of the record. It must not end like a promise's key: relays read and
// delete the keys with that ending.
func BeforeSlotKey(system, slot string, oid uint32) string {
	return beforeSlotPrefix + strconv.FormatUint(uint64(oid), 10) + BeforeSlotSuffix(system, slot)
}

// BeforeSlotSuffix ends the keys of a slot's records, of all tables.
func BeforeSlotSuffix(system, slot string) string { return ": " + Key(system, slot) }

// StreamedKey is the key of the record of which tables are streamed. It ends like those of BeforeSlotKey, so
// that one reading has all.
func StreamedKey(system, slot string) string {
	return "tables streamed" + BeforeSlotSuffix(system, slot)
}

const beforeSlotPrefix = "before the slot of table "

// LettersTopicKey is the key of the record of a pipeline, whose slot is named without the suffix of
// a shard. It must not end like a promise's key either, nor like those of BeforeSlotKey.
func LettersTopicKey(system, slot string) string { return "dead letters of " + Key(system, slot) }

// LettersTopicSlot is the slot of a LettersTopicKey of that system; false: it is another key.
func LettersTopicSlot(system, key string) (slot string, ok bool) {
	return strings.CutPrefix(key, LettersTopicKey(system, ""))
}

// BackfillKey is the key under which a backfill keeps how far it came, of the slot that it makes
// at its end. It must not end like a promise's key either.
func BackfillKey(system, slot string) string { return "backfill of " + Key(system, slot) }

// BackfillStreamKey is the key of the position of a backfill that streams before the slot is made, of one shard.
func BackfillStreamKey(system, slot string) string { return "backfill stream of " + Key(system, slot) }

// ReplayKey is the key under which one run of a replay keeps how far it came.
func ReplayKey(run, system, slot string) string { return "replay " + run + " of " + Key(system, slot) }
