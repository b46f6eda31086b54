// Package relay joins the four rooms: it opens the stream, routes its rows, hands
// the records to the sink, and lets the tracker decide what is confirmed.
//
//	             goroutine A                goroutine B               client's
//	PostgreSQL ──► Stream.Run ──► Batch ──► session.take ──► Sink.Send ──► Kafka
//	     ▲                                   Router.Route           │
//	     └── status ◄── Tracker.Confirmed ◄──────────── Ticket.Done ┘
//
// A session is one connection's life. Its intake ends first, by the operator's
// signal or by a failure; its delivery ends later, when what was handed to the
// sink is acknowledged or the drain is over. Two sessions never overlap.
//
// A record that the brokers refuse does not end the session. The sink halts, the
// rows that are not acknowledged stay in memory, and goroutine B sends exactly
// them again, in order, until they are durable (at_least_once.go). PostgreSQL is
// answered all the while and sees nothing but a position that does not move.
//
// Errors are sorted by what has to happen next. Retry: reconnect after a pause.
// Refused: what PostgreSQL or Kafka will not do for this configuration; the
// process ends if streaming never began. Blocked: the same later, or a row that
// cannot be delivered; the relay stays up, confirms nothing past it, and tries
// again. What is in none of these classes is treated as blocked.
package relay
