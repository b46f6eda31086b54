package resume

import (
	"math/rand/v2"
	"testing"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// rounds is a server, its slot and a checkpoint, over sessions that are killed, crashes, and disks that are put back.
type rounds struct {
	t      *testing.T
	seed   uint64
	random *rand.Rand

	all         []written
	slot, saved wal.LSN // confirmed, and on the disk
	rec         stored.Position
	arrived     map[*wal.Txn]map[uint64]int // by ordinal

	putBack, lost bool
	trusted       wal.LSN // the slot when a checkpoint was lost with its last transaction: no copy is older (docs/guarantees.md)
}

// restore puts the disk back to a copy in which the slot is saved, or further back.
func (r *rounds) restore(write func([]written, int) []written) {
	for i := range r.all {
		if at := r.all[i].end; at <= r.saved && at >= r.trusted && r.random.IntN(4) == 0 {
			r.saved = at
			break
		}
	}
	kept := 0
	for kept < len(r.all) && (r.all[kept].end <= r.saved || r.random.IntN(3) > 0) {
		kept++
	}
	r.putBack = r.putBack || kept < len(r.all)
	r.all, r.slot = write(r.all[:kept], 1+r.random.IntN(9)), r.saved
}

// commit makes rows and position durable together, and confirms what is proven.
func (r *rounds) commit(rows []*wal.Row, sent stored.Position, confirm wal.LSN) {
	for _, row := range rows {
		if r.arrived[row.Txn] == nil {
			r.arrived[row.Txn] = map[uint64]int{}
		}
		r.arrived[row.Txn][row.Ordinal]++
	}
	r.rec = sent
	r.slot = max(r.slot, min(confirm, sent.End))
	r.missing(r.slot)
	if r.random.IntN(3) == 0 {
		r.saved = r.slot
	}
}

// missing requires every row that commits before a position.
func (r *rounds) missing(before wal.LSN) {
	for i := range r.all {
		w := &r.all[i]
		for n := range w.rows {
			row := w.row(n + 1)
			if row.Place().Commit < before && r.arrived[w.txn][n+1] == 0 {
				r.t.Fatalf("seed %d: row %d of the transaction at %s is not delivered, and the slot is at %s", r.seed, n+1, w.commit, r.slot)
			}
		}
	}
}

// session streams until it is killed. It reports whether the next one has to send everything.
func (r *rounds) session(point *Point, killed func() bool) (other bool) {
	start, sent, unproven := r.slot, point.Position, point.Unproven
	var rows []*wal.Row
	confirm := start
	for i := range r.all {
		w := &r.all[i]
		if w.commit < start {
			continue
		}
		if killed() {
			return false
		}
		b := &wal.Batch{Through: w.end}
		for n := range w.rows {
			b.Rows = append(b.Rows, *w.row(n + 1))
		}
		if unproven {
			proven, err := Prove(&point.Position, b)
			if err != nil {
				return true
			}
			unproven = !proven
		}
		for n := range b.Rows {
			if row := &b.Rows[n]; !point.Position.Covers(row.Place().Commit, row.Ordinal) {
				rows = append(rows, row)
			}
			if n < len(b.Rows)-1 && r.random.IntN(3) == 0 {
				sent.Divide(&b.Rows[n], "this")
				r.commit(rows, sent, confirm)
				if rows = nil; killed() {
					return false
				}
			}
		}
		if len(b.Rows) > 0 {
			sent.Advance(w.end, &b.Rows[len(b.Rows)-1])
		} else if w.end > sent.End {
			sent.Advance(w.end, nil)
		}
		if !unproven {
			confirm = w.end
		}
		if i == len(r.all)-1 || r.random.IntN(2) == 0 {
			r.commit(rows, sent, confirm)
			rows = nil
		}
	}
	return false
}

// Relays are killed and servers crash, transactions are divided, and in every second play disks are put back, again
// and again: no row is confirmed before it is delivered, and without another history none is sent twice.
func TestProve_NoRowIsLostInAnyNumberOfRounds(t *testing.T) {
	cfg, origin := at(1)
	losses := 0
	for seed := range uint64(20_000) {
		random := rand.New(rand.NewPCG(seed, 7))
		now := committed
		more := func(before []written, n int) []written { return write(random, before, n, &now) }
		r := &rounds{t: t, seed: seed, random: random, all: more(nil, 1+random.IntN(6)), slot: 1000, saved: 1000, arrived: map[*wal.Txn]map[uint64]int{}}
		r.rec = stored.Position{System: "7", Timeline: 1, Slot: "s", End: 1000}
		loss := Loss{}
		for left := 5; left >= 0; left-- {
			switch what := random.IntN(4); {
			case what == 0:
				r.slot = r.saved
			case what == 1 && seed%2 == 0 && left > 0:
				r.restore(more)
			}
			r.all = more(r.all, random.IntN(4))
			if random.IntN(2) == 0 {
				loss = Loss{} // another process
			}
			for other := true; other; {
				value := r.rec.Encode()
				point, err := cfg.ExactlyOnce(value, nil, origin, r.slot, loss.EndFor(value, r.all[len(r.all)-1].end))
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if point.Lost {
					losses++
					if r.lost = true; !point.Position.Last.Known() {
						r.trusted = r.slot
					}
				}
				if other = r.session(&point, func() bool { return left > 0 && random.IntN(6) == 0 }); other {
					loss = Loss{Checkpoint: value, End: r.slot, Unseen: true}
				}
			}
		}
		r.missing(r.all[len(r.all)-1].end)
		if r.lost && !r.putBack {
			t.Fatalf("seed %d: the same history is taken for another", seed)
		}
		for i := range r.all {
			for n, times := range r.arrived[r.all[i].txn] {
				if times > 1 && !r.putBack {
					t.Fatalf("seed %d: row %d of the transaction at %s came %d times", seed, n, r.all[i].commit, times)
				}
			}
		}
	}
	if losses < 1000 {
		t.Errorf("%d losses were noticed", losses)
	}
}
