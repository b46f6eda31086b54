// Package topics checks, creates, reads and follows topics. It sends no rows and does not import
// the senders.
//
// It has the Kafka part of `cdc-relay check`, the relay's own topics (dead letters and
// checkpoints, with the Ledger of positions), and Creator, which creates a missing topic at its
// first record.
package topics
