// Package kafka makes records durable in Kafka at least once, in the order of each key.
//
// Sink gives records to one idempotent producer. What it has in common with the sink of transactions
// (package kafkatx) is package producer. Package relay opens it.
//
// # Order under failure
//
// The Kafka sink gives records to one idempotent franz-go client with acks=all,
// endless retries and no delivery timeout, so whatever may heal by itself is
// retried inside the client in order. What remains are answers that no retry
// changes: a record that is too large, a topic that is missing, a permission
// that was taken. franz-go then fails everything buffered for that partition
// and, left alone, would deliver the records produced a moment later: record
// N+1 of a key durable, record N not. Four things prevent that.
//
//  1. Halt. The promise of the first failed record stops Send, and the abort of
//     the client's buffers ends what was not written yet. A batch already on the
//     wire after the failed one of its partition is out of sequence for the
//     broker, which refuses it.
//  2. The gate. Promises run some time after franz-go has emptied the partition,
//     and in that time Send may buffer another record that would be written
//     (the client bumps the producer epoch by itself, without asking a broker).
//     Such a record is the first of its partition's buffer, and before franz-go
//     writes a batch that was never written and is first in its buffer, it looks
//     at the context of that batch's first record. That context is ours: it
//     waits until the outcome of every earlier record of the partition is known
//     to the sink, and then is done if the sink has halted. It is never done
//     otherwise, as one cancelled context would fail the records beside it.
//  3. One at a time where there is no buffer: a record whose topic is not loaded
//     holds back the others of its topic until it has a partition or has failed, and
//     Send until then, because franz-go fails such records one by one and not in the
//     order of the others.
//  4. One at a time after a long idle time. A broker forgets a producer a day after the
//     latest timestamp it sent (producer.id.expiration.ms), and then takes any sequence: the
//     batch after a refused one too. The client fails both, so nothing would report it. The
//     first record for a partition that had none for idleTime therefore holds back the
//     others of its topic until it is answered, and with it the broker knows the producer
//     again. Send waits only when it is given another record of that topic. This costs one
//     round trip for each such partition, and while the partition has no leader, the
//     second record of its topic holds up Send, and so every topic.
//
// Should a broker still acknowledge a record after a failed one of its
// partition (it may have forgotten the producer, and then takes any sequence),
// the sink reports the later record as failed as well, so that the caller sends
// both again, in order, and the last value of each key is right. Overtaken
// counts them.
//
// What is given up while it is on its way, because the slot is lost, may land later.
// Abandon keeps the producer id for that: the client raises its epoch, and brokers refuse
// the batches of the older one after those of the newer. And a connection that is closed
// delivers nothing any more (dial).
//
// A new client is given no record before it has its producer id (begin). If the brokers refuse the id
// while the client loads a record's topic, the client never calls that record's promise.
//
// The order that is kept is that of a partition. Records of one key share a
// partition unless their explicit partitions differ or partitions are added to
// the topic.
package kafka
