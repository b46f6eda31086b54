// Package export writes rows that are about to be deleted into files, and says a file is written
// only once it was read back from the disk.
//
// A file is complete or has another name: it is written under a temporary one, flushed to the
// disk, renamed, and its folder is flushed. No file is ever written over. So a row that is deleted
// after Write has returned is in a file, whatever is killed; it may be in two, where rows were
// written and not deleted.
package export
