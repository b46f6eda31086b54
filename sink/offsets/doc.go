// Package offsets looks at what a topic has at an offset: whether a record that was read is still
// there, and whether records can be read.
package offsets
