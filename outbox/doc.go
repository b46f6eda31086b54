// Package outbox writes events into a transactional outbox: the table, in the service's own
// database, from which cdc-relay sends them to Kafka. An event is written in the transaction
// that changes the data, so that both commit or neither does.
//
// A Writer takes the caller's transaction as a Tx: SQL makes one of a *sql.Tx and of the
// transactions of GORM, sqlx, bun, ent and sqlc; pgxoutbox.Tx makes one of a pgx.Tx. The Writer
// neither begins nor ends a transaction.
//
// An event that the relay could not send would stop the relay at its row, so the Writer
// refuses such an event before any statement is sent: see EventError.
package outbox
