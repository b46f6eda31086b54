// Package backfill sends the rows that were in a table before its slot existed, each key's in
// order, and hands over to the stream without a gap and without an overlap.
//
//  1. A slot named as the configured one with the ending _backfill is made, and the snapshot of
//     its creation exported. What committed before its beginning C is in the snapshot, the rest
//     in the slot. A second connection imports the snapshot; a stream is opened from the slot and
//     not read, so that the slot is in use and confirms nothing.
//  2. The rows of the snapshot are read in an order (postgres/snapshot), and go through the
//     ordinary relay: router, window, sink, retries, dead letters. A row's position is its
//     number. What a session confirms is therefore a number, and stands for a place in the order.
//  3. That place is the progress. It is written to the checkpoint topic after the acknowledgement,
//     once a second; with exactly-once in the Kafka transaction of the rows (transactional).
//  4. When all rows are acknowledged, the slot is copied to the configured name, or names of
//     shards: a copy begins at C too. Then the first positions and what is known of the rows
//     before are written, and the slot of the backfill is dropped last.
//
// Nobody streams from the configured slot before all old rows are acknowledged, because it does
// not exist. So the slot's name is the mark of a half-finished backfill, and progress.State takes
// what follows from it.
//
// An interrupted backfill reads on with a new snapshot, from the place done to the last place of
// the first snapshot. A row of the first snapshot is either at done or before, and acknowledged,
// or after it and read now. The first snapshot is made of the WAL, which has a commit before a
// snapshot of SQL sees it, so that the call waits first for every transaction that is open. It
// takes an order without equal rows in which no row moves, and conditions that mean the same rows
// to each transaction; without such an order, or without a checkpoint topic, a backfill begins
// anew with another slot. Rows that committed after C and lie in that range are in the slot too.
// With at-least-once they come twice, in order both times, as after a restart of the relay. With
// exactly-once they are looked up in the slot first, and left to it (late).
//
// With Options.Online the rows are divided into buckets by their keys (package buckets), and the slot moves:
//
//  1. A snapshot is taken, and all rows of one bucket are sent from it. The slot is not read meanwhile.
//  2. The slot is streamed to the end of the WAL. Rows of pending buckets are left out, and so are those that the
//     snapshot of the last bucket has. What those before it have lies before the stream. Then the progress says up to
//     where all is delivered, and the slot is moved there: a server that crashes may take it back, never further on.
//  3. The next snapshot has every transaction of which rows were left out, or that committed before the slot. So such a
//     row is read with its bucket, unless somebody deleted it or changed its key: that is what Options.RowsAreKept
//     promises.
//  4. A commit is in the WAL before a snapshot sees it, and two may be seen the other way round. So the snapshot is
//     compared with the WAL around it, and taken again where it has a row of a key and lacks an earlier one. It is
//     used when its WAL is flushed: a crash would give the ids of lost transactions to others.
//  5. After the last bucket the slots are copied from where the slot stands (Progress.Copied), not from C.
//
// The progress names the last transactions that were streamed and seen. A call that finds the slot before them compares
// its stream with them. A server with others has another history, in which the ids of the snapshot belong to other
// transactions. On the same one the slot is moved to where all is delivered, so that nothing comes again.
package backfill
