// Package kafkainbox is a consumer group that handles each event once, in PostgreSQL. A Consumer
// reads records, claims their keys and calls the handler in one transaction, and commits the
// offsets to Kafka after that: database first, offset after. What comes twice is dropped by its
// key, whoever sends it twice: the relay, this consumer after a crash, or another member of the
// group that believes to own the partition still.
//
// Records of one key are handled in the order of the partition, one after another, also while
// partitions move between members: a round claims all its keys before the handler runs, so a
// second owner waits at the first key that both have, and then finds it claimed.
//
// A record that fails is tried again, alone. Then the partition waits for a cure, or the record
// becomes a dead letter: see Config.DeadLetterTopic.
package kafkainbox
