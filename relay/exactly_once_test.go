package relay

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/rs/zerolog"
)

// onceAt is a relay with exactly-once and a slot at a position of a timeline.
func onceAt(start wal.LSN, timeline int32) (*Relay, *fakeSource) {
	r := &Relay{cfg: Config{Guarantee: ExactlyOnce, Replication: postgres.Config{Slot: "s", Publication: "p"}}.WithDefaults(), log: zerolog.Nop(), board: status.NewBoard(status.Pipeline{}, zerolog.Nop(), nil)}
	server := newServer()
	server.confirmed = start
	server.origin = wal.Origin{SystemID: "7", Timeline: timeline}
	if timeline > 1 {
		server.origin.Forks = []wal.Fork{{Timeline: 1, At: 200}}
	}
	return r, &fakeSource{server: server}
}

// What lies before the position comes again where the slot is behind, in pieces too.
func TestExactly_DivideNeverGoesBack(t *testing.T) {
	r, _ := onceAt(100, 1)
	part := checkpoint.Part{Commit: 320, Rows: 9, Shape: r.cfg.resumeConfig().Shape}
	x := &exactlyOnce{s: &session{r: r}, at: checkpoint.Record{End: 300, Part: part}}
	row := func(commit wal.LSN, ordinal uint64) *wal.Row {
		return &wal.Row{Txn: &wal.Txn{Commit: commit}, Ordinal: ordinal}
	}
	for _, again := range []*wal.Row{row(250, 40), row(299, 1), row(310, 5), row(320, 3), row(320, 9)} {
		if x.divide(again); x.at.Part != part {
			t.Fatalf("row %d of the transaction at %s: part %+v, want %+v", again.Ordinal, again.Txn.Commit, x.at.Part, part)
		}
	}
	part.Rows = 12
	if x.divide(row(320, 12)); x.at.Part != part {
		t.Errorf("part %+v, want %+v", x.at.Part, part)
	}
	x.advance(330)
	if x.divide(row(330, 2)); x.at.Part != (checkpoint.Part{Commit: 330, Rows: 2, Shape: r.cfg.resumeConfig().Shape}) {
		t.Errorf("part %+v of the next transaction", x.at.Part)
	}
}

// Behind a fork other rows have the positions of those that were condemned.
func TestExactly_VerdictsAreOfOneHistory(t *testing.T) {
	var v verdicts
	v.belong(wal.Lineage{SystemID: "7", Timeline: 1})
	v.condemned = map[recordID]condemned{{row: deadletter.Row{Commit: 320, Seq: 1}}: {reason: "record_too_large"}}
	if v.belong(wal.Lineage{SystemID: "7", Timeline: 1}); len(v.condemned) != 1 {
		t.Fatalf("forgot %v", v.condemned)
	}
	if v.belong(wal.Lineage{SystemID: "7", Timeline: 2}); len(v.condemned) != 0 {
		t.Errorf("kept %v", v.condemned)
	}
}
