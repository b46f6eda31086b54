// Package provision makes and drops what a stream needs: tables, publications and slots, and
// the slots of another number of shards. The comments of Setup and Reshard have the argument
// why no row is lost.
//
// It imports postgres and catalog. Commands use it; nothing that streams does.
package provision
