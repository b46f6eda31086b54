// Package checkpoint decides what may be confirmed to PostgreSQL. Nothing else
// does.
//
// The server keeps every transaction whose commit record starts at or after the
// position that we confirm, and forgets every one before it. Confirming too much
// therefore loses rows, and the server does not check what it is told. The
// argument that we never do:
//
//  1. Entries go into one queue in the order in which they were read from the
//     socket. A walsender puts a position on the wire only after everything that
//     commits before it, so the order of the socket is the order of safety, and
//     only the goroutine that follows it may fill the queue.
//  2. An entry's position is the end of a commit or a keep-alive that lies wholly
//     in that entry or before it. It is never the position of a row, nor that of
//     a transaction whose commit has not been read.
//  3. An entry is done when every one of its rows was acknowledged by the brokers.
//     Or its transactions up to some end are, and it says so (Partial): then that
//     end counts as its position for as long as it is the oldest pending entry.
//  4. Confirmed is the greatest position among the done entries that no pending
//     entry precedes.
//
// So whatever commits before Confirmed is in an entry at or before the one that
// carried it, and is acknowledged. A keep-alive takes the same way as a row: the
// rule "nothing seems to be in flight, so confirm the server's position" cannot
// be written down here, which is as well, for it loses data.
package checkpoint
