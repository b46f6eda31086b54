package upkeep

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/maintenance"
	"github.com/cdc-relay/cdc-relay/proof"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

func TestLimits_BoundWhatIsDoneAndProvenTogether(t *testing.T) {
	for _, tt := range []struct{ batch, rate, piece, named, ahead int }{
		{1000, 0, 1000, 1000, 20_000}, {1000, 5000, 100, 1000, 20_000}, {1000, 100, 50, 100, 1000}, {1000, 1, 1, 1, 10}, {10_000, 12_000, 240, 10_000, 120_000}, {1, 0, 1, 1, 20},
		{100, 5000, 100, 100, 2000},
	} {
		l := Limits{BatchRows: tt.batch, MaxRowsPerSecond: tt.rate}
		if l.transactionRows() != tt.piece || l.Batch() != tt.named || l.Ahead() != tt.ahead {
			t.Errorf("%+v: %d, %d and %d rows, want %d, %d and %d", l, l.transactionRows(), l.Batch(), l.Ahead(), tt.piece, tt.named, tt.ahead)
		}
	}
}

// server is a table's connection. act says what happens to a statement with n rows.
type server struct {
	acted []int
	act   func(n int) error
	lag   []time.Duration // of one look after the other; the last one stays
}

func (*server) Lineage() wal.Lineage                                  { return wal.Lineage{} }
func (*server) Name(context.Context) ([]proof.Row, wal.LSN, error)    { return nil, 0, nil }
func (*server) Slots(context.Context, []string) ([]proof.Slot, error) { return nil, nil }
func (*server) Fence(context.Context) (wal.LSN, error)                { return 0, nil }
func (*server) Nudge(context.Context) error                           { return nil }
func (s *server) Act(_ context.Context, rows []proof.Row) (int, error) {
	if err := s.act(len(rows)); err != nil {
		s.acted = append(s.acted, -len(rows))
		return 0, err
	}
	s.acted = append(s.acted, len(rows))
	return len(rows), nil
}

func (s *server) Standbys(context.Context) (maintenance.Standbys, error) {
	lag := s.lag[0]
	if len(s.lag) > 1 {
		s.lag = s.lag[1:]
	}
	return maintenance.Standbys{Lag: lag}, nil
}

func newServer(act func(n int) error) *server { return &server{act: act, lag: []time.Duration{0}} }

func fine(int) error { return nil }

var errLocked = &fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonLockTimeout, Err: errors.New("canceling statement due to lock timeout")}

func sum(list []int) (total int) {
	for _, n := range list {
		total += max(0, n)
	}
	return total
}

func TestJob_GoesNoFasterThanTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(fine)
		j := NewJob(s, &Limits{BatchRows: 1000, MaxRowsPerSecond: 500}, false)
		began := time.Now()
		if n, err := j.Act(t.Context(), make([]proof.Row, 5000)); n != 5000 || err != nil {
			t.Fatal(n, err)
		}
		if took := time.Since(began); took != 9900*time.Millisecond { // the first piece goes at once
			t.Errorf("5000 rows took %s at 500 a second", took)
		}
		if len(s.acted) != 100 || slices.Max(s.acted) != 50 {
			t.Errorf("transactions of %v rows", s.acted)
		}
	})
}

// A large transaction holds up whoever shares the machine with it, so a second's rows are spread.
func TestJob_SpreadsTheRowsOfASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		began := time.Now()
		s := newServer(func(int) error { at = append(at, time.Since(began)); return nil })
		if n, err := NewJob(s, &Limits{BatchRows: 1000, MaxRowsPerSecond: 5000}, false).Act(t.Context(), make([]proof.Row, 5000)); n != 5000 || err != nil {
			t.Fatal(n, err)
		}
		for i, d := range at {
			if d != time.Duration(i)*20*time.Millisecond || s.acted[i] != 100 {
				t.Fatalf("%d rows after %s, as number %d", s.acted[i], d, i)
			}
		}
	})
}

// Where the server takes longer for a piece than its turn lasts, the rows that are due go together.
func TestJob_KeepsItsRateWhereTheServerIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := newServer(func(int) error { <-time.After(100 * time.Millisecond); return nil })
		if n, err := NewJob(s, &Limits{BatchRows: 1000, MaxRowsPerSecond: 5000}, false).Act(t.Context(), make([]proof.Row, 20_000)); n != 20_000 || err != nil {
			t.Fatal(n, err)
		}
		if took := time.Since(began); took < 3*time.Second || took > 4200*time.Millisecond || slices.Max(s.acted) > 1000 {
			t.Errorf("20 000 rows took %s at 5000 a second: %v", took, s.acted)
		}
	})
}

// A statement that waits for a lock in vain is tried with fewer rows, however late it is.
func TestSize_DoesNotGrowPastALock(t *testing.T) {
	s := size{most: 200, now: 200}
	if n := s.next(700, 1000); n != 700 {
		t.Errorf("%d rows", n)
	}
	s.stalled(700, true)
	if n := s.next(700, 1000); n != 100 {
		t.Errorf("%d rows after a stall", n)
	}
}

// A short delay costs no rows, and a long one is followed by no burst.
func TestPace_MakesUpForAShortDelay(t *testing.T) {
	p, now := pace{rate: 1000}, time.Unix(1000, 0)
	for _, tt := range []struct{ later, wait time.Duration }{
		{0, 0}, {0, 100 * time.Millisecond}, {0, 200 * time.Millisecond}, // as fast as it may
		{450 * time.Millisecond, 0}, {0, 0}, {0, 50 * time.Millisecond}, // 150 ms late
		{time.Hour, 0}, {0, 0}, {0, 0}, {0, 100 * time.Millisecond}, // 200 ms count
	} {
		now = now.Add(tt.later)
		if wait := p.take(now, 100); wait != tt.wait {
			t.Fatalf("after %+v: %s", tt, wait)
		}
	}
}

// A row that is locked is waited for where it may not be left out: the batch is halved down to
// it, and it is left for another pass.
func TestJob_HalvesABatchDownToTheLockedRow(t *testing.T) {
	left := 100 // rows before the locked one
	s := newServer(nil)
	s.act = func(n int) error {
		if n > left && left >= 0 {
			if n == 1 {
				left = -1
			}
			return errLocked
		}
		if left >= 0 {
			left -= n
		}
		return nil
	}
	j := NewJob(s, &Limits{BatchRows: 64}, true)
	if n, err := j.Act(t.Context(), make([]proof.Row, 200)); n != 199 || err != nil {
		t.Errorf("acted on %d rows, %v: %v", n, err, s.acted)
	}
}

func TestJob_GivesUpWhereTheTableIsLocked(t *testing.T) {
	for _, alone := range []bool{false, true} {
		s := newServer(func(int) error { return errLocked })
		n, err := NewJob(s, &Limits{BatchRows: 8}, alone).Act(t.Context(), make([]proof.Row, 20))
		if n != 0 || postgres.Reason(err) != fault.ReasonLockTimeout || !Unfinished(err) {
			t.Errorf("%d rows, %v", n, err)
		}
		if want := map[bool]int{false: 3, true: 6}[alone]; len(s.acted) != want {
			t.Errorf("alone %t: tried %v", alone, s.acted)
		}
	}
}

func TestJob_PausesWhileAStandbyIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(fine)
		s.lag = []time.Duration{time.Minute, 31 * time.Second, 30 * time.Second}
		began := time.Now()
		n, err := NewJob(s, &Limits{BatchRows: 8, Wait: time.Minute, PauseAtReplicaLag: 30 * time.Second}, false).Act(t.Context(), make([]proof.Row, 20))
		if n != 20 || err != nil || time.Since(began) != 2*time.Second {
			t.Errorf("%d rows, %v, after %s", n, err, time.Since(began))
		}
		s.lag = []time.Duration{time.Hour}
		n, err = NewJob(s, &Limits{BatchRows: 8, Wait: time.Minute, PauseAtReplicaLag: 30 * time.Second}, false).Act(t.Context(), make([]proof.Row, 20))
		if n != 0 || postgres.Reason(err) != fault.ReasonReplicationLag || !Unfinished(err) {
			t.Errorf("%d rows, %v", n, err)
		}
		if n, err := NewJob(s, &Limits{BatchRows: 8}, false).Act(t.Context(), make([]proof.Row, 20)); n != 20 || err != nil {
			t.Errorf("without a limit: %d rows, %v", n, err)
		}
	})
}

func TestJob_EndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		n, err := NewJob(newServer(fine), &Limits{BatchRows: 10, MaxRowsPerSecond: 10}, false).Act(ctx, make([]proof.Row, 1000))
		if n != 40 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d rows, %v", n, err)
		}
	})
}

func TestJob_StopsAtAnyOtherError(t *testing.T) {
	boom := errors.New("boom")
	s := newServer(nil)
	s.act = func(int) error {
		if sum(s.acted) >= 16 {
			return boom
		}
		return nil
	}
	if n, err := NewJob(s, &Limits{BatchRows: 8}, false).Act(t.Context(), make([]proof.Row, 40)); n != 16 || !errors.Is(err, boom) {
		t.Errorf("%d rows, %v", n, err)
	}
}
