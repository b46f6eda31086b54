// Package replication turns a PostgreSQL logical replication slot into batches
// of inserted rows.
//
// It owns the replication connection. It promises that batches come in commit order
// with every byte of the stream accounted for, and that the server is told no position
// which the consumer has not confirmed. It refuses to guess: a message it cannot
// decode, a configured table that is no longer the one it was, or a publication
// that is gone ends the stream with the LSN, never with rows left out.
//
// The walk of a message: Stream reads frames from the socket (frames.go), hands
// each WAL message to pgoutput's Decoder, which copies the row's bytes once into a
// slab (wal), and offers the collected Batch to the consumer. What the server is told,
// and when, is in status.go; how the socket is read in a backlog, in pace.go. Before a
// stream starts, postgres/catalog asks for everything it depends on.
package replication
