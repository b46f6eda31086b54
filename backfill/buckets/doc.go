// Package buckets divides the rows of a table by their keys, so that a backfill can send one bucket
// after the other while it streams from the slot. It opens no connection.
//
// A bucket is pending until all its rows are read in one snapshot, and done afterwards. A streamed row of
// a pending bucket is left out: it is in the table, and is read with its bucket. One of a done bucket is
// left out if the snapshot has its transaction, and is sent otherwise. So of each key come first the rows
// that the snapshot has, in the table's order, and then all others, in the stream's.
package buckets
