// Package wal is what the stream of a slot consists of: rows, their relations and values, the
// batches they come in with the memory that these share, names of tables, and where a
// position means something.
//
// It imports nothing of the module and opens no connection. pgoutput makes its rows, router
// and everything after it read them.
package wal
