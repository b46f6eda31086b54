// Package delivery is what a relay does with a routed batch, until its last record is durable.
// A session owns the connection and the window; it hands each batch to its Delivery, which has
// two implementations of one interface, guarantee (delivery.go): atLeastOnce and exactlyOnce.
//
// Where a row goes that Kafka rejects. Recover (at_least_once.go) waits until every send is
// answered, and sends the failed records again, alone at first. A record that fails alone with
// class Rejected (package sink) is the rejected one. decide applies relay.on_reject to it: the
// relay blocks (waitAtRecord), or a dead letter takes the record's place, or the row is skipped. A
// record that fails with class Blocked (an unknown topic, authorization) or Retry is tried again
// (waitAtRecord), whatever relay.on_reject says. With exactly-once the sink finds the
// record by bisection, and the next session sends the transaction with the dead letter in its place
// (exactly_once_rejected.go). A row that the router refuses takes the same three ways
// (rejected.go). Package rejected counts and logs these rows, and makes their letters.
//
// What moves the confirmed position. InFlight.countDown: the last acknowledged record of a batch
// calls Ticket.Done, and the tracker moves the position when every earlier batch is done too. A
// dead letter is acknowledged like a record; a skipped row counts as done. Ticket.Partial does the
// same for the transactions at a batch's beginning (in_flight.go, positions.go). Nothing else here
// raises the position; Limit only lowers it. The session itself gives the tracker a batch without
// rows; its position comes here (Pass) for exactly-once. The argument is in package checkpoint.
//
// What exactly-once does differently (exactly_once.go). Records and the position after them are
// committed in one Kafka transaction. Rows that the position covers are skipped, and confirmed when
// the stream has shown that it has the position's history (follow). Nothing is retried inside a
// session: any failure aborts the transaction and ends the session, and the next one starts from the
// committed position. No position beyond that is reported to the server (Limit), and a session's
// start fences every earlier one.
package delivery
