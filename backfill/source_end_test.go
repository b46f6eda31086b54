package backfill

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/backfill/progress"
	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/relay/resume"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// A transaction may be committed without an answer. The next session then begins before the topic's
// position, which is no sign of a server that lost WAL: both count rows.
func TestReading_GoesOnFromACommitWithoutAnAnswer(t *testing.T) {
	r := &reading{start: progress.Position(5)}
	committed := stored.Position{System: "7", Timeline: 1, Slot: "s", End: progress.Position(9)}
	cfg := resume.Config{Slot: "s"}
	at, err := cfg.ExactlyOnce(committed.Encode(), nil, wal.Origin{SystemID: "7", Timeline: 1}, r.StartLSN(), r.ServerEnd())
	if err != nil || at.Position.End != committed.End {
		t.Errorf("goes on from %+v, %v", at, err)
	}
}
