package resume

import (
	"errors"
	"testing"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink"
)

// at is a configuration, and a server on a timeline that left the first one at 200.
func at(timeline int32) (Config, wal.Origin) {
	origin := wal.Origin{SystemID: "7", Timeline: timeline}
	if timeline > 1 {
		origin.Forks = []wal.Fork{{Timeline: 1, At: 200}}
	}
	return Config{Slot: "s", Publication: "p", CheckpointTopic: "checkpoints", Shape: "this"}, origin
}

func TestExactlyOnce_ResumesFromWhatIsProven(t *testing.T) {
	cfg, _ := at(1)
	whole := stored.Position{System: "7", Timeline: 1, Slot: "s", Publication: "p", End: 300}
	divided := whole
	divided.Part = stored.Part{Commit: 320, Rows: 9, Shape: cfg.Shape}
	elsewhere, other, beginning := whole, divided, divided
	beginning.Part.Rows = 4
	elsewhere.System = "8"
	other.Part.Shape = "other"
	twin, ancestor := whole, whole
	twin.Timeline, twin.Began = 2, 210
	ancestor.Timeline, ancestor.Began = 2, 200
	early := divided
	early.End, early.Part.Commit = 150, 180
	for name, c := range map[string]struct {
		found    []byte
		start    wal.LSN
		timeline int32
		known    *stored.Position
		end      wal.LSN
		part     uint64
		renew    bool
		reason   string
		written  wal.LSN
		lost     bool
	}{
		"nothing, ever":                                 {start: 250, timeline: 1, end: 250, renew: true},
		"the slot is behind":                            {found: whole.Encode(), start: 250, timeline: 1, end: 300},
		"the slot is where the checkpoint is":           {found: divided.Encode(), start: 300, timeline: 1, end: 300, part: 9},
		"the slot is ahead":                             {found: whole.Encode(), start: 301, timeline: 1, reason: fault.ReasonSlotAhead},
		"the slot is inside the part":                   {found: divided.Encode(), start: 310, timeline: 1, reason: fault.ReasonSlotAhead},
		"of another cluster":                            {found: elsewhere.Encode(), start: 250, timeline: 1, reason: fault.ReasonForeignServer},
		"unreadable":                                    {found: []byte("{"), start: 250, timeline: 1, reason: fault.ReasonCheckpointUnreadable},
		"counted otherwise":                             {found: other.Encode(), start: 250, timeline: 1, reason: fault.ReasonPartChanged},
		"the topic was emptied":                         {start: 250, timeline: 1, known: &divided, end: 300, part: 9, renew: true},
		"the topic was emptied and the slot moved":      {start: 350, timeline: 1, known: &divided, reason: fault.ReasonSlotAhead},
		"the topic lost its end":                        {found: early.Encode(), start: 100, timeline: 1, known: &whole, reason: fault.ReasonCheckpointLost},
		"the topic lost the end of a part":              {found: beginning.Encode(), start: 300, timeline: 1, known: &divided, reason: fault.ReasonCheckpointLost},
		"the topic lost a part":                         {found: whole.Encode(), start: 300, timeline: 1, known: &divided, reason: fault.ReasonCheckpointLost},
		"the topic is further on in the part":           {found: divided.Encode(), start: 300, timeline: 1, known: &beginning, end: 300, part: 9},
		"the topic is ahead of this process":            {found: whole.Encode(), start: 100, timeline: 1, known: &early, end: 300},
		"a failover behind what was delivered":          {found: divided.Encode(), start: 150, timeline: 2, end: 200, renew: true},
		"a failover before it":                          {found: early.Encode(), start: 100, timeline: 2, end: 150, part: 9, renew: true},
		"a failover, and the slot is behind the fork":   {found: whole.Encode(), start: 210, timeline: 2, reason: fault.ReasonSlotAhead},
		"what this process knows is of the old history": {found: newer(early), start: 100, timeline: 2, known: &whole, end: 150, part: 9},
		"the WAL ends at the checkpoint":                {found: whole.Encode(), start: 250, timeline: 1, written: 300, end: 300},
		"the WAL ends before the checkpoint":            {found: divided.Encode(), start: 250, timeline: 1, written: 299, end: 250, renew: true, lost: true},
		"the WAL ends before the divided transaction":   {found: divided.Encode(), start: 300, timeline: 1, written: 310, end: 300, renew: true, lost: true},
		"the WAL ends at the divided transaction":       {found: divided.Encode(), start: 300, timeline: 1, written: 320, end: 300, renew: true, lost: true},
		"the WAL has the divided transaction":           {found: divided.Encode(), start: 300, timeline: 1, written: 328, end: 300, part: 9},
		"the WAL ends before the slot":                  {found: whole.Encode(), start: 301, timeline: 1, written: 299, reason: fault.ReasonSlotAhead},
		"a failover, with little WAL since":             {found: whole.Encode(), start: 150, timeline: 2, written: 210, end: 200, renew: true},
		"an old primary":                                {found: newer(whole), start: 100, timeline: 1, reason: fault.ReasonStalePrimary},
		"two promoted from one, under one number":       {found: twin.Encode(), start: 205, timeline: 2, reason: fault.ReasonForeignTimeline},
		"its own timeline":                              {found: ancestor.Encode(), start: 205, timeline: 2, end: 300},
		"no descendant":                                 {found: newer(whole), start: 100, timeline: 3, reason: fault.ReasonForeignTimeline},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, origin := at(c.timeline)
			point, err := cfg.ExactlyOnce(c.found, c.known, origin, c.start, c.written)
			rec, renew := point.Position, point.Renew
			if c.reason != "" {
				own, _ := errors.AsType[*sink.Error](err)
				refused, _ := errors.AsType[*fault.Error](err)
				if (refused == nil || refused.Reason != c.reason) && (own == nil || own.Reason != c.reason) {
					t.Fatalf("resumes from %+v, %v; want refusal %s", rec, err, c.reason)
				}
				return
			}
			if err != nil || rec.End != c.end || rec.Part.Rows != c.part || renew != c.renew || rec.Timeline != c.timeline || rec.Began != origin.Begin(c.timeline) || point.Lost != c.lost {
				t.Fatalf("resumes from %+v, renew %t, %v", rec, renew, err)
			}
			if _, err := stored.ParsePosition(rec.Encode()); err != nil {
				t.Error(err)
			}
		})
	}
}

// newer is a record as the second timeline has it.
func newer(rec stored.Position) []byte {
	rec.Timeline = 2
	return rec.Encode()
}

// A checkpoint inside a transaction names a row by its number, so other rules of numbering are
// another shape. What is stored was written with this one.
func TestShapeOf_DiffersByConfigurationAndRules(t *testing.T) {
	tables := []wal.Table{{Schema: "public", Name: "outbox"}}
	one := ShapeOf("p", tables, []wal.Wants{{Delete: true}}, []string{"m"}, 1)
	for what, other := range map[string]string{
		"publication": ShapeOf("q", tables, []wal.Wants{{Delete: true}}, []string{"m"}, 1),
		"tables":      ShapeOf("p", nil, []wal.Wants{{Delete: true}}, []string{"m"}, 1),
		"wants":       ShapeOf("p", tables, nil, []string{"m"}, 1),
		"messages":    ShapeOf("p", tables, []wal.Wants{{Delete: true}}, nil, 1),
		"rules":       ShapeOf("p", tables, []wal.Wants{{Delete: true}}, []string{"m"}, 2),
	} {
		if other == one {
			t.Errorf("other %s have the same shape", what)
		}
	}
	if one != "202de8a023c61c48" {
		t.Errorf("the shape is %s: transactions that a relay before this one divided are refused", one)
	}
}
