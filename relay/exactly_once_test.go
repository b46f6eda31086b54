package relay

import (
	"errors"
	"testing"

	"github.com/cdc-relay/cdc-relay/checkpoint"
	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink"
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

func TestExactly_ResumesFromWhatIsProven(t *testing.T) {
	r, _ := onceAt(0, 1)
	whole := checkpoint.Record{System: "7", Timeline: 1, Slot: "s", Publication: "p", End: 300}
	divided := whole
	divided.Part = checkpoint.Part{Commit: 320, Rows: 9, Shape: r.cfg.shape()}
	elsewhere, other, beginning := whole, divided, divided
	beginning.Part.Rows = 4
	elsewhere.System = "8"
	other.Part.Shape = "other"
	early := divided
	early.End, early.Part.Commit = 150, 180
	for name, c := range map[string]struct {
		found    []byte
		start    wal.LSN
		timeline int32
		known    *checkpoint.Record
		end      wal.LSN
		part     uint64
		renew    bool
		reason   string
	}{
		"nothing, ever":                                 {start: 250, timeline: 1, end: 250, renew: true},
		"the slot is behind":                            {found: whole.Encode(), start: 250, timeline: 1, end: 300},
		"the slot is where the checkpoint is":           {found: divided.Encode(), start: 300, timeline: 1, end: 300, part: 9},
		"the slot is ahead":                             {found: whole.Encode(), start: 301, timeline: 1, reason: reasonSlotAhead},
		"the slot is inside the part":                   {found: divided.Encode(), start: 310, timeline: 1, reason: reasonSlotAhead},
		"of another cluster":                            {found: elsewhere.Encode(), start: 250, timeline: 1, reason: ReasonForeignServer},
		"unreadable":                                    {found: []byte("{"), start: 250, timeline: 1, reason: reasonCheckpoint},
		"counted otherwise":                             {found: other.Encode(), start: 250, timeline: 1, reason: reasonPartChanged},
		"the topic was emptied":                         {start: 250, timeline: 1, known: &divided, end: 300, part: 9, renew: true},
		"the topic was emptied and the slot moved":      {start: 350, timeline: 1, known: &divided, reason: reasonSlotAhead},
		"the topic lost its end":                        {found: early.Encode(), start: 100, timeline: 1, known: &whole, reason: reasonCheckpointLost},
		"the topic lost the end of a part":              {found: beginning.Encode(), start: 300, timeline: 1, known: &divided, reason: reasonCheckpointLost},
		"the topic lost a part":                         {found: whole.Encode(), start: 300, timeline: 1, known: &divided, reason: reasonCheckpointLost},
		"the topic is further on in the part":           {found: divided.Encode(), start: 300, timeline: 1, known: &beginning, end: 300, part: 9},
		"the topic is ahead of this process":            {found: whole.Encode(), start: 100, timeline: 1, known: &early, end: 300},
		"a failover behind what was delivered":          {found: divided.Encode(), start: 150, timeline: 2, end: 200, renew: true},
		"a failover before it":                          {found: early.Encode(), start: 100, timeline: 2, end: 150, part: 9, renew: true},
		"a failover, and the slot is behind the fork":   {found: whole.Encode(), start: 210, timeline: 2, reason: reasonSlotAhead},
		"what this process knows is of the old history": {found: newer(early), start: 100, timeline: 2, known: &whole, end: 150, part: 9},
		"an old primary":                                {found: newer(whole), start: 100, timeline: 1, reason: ReasonStalePrimary},
		"no descendant":                                 {found: newer(whole), start: 100, timeline: 3, reason: ReasonForeignTimeline},
	} {
		t.Run(name, func(t *testing.T) {
			r, src := onceAt(c.start, c.timeline)
			at, err := r.cfg.resume(c.found, c.known, src.Origin(), src.Start())
			rec, renew := at.rec, at.renew
			if c.reason != "" {
				own, _ := errors.AsType[*sink.Error](err)
				if postgres.Reason(err) != c.reason && (own == nil || own.Reason != c.reason) {
					t.Fatalf("resumes from %+v, %v; want refusal %s", rec, err, c.reason)
				}
				return
			}
			if err != nil || rec.End != c.end || rec.Part.Rows != c.part || renew != c.renew || rec.Timeline != c.timeline {
				t.Fatalf("resumes from %+v, renew %t, %v", rec, renew, err)
			}
			if _, err := checkpoint.ParseRecord(rec.Encode()); err != nil {
				t.Error(err)
			}
		})
	}
}

// newer is a record as the second timeline has it.
func newer(rec checkpoint.Record) []byte {
	rec.Timeline = 2
	return rec.Encode()
}

// What lies before the position comes again where the slot is behind, in pieces too.
func TestExactly_DivideNeverGoesBack(t *testing.T) {
	r, _ := onceAt(100, 1)
	part := checkpoint.Part{Commit: 320, Rows: 9, Shape: r.cfg.shape()}
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
	if x.divide(row(330, 2)); x.at.Part != (checkpoint.Part{Commit: 330, Rows: 2, Shape: r.cfg.shape()}) {
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

// A checkpoint inside a transaction names a row by its number, so other rules of numbering
// are another shape.
func TestShape_DiffersByConfigurationAndRules(t *testing.T) {
	one := postgres.Config{Publication: "p", Tables: []wal.Table{{Schema: "public", Name: "outbox"}}}
	two := one
	two.Publication = "q"
	if shapeOf(&one, 1) == shapeOf(&two, 1) || shapeOf(&one, 1) == shapeOf(&one, 2) {
		t.Error("the shapes are equal")
	}
}
