package proof

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// table is a Session with batches of two rows, whose slot passes a fence 250 ms after it was read.
type table struct {
	batches, named int
	fences         []time.Time
	acted          time.Duration // of one Act
	story          []string
}

func (s *table) note(text string, args ...any) { s.story = append(s.story, fmt.Sprintf(text, args...)) }

func (s *table) Lineage() wal.Lineage { return wal.Lineage{SystemID: "1", Timeline: 1} }

func (s *table) Name(context.Context) ([]Row, wal.LSN, error) {
	if s.named == s.batches {
		return nil, 0, nil
	}
	s.named++
	s.note("name %d", s.named)
	s.fences = append(s.fences, time.Now())
	return []Row{{XMin: uint32(s.named)}, {XMin: uint32(s.named)}}, wal.LSN(len(s.fences)), nil
}

func (s *table) Slots(context.Context, []string) ([]Slot, error) {
	passed := wal.LSN(0)
	for _, at := range s.fences {
		if time.Since(at) >= 250*time.Millisecond {
			passed++
		}
	}
	return []Slot{{Name: "slot", Confirmed: passed, Active: true}}, nil
}

func (s *table) Fence(context.Context) (wal.LSN, error) { return 1000, nil }

func (s *table) Nudge(context.Context) error { return nil }

func (s *table) Act(_ context.Context, rows []Row) (int, error) {
	s.note("act %d", rows[0].XMin)
	<-time.After(s.acted)
	return len(rows), nil
}

func (s *table) Kept(context.Context, []Slot) (*Kept, error) {
	return &Kept{Here: wal.Origin{SystemID: "1", Timeline: 1}, Delivered: map[string]wal.LSN{"slot": 1000},
		Before: map[string]stored.BeforeSlot{"slot": {System: "1", Timeline: 1, Slot: "slot", Before: stored.BeforeNone, Positions: stored.Promises}}}, nil
}

func (s *table) Waiting(context.Context) (Waiting, error) {
	s.note("letters")
	return Waiting{}, nil
}

// Rows of a batch wait for the slots while those before them do, and those behind them are named.
func TestPasses_OverlapWithinTheirBound(t *testing.T) {
	for ahead, tt := range map[int]struct {
		story string
		most  time.Duration
	}{
		0: {"name 1, letters, act 1, name 2, letters, act 2, name 3, letters, act 3, name 4, letters, act 4", 1300 * time.Millisecond},
		4: {"name 1, name 2, letters, act 1, name 3, act 2, name 4, letters, act 3, act 4", 800 * time.Millisecond},
		8: {"name 1, name 2, name 3, name 4, letters, act 1, act 2, act 3, act 4", 400 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &table{batches: 4}
			passes, began := New(Config{Slots: []string{"slot"}, Positions: stored.Promises}, s).Passes(s, ahead), time.Now()
			for n := range 5 {
				out, err := passes.Next(t.Context())
				if want := (Outcome{Named: 2, Acted: 2}); err != nil || n < 4 && out != want || n == 4 && out != (Outcome{}) {
					t.Errorf("%d rows ahead: pass %d: %+v, %v", ahead, n, out, err)
				}
			}
			if got := strings.Join(s.story, ", "); got != tt.story || time.Since(began) > tt.most {
				t.Errorf("%d rows ahead, in %s: %s", ahead, time.Since(began), got)
			}
		})
	}
}

// Whether rows were sent is asked after they are proven, again a second later, and ends the passes.
func TestPasses_AskWhetherRowsWereSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &table{batches: 4, acted: 600 * time.Millisecond}
		left := errors.New("the publication was changed")
		asked := 0
		cfg := Config{Slots: []string{"slot"}, Positions: stored.Promises, Sent: func(context.Context) error {
			s.note("sent")
			if asked++; asked == 2 {
				return left
			}
			return nil
		}}
		passes := New(cfg, s).Passes(s, 8)
		var err error
		for n := 0; err == nil && n < 5; n++ {
			_, err = passes.Next(t.Context())
		}
		if got := strings.Join(s.story, ", "); got != "name 1, name 2, name 3, name 4, letters, sent, act 1, act 2, sent" || !errors.Is(err, left) {
			t.Errorf("%s: %v", got, err)
		}
	})
}
