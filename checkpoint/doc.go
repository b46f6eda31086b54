// Package checkpoint decides which position may be confirmed to PostgreSQL. No other package
// does.
//
// The server keeps every transaction whose commit record starts at or after the confirmed
// position, and never sends an earlier one again. A position that is too high therefore loses
// rows, and the server does not check it. This is the argument that the position is never too
// high:
//
//  1. Entries go into one queue in the order in which they were read from the
//     socket. A walsender puts a position on the wire only after everything that
//     commits before it, so no other order is safe. One goroutine fills the queue,
//     in the order in which batches were read.
//  2. An entry's position is the end of a commit, or a keep-alive, that lies wholly
//     in that entry or before it. It is never the position of a row, nor that of
//     a transaction whose commit has not been read.
//  3. An entry is done when every one of its rows is done. A row is done when the
//     brokers have acknowledged its record or its dead letter, when it was skipped
//     (relay.on_reject: skip), when another relay delivered it (Config.Delivered of
//     package relay), or when an earlier session or a committed checkpoint covers it.
//     If only the rows up to the end of one of its transactions are done,
//     Partial reports that end. The end then counts as the entry's position, but
//     only while the entry is the oldest pending one.
//  4. Confirmed is the greatest position among the done entries that no pending
//     entry precedes.
//
// So every transaction that commits before Confirmed is in the entry that carried it, or in an
// earlier one, and is done. A keep-alive passes through the same queue as rows. The rule
// "nothing is in flight, so confirm the server's position" would lose data, and this package
// cannot express it.
package checkpoint
