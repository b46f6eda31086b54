// Package pgoutput turns the messages of pgoutput's protocol 1 into rows and batches.
//
// It is pure: bytes in, batches out, no socket and no clock. It imports wal and fault;
// replication feeds it.
package pgoutput
