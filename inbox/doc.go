// Package inbox has a consumer handle each event once, whatever is delivered twice. The key of an
// event is claimed in the transaction that does the work, so that both commit or neither does.
//
// An Inbox takes the caller's transaction as a Tx: SQL makes one of a *sql.Tx and of what wraps it,
// pgxinbox.Tx makes one of a pgx.Tx. Package kafkainbox is a whole consumer of Kafka above it.
//
// What a handler does outside of its transaction (a mail, a call) is not covered: give the other
// side the event's key, or write an outbox event in the transaction.
package inbox
