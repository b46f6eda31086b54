// Package format makes the value of a record and the headers that belong to it: the value
// formats, CloudEvents, the headers column, the trace context. Content is all of it for one
// relation.
//
// The router compiles a Content and calls it for each row.
package format
