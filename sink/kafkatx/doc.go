// Package kafkatx makes records durable in Kafka transactions that hold the position after
// them, for exactly-once.
//
// A Sink opens a producer session, which its first failure ends; a session puts what was
// sent into transactions, whose last record is the checkpoint. Package producer has
// what it shares with package kafka, and topics reads the checkpoints. The relay builds it.
package kafkatx
