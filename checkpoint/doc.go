// Package checkpoint computes the greatest position that may be confirmed to PostgreSQL. Package
// relay may lower it before it is reported (session.confirmed), and never raises it.
//
// The server keeps every transaction whose commit record starts at or after the confirmed
// position, and never sends an earlier one again. A position that is too high therefore loses
// rows, and the server does not check it. This is the argument that the position is never too
// high.
//
// It assumes: a walsender names a position only after every commit before it (protocol 1, without
// streaming and two_phase: startCommand of package replication); brokers keep what they
// acknowledged (acks=all); the publication sends every row of its tables, and a change of it freezes
// the position (drift of package relay).
//
//  0. A tracker begins at the position from which the server began to stream (New; newSession of
//     package relay gives it Stream.StartLSN, the slot's confirmed position). The server sends no
//     transaction that commits before it, whatever is reported.
//  1. Entries go into one queue in the order in which they were read from the
//     socket. A walsender puts a position on the wire only after everything that
//     commits before it, so no other order is safe. One goroutine fills the queue,
//     in the order in which batches were read (session.take and session.admit call Track).
//     A batch enters only if every earlier batch has entered. Whoever drops a batch ends the session,
//     and with it this tracker: Stream.flush and Stream.offer when they are interrupted or the
//     connection fails, session.take when it returns an error, session.readThrough,
//     and session.run after the deliverer has ended. So does whoever drops rows before they are
//     decoded (Stream.roomToRead): nothing that was read behind them is decoded. What comes after
//     Stream.Run has returned is never decoded (reportUntilClose, discard).
//  2. An entry's position is the end of a commit, or a keep-alive, that lies wholly
//     in that entry or before it. It is never the position of a row, nor that of
//     a transaction whose commit has not been read: inside a transaction the decoder drops a
//     keep-alive's position (Decoder.Idle of package pgoutput). A message outside any transaction is
//     a row, and gives its entry no position.
//  3. An entry is done when every one of its rows is done. An entry without rows is done at
//     once (Track). A row is done when every record that the router made of it (none, one or
//     several) is done. A record is done when the brokers have acknowledged it, with exactly-once
//     when its Kafka transaction is committed. The same holds for the dead letter in its place. A
//     skipped record is done at once (relay.on_reject: skip). These rows become no record: one that
//     a mapping leaves out, one that was skipped, one that another relay delivered
//     (Config.AlreadySent of package relay), and one that an earlier session or a committed
//     checkpoint covers; docs/adr/002 argues that a row has the same number in every session.
//     InFlight.countDown of package delivery counts the sends of a batch, and the routing, which
//     is over when all rows are routed and none is held. The last one calls Ticket.Done.
//     Ticket.Partial reports the end of a transaction of the entry when every row up to it is done.
//     It has two callers. InFlight.confirmBefore calls it, after settle or in waitAtRecord, when every
//     record of these rows was handed to the sink and acknowledged. InFlight.confirmBeforeHeld calls it
//     when only the held rows at the end of the batch are not done. The reported end counts as the
//     entry's position, but only while the entry is the oldest pending one.
//  4. Confirmable is the greatest position among the done entries that no pending
//     entry precedes, and the tracker's first position without one.
//
// So every transaction that commits before Confirmable is in the entry that carried it, or in an
// earlier one, and is done; or it commits before the first position. A keep-alive passes through
// the same queue as rows. The rule "nothing is in flight, so confirm the server's position" would
// lose data, and this package cannot express it.
//
// A second check does not rely on this argument: status.check of package replication refuses a
// position beyond what was read, reports nothing, and ends the stream. It cannot see an
// acknowledgement that is counted too early.
package checkpoint
