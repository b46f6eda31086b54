package buckets

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// model is a server with a table, its slot, a topic, and what a backfill remembers in Kafka. It uses Filter and
// Window as backfill --online does, and dies at any step.
type model struct {
	random *rand.Rand
	once   bool
	deaths int

	nextXID uint32
	open    []*modelTxn
	log     []*modelTxn // in the order of their commit records
	lsn     wal.LSN
	rows    int

	confirmed, durable wal.LSN // of the slot; a crash takes it back to the second

	topic []modelRow
	kept  struct { // in Kafka
		next, place int // the bucket, and rows of it that are sent
		reading     bool
		snapshot    string
		last        wal.LSN // where the bucket ends, in the table's order
		until       wal.LSN // everything before it is delivered
		streamed    Streamed
		sent        wal.LSN // exactly once: the stream is delivered up to this commit
	}
}

type modelRow struct {
	key string
	n   int
}

type modelTxn struct {
	xid     uint32
	commit  wal.LSN // zero: open
	visible bool
	rows    []modelRow
}

const modelBuckets = 3

// some lets writers go on: they begin, insert, commit, and are seen some time after that.
func (m *model) some() {
	for range m.random.IntN(3) {
		switch n := m.random.IntN(4); {
		case n == 0 && len(m.open) < 5 || len(m.open) == 0:
			m.open = append(m.open, &modelTxn{xid: m.nextXID})
			m.nextXID++
		case n == 1:
			txn := m.open[m.random.IntN(len(m.open))]
			if txn.commit == 0 {
				m.rows++
				txn.rows = append(txn.rows, modelRow{fmt.Sprint(m.random.IntN(8)), m.rows})
			}
		default:
			i := m.random.IntN(len(m.open))
			if txn := m.open[i]; txn.commit == 0 {
				m.lsn += 10
				txn.commit = m.lsn
				m.log = append(m.log, txn)
			} else {
				txn.visible = true
				m.open = slices.Delete(m.open, i, i+1)
			}
		}
	}
}

// shown is a snapshot of SQL.
func (m *model) shown() string {
	least, list := m.nextXID, []string{}
	for _, txn := range m.open {
		least = min(least, txn.xid)
		list = append(list, fmt.Sprint(txn.xid))
	}
	return fmt.Sprintf("%d:%d:%s", least, m.nextXID, strings.Join(list, ","))
}

func (txn *modelTxn) row(i int) wal.Row {
	return wal.Row{
		Txn: &wal.Txn{XID: txn.xid, Commit: txn.commit, End: txn.commit + 8, Time: time.Unix(int64(txn.commit), 0)}, Relation: outbox,
		Values: []wal.Value{{Kind: wal.Text, Data: fmt.Append(nil, txn.rows[i].n)}, {Kind: wal.Text, Data: []byte(txn.rows[i].key)}},
	}
}

// stream is what the slot brings of one transaction each.
func (m *model) stream(until wal.LSN, take func(txn *modelTxn, b *wal.Batch)) {
	for _, txn := range m.log {
		if txn.commit < m.confirmed || txn.commit >= until {
			continue
		}
		b := &wal.Batch{Through: txn.commit + 8}
		for i := range txn.rows {
			b.Rows = append(b.Rows, txn.row(i))
		}
		take(txn, b)
	}
}

func (m *model) send(row *wal.Row) {
	var n int
	_, _ = fmt.Sscan(string(row.Values[0].Data), &n)
	m.topic = append(m.topic, modelRow{string(row.Values[1].Data), n})
}

// dies reports whether the process is killed here; the server may crash with it.
func (m *model) dies() bool {
	m.some()
	if m.random.IntN(8) == 0 {
		m.durable = m.confirmed
	}
	if m.deaths == 8 || m.random.IntN(16) != 0 {
		return false
	}
	m.deaths++
	if m.random.IntN(2) == 0 {
		m.confirmed = m.durable
	}
	for len(m.open) > 0 { // the next call waits for what is open
		txn := m.open[0]
		if txn.commit == 0 {
			m.lsn += 10
			txn.commit = m.lsn
			m.log = append(m.log, txn)
		}
		txn.visible = true
		m.open = m.open[1:]
	}
	return true
}

// call is one call of the command; false: it was killed.
func (m *model) call(t *testing.T) bool {
	f := &Filter{Keys: []Key{{Column: "key"}}, Buckets: modelBuckets, Next: m.kept.next, Streamed: m.kept.streamed}
	resumed := m.kept.reading && m.once
	m.isSame(t, f)
	switch {
	case m.kept.reading && !m.once: // the bucket is read again
		if !m.take(t, f) {
			return false
		}
	case !m.kept.reading:
		f.Taken = snapshotOf(t, m.kept.snapshot)
	}
	for {
		if !m.kept.reading {
			if !m.follow(t, f) {
				return false
			}
			if f.Next == modelBuckets {
				return true
			}
			if !m.take(t, f) {
				return false
			}
		}
		f.Streamed = m.kept.streamed
		if !m.bucket(t, f, resumed) {
			return false
		}
		resumed = false
	}
}

func snapshotOf(t *testing.T, text string) Snapshot {
	t.Helper()
	s, err := ParseSnapshot(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// isSame holds that the server is taken for the same, and puts the slot where everything is delivered.
func (m *model) isSame(t *testing.T, f *Filter) {
	t.Helper()
	h, k := History{Until: m.kept.until, Known: m.kept.streamed}, &m.kept
	m.stream(max(k.until, k.streamed.Seen.Commit+1), func(_ *modelTxn, b *wal.Batch) { h.Take(f, b) })
	if !h.Same(m.confirmed) {
		t.Fatalf("the server is taken for another one: %+v, the slot at %s, known %+v", h, m.confirmed, k)
	}
	m.confirmed = max(m.confirmed, k.until)
}

// follow streams to the end of the WAL.
func (m *model) follow(t *testing.T, f *Filter) bool {
	f.Streamed = m.kept.streamed
	until, alive, last := m.lsn+1, true, m.kept.streamed.Last
	m.stream(until, func(txn *modelTxn, b *wal.Batch) {
		if !alive {
			return
		}
		if err := f.Apply(b, &last); err != nil {
			t.Fatal(err)
		}
		for i := range b.Rows {
			if !m.once || txn.commit > m.kept.sent {
				m.send(&b.Rows[i])
			}
		}
		if len(b.Rows) > 0 {
			m.kept.sent = max(m.kept.sent, txn.commit)
		}
		alive = !m.dies()
	})
	if !alive || m.dies() {
		return false
	}
	m.kept.until, m.kept.streamed = until, Streamed{Last: last}
	if m.dies() {
		return false
	}
	m.confirmed = max(m.confirmed, until)
	return !m.dies()
}

// take takes the snapshot of the next bucket.
func (m *model) take(t *testing.T, f *Filter) bool {
	for {
		m.some()
		text := m.shown()
		taken := snapshotOf(t, text)
		if f.Forget(&taken); len(f.LeftOut) > 0 {
			continue
		}
		m.some()
		window := Window{Taken: taken}
		m.stream(m.lsn+1, func(_ *modelTxn, b *wal.Batch) {
			if err := window.Take(f, b); err != nil {
				t.Fatal(err)
			}
		})
		if window.Torn {
			continue
		}
		if m.dies() {
			return false
		}
		k := &m.kept
		k.streamed.Seen = window.Seen
		k.reading, k.snapshot, k.place, k.last = true, text, 0, 0
		for _, txn := range m.log {
			if taken.Sees(txn.xid) && m.has(t, f, txn) {
				k.last = max(k.last, txn.commit)
			}
		}
		return true
	}
}

func (m *model) has(t *testing.T, f *Filter, txn *modelTxn) bool {
	for i := range txn.rows {
		row := txn.row(i)
		if bucket, err := f.Bucket(&row); err != nil {
			t.Fatal(err)
		} else if bucket == f.Next {
			return true
		}
	}
	return false
}

// bucket reads the bucket in its snapshot, or with exactly-once the rest of it in a new one.
func (m *model) bucket(t *testing.T, f *Filter, resumed bool) bool {
	k := &m.kept
	taken := snapshotOf(t, k.snapshot)
	reads, late := taken, map[int]bool{}
	if resumed {
		reads = snapshotOf(t, m.shown())
		m.stream(m.lsn+1, func(txn *modelTxn, b *wal.Batch) {
			for i := range b.Rows {
				is, err := f.Late(&taken, &b.Rows[i])
				if err != nil {
					t.Fatal(err)
				}
				if is {
					late[txn.rows[i].n] = true
				}
			}
		})
	}
	at := 0
	for _, txn := range m.log {
		if !reads.Sees(txn.xid) || resumed && txn.commit > k.last {
			continue
		}
		for i := range txn.rows {
			row := txn.row(i)
			if bucket, err := f.Bucket(&row); err != nil {
				t.Fatal(err)
			} else if bucket != f.Next || late[txn.rows[i].n] {
				continue
			}
			if at++; at <= k.place && m.once {
				continue
			}
			m.send(&row)
			if m.once {
				k.place = at
			}
			if m.dies() {
				return false
			}
		}
	}
	f.Done(taken)
	k.next, k.reading = f.Next, false
	return !m.dies()
}

// Whatever happens when, each row arrives, the rows of a key in the order of their commits, and with exactly-once
// each once.
func TestModel_EachRowArrivesInOrder(t *testing.T) {
	seeds := 10_000
	if testing.Short() {
		seeds = 2_000
	}
	calls := 0
	for seed := range seeds {
		m := &model{random: rand.New(rand.NewPCG(uint64(seed), 1)), once: seed%2 == 0, nextXID: 10, lsn: 100}
		for range 60 {
			m.some()
		}
		// The slot's creation waits for what is open, and its snapshot has what is in the WAL before it.
		for m.dies(); len(m.open) > 0; {
			m.open[0].visible = true
			m.open = m.open[1:]
		}
		m.confirmed, m.durable, m.kept.until = m.lsn+1, m.lsn+1, m.lsn+1
		m.kept.reading, m.kept.snapshot = true, m.shown()
		if n := len(m.log); n > 0 {
			m.kept.last = m.log[n-1].commit
		}
		for !m.call(t) {
			calls++
		}
		m.streamRest()
		if !m.holds(t) {
			t.Fatalf("seed %d", seed)
		}
	}
	if calls < seeds {
		t.Errorf("%d calls were killed, which shows little", calls)
	}
}

// streamRest is what run does afterwards.
func (m *model) streamRest() {
	for _, txn := range m.open {
		if txn.commit == 0 {
			m.lsn += 10
			txn.commit = m.lsn
			m.log = append(m.log, txn)
		}
	}
	m.stream(m.lsn+1, func(_ *modelTxn, b *wal.Batch) {
		for i := range b.Rows {
			m.send(&b.Rows[i])
		}
	})
}

func (m *model) holds(t *testing.T) bool {
	t.Helper()
	first, times := map[string][]int{}, map[int]int{}
	for _, row := range m.topic {
		if times[row.n]++; times[row.n] == 1 {
			first[row.key] = append(first[row.key], row.n)
		} else if m.once {
			t.Errorf("row %d comes again", row.n)
		}
	}
	want := map[string][]int{}
	for _, txn := range m.log {
		for _, row := range txn.rows {
			want[row.key] = append(want[row.key], row.n)
		}
	}
	for key, list := range want {
		if !slices.Equal(first[key], list) {
			t.Errorf("key %s comes as %v, want %v", key, first[key], list)
		}
	}
	return !t.Failed()
}
