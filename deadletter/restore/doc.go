// Package restore is a redrive as the command and the console run it, around deadletter.Redriver:
//
//   - Sources: which dead letters are of the configured slots, and the lock that keeps a second
//     redrive away from them.
//   - Rows: what is missing in a dead letter, read from its table.
//   - Work: the redrive itself, for the command and the console.
//   - Report: what happened, or would, to the dead letters of each key.
package restore
