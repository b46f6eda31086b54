package relay

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// putBack puts the server's disk back to a copy that has some of the transactions, and the slot where it was saved.
// Other transactions come after them, with the ids of those that are gone.
func (s *sim) putBack() (end wal.LSN) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept, at := 0, simStart
	for kept < s.written && (s.txns[kept].end <= s.stored || s.random.IntN(3) > 0) {
		at = s.txns[kept].end
		kept++
	}
	s.txns = s.txns[:kept:kept]
	for range 10 + s.random.IntN(40) {
		txn := simTxn{commit: at + wal.LSN(s.random.IntN(3)*17), time: time.Unix(2000, 0)}
		txn.end = txn.commit + 10
		at = txn.end
		for i := range 1 + s.random.IntN(9)*s.random.IntN(4) {
			txn.rows = append(txn.rows, fmt.Sprintf("order/k%d/new%d.%d", s.random.IntN(4), txn.commit, i))
		}
		s.txns = append(s.txns, txn)
	}
	s.written, s.confirmed = kept, s.stored
	return s.wal()
}

// Wherever the copy ends, and however far the server has written since: no row of it is left out, and none is
// confirmed before it is delivered.
func TestSim_ExactlyOnceLosesNothingWhereADiskIsPutBack(t *testing.T) {
	first, n := simSeeds(t, 300)
	trouble := map[string]int{}
	has := func(what string) bool { return trouble[what] > 0 }
	all := []string{"written past the checkpoint", "the WAL ends before the checkpoint", "kill", "divided", "aborted"}
	seed := first
	// A seed is not the same each time, and the rarest kind comes in one of twenty: a few more look for it.
	for ; !t.Failed() && (seed < first+n || n >= 60 && seed < first+5*n && !every(all, has)); seed++ {
		synctest.Test(t, func(t *testing.T) { simulatePutBack(t, seed, trouble) })
	}
	t.Logf("bar: disks that are put back: %d seeds; trouble: %v", seed-first, trouble)
	if n >= 60 && !every(all, has) {
		t.Errorf("not every kind of trouble came: %v", trouble)
	}
}

func every(all []string, has func(string) bool) bool {
	return !slices.ContainsFunc(all, func(what string) bool { return !has(what) })
}

func simulatePutBack(t *testing.T, seed uint64, trouble map[string]int) {
	t.Helper()
	s := newSim(seed)
	s.origin = wal.Origin{SystemID: "7", Timeline: 1}
	done := make(chan struct{})
	defer close(done)
	go s.happen(done)
	go s.disturb(done)
	w := &onceWorld{t: t, seed: seed, s: s, l: &ledger{sim: s}, cfg: Config{
		Guarantee: ExactlyOnce, MaxInFlightBytes: []int{170, 1000, 3300, 340 << 10}[s.int(4)],
		RetryMin: 10 * time.Millisecond, RetryMax: 200 * time.Millisecond, DrainTimeout: time.Minute,
		Replication: postgres.Config{Slot: "slot", Publication: "slot"},
	}}
	w.start()
	pass(time.Duration(200+s.int(3000)) * time.Millisecond)
	w.kill()
	copied := s.putBack()
	pass(time.Duration(s.int(4000)) * time.Millisecond)
	if at, err := stored.ParsePosition(w.l.position); err == nil && at.Exceeds(copied) {
		s.mu.Lock()
		if at.Exceeds(s.wal()) {
			trouble["the WAL ends before the checkpoint"]++
		} else {
			trouble["written past the checkpoint"]++
		}
		s.mu.Unlock()
	}
	w.start()
	for range s.int(4) {
		pass(time.Duration(20+s.int(1000)) * time.Millisecond)
		s.count("kill")
		w.kill()
		w.start()
	}
	pass(time.Duration(s.int(3000)) * time.Millisecond)
	s.mu.Lock()
	s.calm, s.written = true, len(s.txns)
	s.mu.Unlock()
	for began := time.Now(); time.Since(began) < 2*time.Minute && !s.done(); {
		pass(100 * time.Millisecond)
	}
	w.stop()
	w.checkPutBack(trouble)
}

// checkPutBack requires every row that the server has. A key may go back to an earlier row of it, and goes on from
// there without leaving any out.
func (w *onceWorld) checkPutBack(trouble map[string]int) {
	w.t.Helper()
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	place, next := map[string]int{}, map[string]int{}
	for _, txn := range w.s.txns {
		for _, row := range txn.rows {
			parts := strings.Split(row, "/")
			place[parts[2]] = next[parts[1]]
			next[parts[1]]++
		}
	}
	last := map[string]int{}
	for _, row := range w.l.committed {
		key, value, _ := strings.Cut(row, "/")
		at, has := place[value]
		if !has {
			continue // gone with the disk
		}
		if at > last[key] {
			w.t.Errorf("seed %d: row %s of key %s leaves out what is before it", w.seed, value, key)
		}
		last[key] = at + 1
	}
	for key, n := range next {
		if last[key] != n {
			w.t.Errorf("seed %d: key %s ends at %d of %d", w.seed, key, last[key], n)
		}
	}
	if w.s.early != "" {
		w.t.Errorf("seed %d: %s", w.seed, w.s.early)
	}
	if w.s.confirmed != w.s.wal() {
		w.t.Errorf("seed %d: confirmed %s of %s two minutes after the last fault", w.seed, w.s.confirmed, w.s.wal())
	}
	for what, n := range w.s.trouble {
		trouble[what] += n
	}
	trouble["divided"] += w.l.parts
}
