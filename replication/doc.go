// Package replication turns a PostgreSQL logical replication slot into batches of rows: inserts,
// and where a table or a message prefix asks for them other changes and logical messages.
//
// It owns the replication connection. It promises that batches come in commit order
// with every byte of the stream accounted for, and that it reports no position to the
// server which the consumer has not confirmed. It does not guess: a message that cannot be
// decoded, a configured table that was replaced, or a publication that was dropped ends the
// stream with the LSN, and no row is left out instead.
//
// The walk of a message: Stream reads frames from the socket (frames.go), hands
// each WAL message to pgoutput's Decoder, which copies the row's bytes once into a
// slab (wal), and offers the collected Batch to the consumer. status.go decides which
// position is reported to the server and when; unread.go keeps a connection alive whose rows
// nobody takes. Package socket decides how the socket is read in a backlog. Before a stream
// starts, postgres/catalog reads everything that it depends on.
package replication
