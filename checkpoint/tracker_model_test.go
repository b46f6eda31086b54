package checkpoint

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// model is the rule of the package comment, written without any thought for
// speed: walk the entries from the start and stop at the first pending one, of which a part may be
// done.
type model struct {
	start   wal.LSN
	entries []Entry
	done    []bool
	part    []wal.LSN // parallel to entries: up to where one is done
}

func (m *model) confirmed() wal.LSN {
	best := m.start
	for i, e := range m.entries {
		if !m.done[i] {
			best = max(best, m.part[i])
			break
		}
		best = max(best, e.Through)
	}
	return best
}

func (m *model) pending() (rows, bytes int) {
	for i, e := range m.entries {
		if !m.done[i] {
			rows, bytes = rows+e.Rows, bytes+e.Bytes
		}
	}
	return rows, bytes
}

// schedule plays a random interleaving of admissions and outcomes against the
// model and checks every invariant after every step.
func schedule(t *testing.T, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	limit := 1 + rng.IntN(200)
	m := &model{start: wal.LSN(1 + rng.IntN(1000))}
	tr := New(m.start, limit)
	lsn := m.start
	tickets := map[int]Ticket{}
	var pending []int // keys of tickets, so that the seed alone decides the order
	last := tr.Confirmable()

	check := func() {
		if got, want := tr.Confirmable(), m.confirmed(); got != want {
			t.Fatalf("seed %d: confirmed %s, the model says %s", seed, got, want)
		}
		if tr.Confirmable() < last {
			t.Fatalf("seed %d: confirmed went back from %s to %s", seed, last, tr.Confirmable())
		}
		last = tr.Confirmable()
		rows, bytes := m.pending()
		if s := tr.Stats(); s.Rows != rows || s.Bytes != bytes {
			t.Fatalf("seed %d: %d rows, %d bytes pending, the model says %d, %d", seed, s.Rows, s.Bytes, rows, bytes)
		}
	}
	finishAny := func() {
		at := rng.IntN(len(pending))
		i := pending[at]
		pending = slices.Delete(pending, at, at+1)
		tickets[i].Done()
		delete(tickets, i)
		m.done[i] = true
		check()
	}
	finishPart := func() {
		i := pending[rng.IntN(len(pending))]
		end := m.start
		for _, e := range m.entries[:i+1] {
			end = max(end, e.Through)
		}
		through := m.start + wal.LSN(rng.IntN(int(end-m.start)+1))
		tickets[i].Partial(through, Commit{})
		m.part[i] = max(m.part[i], through)
		check()
	}
	for range 1 + rng.IntN(300) {
		if len(pending) > 0 && rng.IntN(8) == 0 {
			finishPart()
		}
		if rng.IntN(3) > 0 {
			e := Entry{Rows: rng.IntN(4)}
			e.Bytes = e.Rows * rng.IntN(60)
			if rng.IntN(3) > 0 {
				lsn += wal.LSN(rng.IntN(50))
				e.Through = lsn
			}
			rows, bytes := m.pending()
			k, ok := tr.Track(e)
			if want := rows == 0 || e.Rows == 0 || bytes+e.Bytes <= limit; ok != want {
				t.Fatalf("seed %d: admitted %v, want %v (%d bytes in, %d more, limit %d)", seed, ok, want, bytes, e.Bytes, limit)
			}
			if ok {
				m.entries, m.done, m.part = append(m.entries, e), append(m.done, e.Rows == 0), append(m.part, 0)
				if e.Rows > 0 {
					tickets[len(m.entries)-1] = k
					pending = append(pending, len(m.entries)-1)
				}
			}
			check()
			continue
		}
		if len(pending) > 0 {
			finishAny()
		}
	}
	for len(pending) > 0 {
		finishAny()
	}
	best := m.start
	for _, e := range m.entries {
		best = max(best, e.Through)
	}
	if tr.Confirmable() != best {
		t.Fatalf("seed %d: everything is done but confirmed is %s, not %s", seed, tr.Confirmable(), best)
	}
}

func TestTracker_AgreesWithTheModelUnderRandomSchedules(t *testing.T) {
	for seed := range uint64(10_000) {
		schedule(t, seed)
	}
}

func FuzzTracker(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(schedule)
}
