// Package relay joins the stages: it takes batches from the stream, has them routed, waits for
// room in the window, has their records sent, and confirms what the tracker returns.
//
//	goroutine:     reader                  deliverer               franz-go's
//	PostgreSQL ──► Stream.Run ──► Batch ──► session.take ──► Sink.Send ──► Kafka
//	     ▲                              Delivery.Route/Send         │
//	     └── session.confirmed ◄── Tracker.Confirmable ◄─ Ticket.Done ┘
//
// A session is one connection's life, with two goroutines, the reader and the deliverer. With
// exactly-once a third is the sink's (sink/kafkatx/session.go), and with relay.detect_moved_slot one
// raises a promised position. A callback of the client counts acknowledgements, runs the events and
// finishes tickets; it must not block. A session's intake ends first, by the operator's signal or
// by a failure (ctx); its delivery ends later, when every sent record is acknowledged or the drain
// is over (deliveryCtx). Two sessions never overlap.
//
// A record that the brokers reject does not end a session with at-least-once. The sink halts, the
// rows that are not acknowledged stay in memory, and the deliverer sends exactly these again, in
// order, until they are durable (package delivery). PostgreSQL is answered meanwhile, and its
// slot's position does not move.
//
// Errors are sorted by what has to happen next (package ending). Retry: reconnect after a pause.
// Refused: PostgreSQL or Kafka refuses this configuration before streaming began; the process ends.
// Blocked: they refuse it later, or a row cannot be delivered; the relay stays up, confirms
// nothing past it, and tries again. An unknown error counts as blocked.
package relay
