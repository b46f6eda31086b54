// Package records reads what the brokers keep of rows that are delivered: the positions of the
// slots and what lies before them, from the checkpoint topic, and the dead letters that wait.
// Table is the proof.Records of one table.
//
// Both topics are read once and followed, so that asking again costs what was written since.
package records
