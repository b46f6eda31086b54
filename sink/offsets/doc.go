// Package offsets looks at what a topic has at an offset: whether a record that was read is still
// there, whether records can be read, and where they end.
package offsets
