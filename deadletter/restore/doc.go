// Package restore completes a dead letter that has not the whole record: it reads the row from
// its table, and routes it with the present configuration.
package restore
