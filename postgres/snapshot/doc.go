// Package snapshot reads the rows of a table under one snapshot, in an order in which reading
// can be taken up again.
//
// A Holder keeps the snapshot, as the importer of the one that a slot's creation exported, or as
// its own. Each Reader imports it from the Holder and reads with one plain SELECT, so that a
// reading that breaks off costs a connection and not the snapshot. Values come as text under the
// settings of the stream, with the columns that the publication shows: the row is the one that
// the stream would have brought.
package snapshot
