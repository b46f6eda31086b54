// Package maintenance acts on rows of a table that are proven delivered. Session is the
// connection that package proof has its argument about: it names versions of rows, reads the end
// of the WAL and the slots, and deletes or updates exactly the versions that were named.
//
// The connection is an ordinary one, to the primary itself. It holds an advisory lock for as
// long as it lives, so that one process at a time works on a table.
package maintenance
