// Package topics looks after topics: it checks, creates, reads and follows them.
//
// It has the checks of `cdc-relay check`, the topics of the relay's own (the dead letters and
// the checkpoints, with the Ledger of positions in it), and Creator, which makes a topic that
// is missing at its first record. It sends no rows, and knows nothing of the senders.
package topics
