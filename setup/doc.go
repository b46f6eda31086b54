// Package setup makes what a relay needs and does not make itself: the table on request,
// publication and slot, its own topics, schemas on request, the first checkpoint. It prints the same
// as SQL.
package setup
