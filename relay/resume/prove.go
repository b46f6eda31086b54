package resume

import (
	"errors"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// A server whose disk was put back to a copy stays on its timeline. If it has written past the checkpoint since,
// only the stream shows that its rows are others. The checkpoint names its last transaction with a row.
//
//   - What commits behind that transaction is never taken for delivered, though it may commit before the
//     checkpoint: the checkpoint's history has no row there (stored.Position.Covers).
//   - What commits up to it is skipped, but not confirmed before the stream shows that transaction, with the
//     same id and time of commit (Prove). Up to there the two histories are one.
//   - If the stream shows another row first, or gets past that position, the rows that were skipped may be
//     others. The next session sends all from the slot's position on (Loss).
//
// Where the slot is already past that transaction, nothing is skipped, and there is nothing to prove.
// A message outside any transaction has no id and no time, so it is known by a hash. A checkpoint of an older
// version names no transaction, and neither does one after which no row came: it is trusted.

// ErrOtherHistory ends a session whose stream lacks the last transaction of the checkpoint.
var ErrOtherHistory = errors.New("the stream lacks the last transaction of the checkpoint, so rows that were skipped may be others than those that are delivered")

// Prove reports whether a batch shows the last transaction of a checkpoint. It takes each batch from the slot's
// position on until then. The error is ErrOtherHistory.
func Prove(at *stored.Position, b *wal.Batch) (proven bool, err error) {
	last := &at.Last
	for i := range b.Rows {
		switch row := &b.Rows[i]; {
		case row.Place().Commit == last.Commit && stored.LastOf(row) == *last:
			return true, nil
		case row.Place().Commit >= min(last.Commit, at.End): // in the checkpoint's history there is none
			return false, ErrOtherHistory
		}
	}
	if b.Through > last.Commit {
		return false, ErrOtherHistory
	}
	return false, nil
}
