// Package column reads one column of a row: what is known of its type, its text where it
// comes in binary, what a JSON pointer finds in it, a time. A Source is a column that was
// looked up once for its relation.
//
// It knows nothing of roles, presets and formats, which are made of it.
package column
