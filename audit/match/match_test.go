package match

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/router/record"
)

// plainRow and plainRecord are what a Row and a Record stand for.
type plainRow struct {
	id, key, value, topic string
	number, rank, lsn     int
	xid                   int
	at                    uint32
}

type plainRecord struct {
	id, key, value, topic string
	partition, offset     int
	lsn                   int
	resent                bool
}

// world is a table and topics, made from a seed.
type world struct {
	rng     *rand.Rand
	cfg     Config
	table   Table
	topics  []Topic
	names   []string
	rows    []plainRow
	records []plainRecord
	letters map[string]bool
	discard map[string]bool
	unnamed int
	lsn     bool
	equal   int // so many rows in a row are equal in what orders them
}

func newWorld(seed uint64) *world {
	rng := rand.New(rand.NewPCG(seed, 7))
	some := func() bool { return rng.IntN(2) == 0 }
	w := &world{
		rng: rng, cfg: Config{Once: some()}, letters: make(map[string]bool), discard: make(map[string]bool), lsn: some(), names: []string{"a", "b"},
		table:   Table{Ordered: some(), BeforeUnknown: some(), OwnPartitions: some()},
		topics:  []Topic{{Compacted: some(), Removed: some(), Horizon: uint32(rng.IntN(40))}, {}},
		unnamed: max(0, rng.IntN(23)-19),
	}
	w.table.NoOrder = !w.table.Ordered && some()
	w.equal = 1
	if !w.table.Ordered && !w.lsn {
		w.equal += rng.IntN(4)
	}
	offsets := map[string]int{}
	produce := func(r *plainRow, alter bool) {
		c := plainRecord{id: r.id, key: r.key, value: r.value, topic: r.topic, partition: int(r.key[0]) % 2, lsn: r.lsn}
		if alter {
			switch rng.IntN(4) {
			case 0:
				c.key += "!"
			case 1:
				c.value += "!"
			case 2:
				c.topic = w.names[rng.IntN(2)]
			case 3:
				c.partition = 1 - c.partition
			}
		}
		c.resent = rng.IntN(12) == 0
		at := fmt.Sprint(c.topic, c.partition)
		offsets[at] += 1 + rng.IntN(2)
		c.offset = offsets[at]
		w.records = append(w.records, c)
	}
	for n := range rng.IntN(60) {
		r := plainRow{
			id: fmt.Sprint("id", n), key: fmt.Sprint(rng.IntN(5)), value: fmt.Sprint("v", rng.IntN(3)), topic: w.names[min(1, rng.IntN(4))],
			number: n + 1, rank: n - n%w.equal + 1, xid: n / 2, at: uint32(n + 1),
		}
		if w.lsn {
			r.lsn = 1000 + n/2*10 + rng.IntN(3)*15
		}
		w.rows = append(w.rows, r)
	}
	order := slices.Clone(w.rows)
	if some() {
		for range rng.IntN(4) {
			if len(order) > 1 {
				i := rng.IntN(len(order) - 1)
				order[i], order[i+1] = order[i+1], order[i]
			}
		}
	}
	for i := range order {
		if rng.IntN(8) > 0 {
			produce(&order[i], rng.IntN(10) == 0)
		} else if rng.IntN(3) == 0 {
			w.letters[order[i].id] = true
		} else if rng.IntN(4) == 0 {
			w.discard[order[i].id] = true
		}
		if rng.IntN(8) == 0 {
			produce(&order[rng.IntN(i+1)], rng.IntN(10) == 0)
		}
		if rng.IntN(10) == 0 {
			produce(&plainRow{id: fmt.Sprint("other", i), key: "1", topic: "a"}, false)
		}
	}
	return w
}

// say is what the world's own, plain judgement is.
func (w *world) say() Counts {
	c := Counts{Rows: int64(len(w.rows)), Records: int64(len(w.records)), By: make(map[Verdict]int64)}
	of := make(map[string][]plainRecord)
	for _, r := range w.records {
		of[r.id] = append(of[r.id], r)
	}
	type placed struct {
		plainRow
		at     *plainRecord
		faulty bool
	}
	groups := make(map[string][]placed)
	first := 0
	for _, row := range w.rows {
		own := of[row.id]
		delete(of, row.id)
		if len(own) > 0 && first == 0 {
			first = row.number
		}
		if len(own) == 0 && w.letters[row.id] {
			c.By[Waiting]++
			continue
		}
		if len(own) == 0 && w.discard[row.id] {
			c.By[Discarded]++
			continue
		}
		p := placed{plainRow: row}
		if len(own) > 0 {
			plain, wrong := 0, false
			slices.SortStableFunc(own, func(a, b plainRecord) int {
				weight := func(r plainRecord) int {
					n := r.partition*1000 + r.offset
					if r.resent {
						n += 100_000
					}
					if r.topic != row.topic {
						n += 1_000_000
					}
					return n
				}
				return weight(a) - weight(b)
			})
			if own[0].resent {
				c.Late++
			}
			for i, r := range own {
				if r.resent && i > 0 {
					c.Resent++
					continue
				}
				plain++
				wrong = wrong || r.topic != row.topic || r.key != row.key || r.value != row.value
			}
			switch {
			case wrong:
				c.By[Differs]++
				p.faulty = true
			case plain > 1:
				c.By[Twice]++
				p.faulty = w.cfg.Once
			}
			if !p.faulty {
				c.Proven++
			}
			if own[0].topic != row.topic {
				continue
			}
			p.at = &own[0]
		}
		group := row.topic + row.key
		groups[group] = append(groups[group], p)
	}
	for _, left := range of {
		c.Extra += int64(len(left))
	}
	for _, group := range groups {
		var found []placed
		newest := 0
		for _, p := range group {
			if p.at != nil {
				found = append(found, p)
				newest = p.rank
			}
		}
		slices.SortStableFunc(found, func(a, b placed) int {
			if a.at.lsn != b.at.lsn {
				return a.at.lsn - b.at.lsn
			}
			return a.number - b.number
		})
		partitions := map[int]bool{}
		for i, p := range found {
			if p.at.resent {
				continue
			}
			partitions[p.at.partition] = true
			var worst *placed
			for j := range found[:i] {
				if q := &found[j]; !q.at.resent && q.at.partition == p.at.partition && (w.lsn || q.rank < p.rank) && (worst == nil || q.at.offset > worst.at.offset) {
					worst = q
				}
			}
			if worst == nil || worst.at.offset < p.at.offset {
				continue
			}
			if w.lsn || w.table.Ordered && worst.xid != p.xid {
				c.By[OutOfOrder]++
				if !w.lsn {
					c.Assumed++
				}
				if !p.faulty {
					c.Proven--
				}
			} else {
				c.By[OrderUnclear]++
			}
		}
		if len(partitions) > 1 && !w.table.OwnPartitions {
			c.By[TwoPartitions]++
		}
		for _, p := range group {
			if p.at != nil {
				continue
			}
			topic := w.topics[slices.Index(w.names, p.topic)]
			switch {
			case topic.Compacted && (p.rank <= newest || w.table.NoOrder && newest > 0),
				topic.Removed && (topic.Horizon == 0 || p.plainRow.at <= topic.Horizon):
				c.By[Gone]++
			case w.table.BeforeUnknown && (w.table.NoOrder || first == 0 || p.number < first):
				c.By[BeforeSlot]++
			default:
				c.By[Missing]++
			}
		}
	}
	if n := min(int64(w.unnamed), c.By[Missing]); n > 0 { // each is of one row, and nobody knows which
		c.By[Waiting] += n
		if c.By[Missing] -= n; c.By[Missing] == 0 {
			delete(c.By, Missing)
		}
	}
	return c
}

// judged has a Match say it, with so much memory.
func (w *world) judged(t *testing.T, dir string, memory int) Counts {
	t.Helper()
	cfg := w.cfg
	cfg.Dir = dir
	m := New(cfg)
	defer m.Close()
	m.cfg.Memory, m.budget.limit, m.keys.limit = memory, memory/2, max(1, memory/1000)
	h := NewHasher()
	number := func(topic string) uint16 { return uint16(slices.Index(w.names, topic)) }
	for _, i := range w.rng.Perm(len(w.rows)) {
		r := &w.rows[i]
		row := Row{
			ID: h.ID([]byte(r.id)), Content: h.Content([]byte(r.key), []byte(r.value), nil), Topic: number(r.topic),
			Number: uint64(r.number), Rank: uint64(r.rank), XID: uint32(r.xid), At: r.at,
		}
		if err := m.Row(&row); err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range w.rng.Perm(len(w.records)) {
		r := &w.records[i]
		rec := Record{
			ID: h.ID([]byte(r.id)), Content: h.Content([]byte(r.key), []byte(r.value), nil), Topic: number(r.topic),
			Partition: int32(r.partition), Offset: int64(r.offset), LSN: uint64(r.lsn), Resent: r.resent,
		}
		if err := m.Record(&rec); err != nil {
			t.Fatal(err)
		}
	}
	hashed := func(events map[string]bool) map[ID]struct{} {
		ids := make(map[ID]struct{})
		for id := range events {
			ids[h.ID([]byte(id))] = struct{}{}
		}
		return ids
	}
	m.Letters([]Letters{{Waiting: hashed(w.letters), Unnamed: w.unnamed, Discarded: hashed(w.discard)}})
	found := make(map[Verdict]int64)
	counts, err := m.Finish([]Table{w.table}, w.topics, func(f Finding) { found[f.Verdict]++ })
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(found, counts.By) {
		t.Errorf("reported %v, counted %v", found, counts.By)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%d files are left", len(left))
	}
	if m.budget.onDisk != 0 {
		t.Errorf("%d bytes are said to be left", m.budget.onDisk)
	}
	counts.DiskUsed = 0
	return counts
}

// What a Match says is what plain maps say of the same rows and records, with or without files.
func TestMatch_SaysWhatPlainMapsSay(t *testing.T) {
	seeds := uint64(400)
	if testing.Short() {
		seeds = 100
	}
	all := make(map[Verdict]int64)
	for seed := range seeds {
		w := newWorld(seed)
		want := w.say()
		for v, n := range want.By {
			all[v] += n
		}
		memory := []int{1 << 20, 2000, 20_000}[seed%3]
		if got := w.judged(t, t.TempDir(), memory); !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: %+v, want %+v", seed, got, want)
		}
	}
	for _, v := range Verdicts {
		if all[v] == 0 && v != Rejected {
			t.Errorf("no seed has %s", v)
		}
	}
}

func FuzzMatch(f *testing.F) {
	f.Add(uint64(1), uint16(2000))
	f.Fuzz(func(t *testing.T, seed uint64, memory uint16) {
		w := newWorld(seed)
		if got, want := w.judged(t, t.TempDir(), int(memory)+1), w.say(); !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, want %+v", got, want)
		}
	})
}

// Many more entries than fit go through files that are divided more than once, and are gone then.
func TestMatch_DividesWhatDoesNotFit(t *testing.T) {
	dir := t.TempDir()
	m := New(Config{Dir: dir})
	defer m.Close()
	m.cfg.Memory, m.budget.limit, m.keys.limit = 64<<10, 32<<10, 500
	h := NewHasher()
	const n = 30_000
	for i := range n {
		id, c := h.ID(fmt.Append(nil, i)), h.Content(fmt.Append(nil, i%3), fmt.Append(nil, i), nil)
		if err := m.Row(&Row{ID: id, Content: c, Number: uint64(i + 1), Rank: uint64(i + 1), XID: uint32(i)}); err != nil {
			t.Fatal(err)
		}
		if i%10_000 == 77 {
			continue
		}
		if err := m.Record(&Record{ID: id, Content: c, Offset: int64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	counts, err := m.Finish([]Table{{Ordered: true}}, []Topic{{}}, func(Finding) {})
	if err != nil || counts.Proven != n-3 || counts.By[Missing] != 3 || len(counts.By) != 1 {
		t.Fatalf("%+v, %v", counts, err)
	}
	if counts.DiskUsed < n*rowSize {
		t.Errorf("%d bytes were in files", counts.DiskUsed)
	}
}

func TestHasher_LeavesOutWhatProducingDecides(t *testing.T) {
	h := NewHasher()
	structured := record.Header{Key: "content-type", Value: []byte("application/cloudevents+json; charset=UTF-8")}
	version := record.Header{Key: "ce_specversion", Value: []byte("1.0")}
	header := func(key, value string) record.Header { return record.Header{Key: key, Value: []byte(value)} }
	for name, tt := range map[string]struct {
		a, b      string
		ha, hb    []record.Header
		same      bool
		part      string
		key, key2 []byte
	}{
		"equal":             {a: "x", b: "x", ha: []record.Header{header("id", "1")}, hb: []record.Header{header("id", "1")}, same: true},
		"another value":     {a: "x", b: "y", part: "value"},
		"another header":    {ha: []record.Header{header("id", "1")}, hb: []record.Header{header("id", "2")}, part: "headers"},
		"a null header":     {ha: []record.Header{{Key: "h"}}, hb: []record.Header{header("h", "")}, part: "headers"},
		"moved bytes":       {ha: []record.Header{header("ab", "c")}, hb: []record.Header{header("a", "bc")}, part: "headers"},
		"order of headers":  {ha: []record.Header{header("a", ""), header("b", "")}, hb: []record.Header{header("b", ""), header("a", "")}, part: "headers"},
		"ours":              {hb: []record.Header{header("cdc-relay-lsn", "0/1"), header("traceparent", "t"), header("tracestate", "s")}, same: true},
		"structured":        {a: `{"id":"1","time":"2026-01-01T00:00:00Z","data":{"time":"a"}}`, b: `{"id":"1","time":"2026-01-02T00:00:00.5Z","data":{"time":"a"}}`, ha: []record.Header{structured}, hb: []record.Header{structured}, same: true},
		"no time":           {a: `{"id":"1","time":"2026-01-01T00:00:00Z","data":1}`, b: `{"id":"1","data":1}`, ha: []record.Header{structured}, hb: []record.Header{structured}, same: true},
		"time at the end":   {a: `{"id":"1","time":"2026-01-01T00:00:00Z"}`, b: `{"id":"1"}`, ha: []record.Header{structured}, hb: []record.Header{structured}, same: true},
		"time of the data":  {a: `{"id":"1","data":{"time":"a"}}`, b: `{"id":"1","data":{"time":"b"}}`, ha: []record.Header{structured}, hb: []record.Header{structured}, part: "value"},
		"time in a text":    {a: `{"id":"\"time\":\"a\""}`, b: `{"id":"\"time\":\"b\""}`, ha: []record.Header{structured}, hb: []record.Header{structured}, part: "value"},
		"no cloud event":    {a: `{"time":"a"}`, b: `{"time":"b"}`, part: "value"},
		"binary":            {ha: []record.Header{version, header("ce_time", "a")}, hb: []record.Header{version, header("ce_time", "b")}, same: true},
		"ce_time by itself": {ha: []record.Header{header("ce_time", "a")}, hb: []record.Header{header("ce_time", "b")}, part: "headers"},
		"key":               {key: []byte("a"), key2: []byte("b"), part: "key"},
		"no key":            {key: []byte(""), key2: nil, part: "key"},
		"value and headers": {a: "x", b: "y", hb: []record.Header{header("id", "2")}, part: "value and headers"},
	} {
		a, b := h.Content(tt.key, []byte(tt.a), tt.ha), h.Content(tt.key2, []byte(tt.b), tt.hb)
		if a.Same(&b) != tt.same {
			t.Errorf("%s: same is %t", name, a.Same(&b))
		}
		if got := a.differs(&b); !tt.same && got != tt.part {
			t.Errorf("%s: %s differs, want %s", name, got, tt.part)
		}
	}
	if a, b := h.Content(nil, nil, nil), h.Content(nil, []byte{}, nil); a.Same(&b) {
		t.Error("null is an empty value")
	}
}

// The rows of two tables may have one event id; each takes the record that is its own.
func TestMatch_TellsTheTablesOfAnIDApart(t *testing.T) {
	h := NewHasher()
	id := h.ID([]byte("1"))
	a, b, c := h.Content(nil, []byte("a"), nil), h.Content(nil, []byte("b"), nil), h.Content(nil, []byte("c"), nil)
	for name, tt := range map[string]struct {
		shared  bool
		rows    []Content
		records []Content
		want    map[Verdict]int64
		proven  int64
		extra   int64
	}{
		"both":                   {rows: []Content{a, b}, records: []Content{b, a}, want: map[Verdict]int64{}, proven: 2},
		"alike":                  {rows: []Content{a, a}, records: []Content{a, a}, want: map[Verdict]int64{}, proven: 2},
		"alike, one is missing":  {rows: []Content{a, a}, records: []Content{a}, want: map[Verdict]int64{Missing: 1}, proven: 1},
		"one is missing":         {rows: []Content{a, b}, records: []Content{b}, want: map[Verdict]int64{Missing: 1}, proven: 1},
		"one differs":            {rows: []Content{a, b}, records: []Content{c, a}, want: map[Verdict]int64{Differs: 1}, proven: 1},
		"somebody else's":        {shared: true, rows: []Content{a}, records: []Content{a, c}, want: map[Verdict]int64{}, proven: 1, extra: 1},
		"nobody else's":          {rows: []Content{a}, records: []Content{a, c}, want: map[Verdict]int64{Differs: 1}},
		"twice, of a shared one": {shared: true, rows: []Content{a}, records: []Content{a, a, c}, want: map[Verdict]int64{Twice: 1}, extra: 1},
	} {
		m := New(Config{Shared: tt.shared, Once: true})
		for i, content := range tt.rows {
			if err := m.Row(&Row{ID: id, Content: content, Table: uint8(i), Number: 1}); err != nil {
				t.Fatal(err)
			}
		}
		for i, content := range tt.records {
			if err := m.Record(&Record{ID: id, Content: content, Offset: int64(i)}); err != nil {
				t.Fatal(err)
			}
		}
		got, err := m.Finish(make([]Table, 2), make([]Topic, 1), func(Finding) {})
		m.Close()
		if err != nil || !maps.Equal(got.By, tt.want) || got.Proven != tt.proven || got.Extra != tt.extra {
			t.Errorf("%s: %+v, %v; want %v", name, got, err, tt.want)
		}
	}
}

// A letter that does not name its row is of one row: the others that lack a record are missing.
func TestMatch_TakesOneRowForWaitingByALetterWithoutAName(t *testing.T) {
	h, m := NewHasher(), New(Config{})
	defer m.Close()
	for n := range 3 {
		if err := m.Row(&Row{ID: h.ID(fmt.Append(nil, n)), Content: h.Content(nil, fmt.Append(nil, n), nil), Number: uint64(n + 1)}); err != nil {
			t.Fatal(err)
		}
	}
	m.Letters([]Letters{{Unnamed: 1}})
	got, err := m.Finish(make([]Table, 1), make([]Topic, 1), func(Finding) {})
	if want := map[Verdict]int64{Waiting: 1, Missing: 2}; err != nil || !maps.Equal(got.By, want) {
		t.Errorf("%+v, %v; want %v", got, err, want)
	}
}

// Rows of one table that are alike have their records in the order of the rows, whatever the order in which
// both came.
func TestMatch_GivesRowsThatAreAlikeTheirRecordsInOrder(t *testing.T) {
	h := NewHasher()
	id, content := h.ID([]byte("1")), h.Content([]byte("key"), []byte("a"), nil)
	for _, backwards := range []bool{false, true} {
		m := New(Config{Once: true})
		for _, n := range map[bool][]int{false: {1, 2, 3}, true: {3, 2, 1}}[backwards] {
			if err := m.Row(&Row{ID: id, Content: content, Number: uint64(n), Rank: uint64(n), XID: uint32(n)}); err != nil {
				t.Fatal(err)
			}
			if err := m.Record(&Record{ID: id, Content: content, Offset: int64(10 * n)}); err != nil {
				t.Fatal(err)
			}
		}
		got, err := m.Finish([]Table{{Ordered: true}}, make([]Topic, 1), func(Finding) {})
		m.Close()
		if err != nil || got.Proven != 3 || len(got.By) > 0 {
			t.Errorf("backwards %t: %+v, %v", backwards, got, err)
		}
	}
}

// Rows of one time have their records in any order. A record behind one of a later time is reported
// all the same, also where the records between them are of rows of one time.
func TestMatch_OrdersNoRowsOfOneTime(t *testing.T) {
	h := NewHasher()
	for name, tt := range map[string]struct {
		ranks   []uint64 // of the rows in their order
		records []int    // the rows in the order of their records
		lsn     []uint64 // of the records in theirs
		want    map[Verdict]int64
	}{
		"one time":                    {ranks: []uint64{1, 1}, records: []int{1, 0}, want: map[Verdict]int64{}},
		"two times":                   {ranks: []uint64{1, 2}, records: []int{1, 0}, want: map[Verdict]int64{OrderUnclear: 1}},
		"one time, then an earlier":   {ranks: []uint64{1, 2, 2}, records: []int{2, 1, 0}, want: map[Verdict]int64{OrderUnclear: 2}},
		"an earlier within one time":  {ranks: []uint64{1, 2, 2}, records: []int{2, 0, 1}, want: map[Verdict]int64{OrderUnclear: 1}},
		"a later one before one time": {ranks: []uint64{1, 1, 3}, records: []int{2, 1, 0}, want: map[Verdict]int64{OrderUnclear: 1}},
		"positions within one time":   {ranks: []uint64{1, 1}, records: []int{1, 0}, lsn: []uint64{20, 10}, want: map[Verdict]int64{OutOfOrder: 1}},
	} {
		m := New(Config{})
		for i, rank := range tt.ranks {
			id := fmt.Append(nil, i)
			if err := m.Row(&Row{ID: h.ID(id), Content: h.Content([]byte("key"), id, nil), Number: uint64(i + 1), Rank: rank, XID: uint32(rank)}); err != nil {
				t.Fatal(err)
			}
		}
		for offset, i := range tt.records {
			id := fmt.Append(nil, i)
			r := Record{ID: h.ID(id), Content: h.Content([]byte("key"), id, nil), Offset: int64(offset)}
			if tt.lsn != nil {
				r.LSN = tt.lsn[offset]
			}
			if err := m.Record(&r); err != nil {
				t.Fatal(err)
			}
		}
		got, err := m.Finish(make([]Table, 1), make([]Topic, 1), func(Finding) {})
		m.Close()
		if err != nil || !maps.Equal(got.By, tt.want) {
			t.Errorf("%s: %+v, %v; want %v", name, got, err, tt.want)
		}
	}
}

// Of two rows of one time nobody knows which record came last, and compaction keeps the last.
func TestMatch_TakesARowOfOneTimeForCompacted(t *testing.T) {
	h := NewHasher()
	for name, tt := range map[string]struct {
		ranks []uint64
		nulls []int // the rows without a value
		kept  []int // the rows that have a record
		want  map[Verdict]int64
	}{
		"the second of one time":               {ranks: []uint64{1, 1}, kept: []int{0}, want: map[Verdict]int64{Gone: 1}},
		"the first of one time":                {ranks: []uint64{1, 1}, kept: []int{1}, want: map[Verdict]int64{Gone: 1}},
		"a later time":                         {ranks: []uint64{1, 2}, kept: []int{0}, want: map[Verdict]int64{Missing: 1}},
		"beside a tombstone of one time":       {ranks: []uint64{1, 1}, nulls: []int{0}, want: map[Verdict]int64{Gone: 2}},
		"of a later time than the tombstone's": {ranks: []uint64{1, 2}, nulls: []int{0}, want: map[Verdict]int64{Gone: 1, Missing: 1}},
	} {
		m := New(Config{})
		for i, rank := range tt.ranks {
			id := fmt.Append(nil, i)
			value := id
			if slices.Contains(tt.nulls, i) {
				value = nil
			}
			content := h.Content([]byte("key"), value, nil)
			if err := m.Row(&Row{ID: h.ID(id), Content: content, Number: uint64(i + 1), Rank: rank, XID: uint32(rank)}); err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(tt.kept, i) {
				continue
			}
			if err := m.Record(&Record{ID: h.ID(id), Content: content, Offset: int64(i)}); err != nil {
				t.Fatal(err)
			}
		}
		got, err := m.Finish(make([]Table, 1), []Topic{{Compacted: true}}, func(Finding) {})
		m.Close()
		if err != nil || !maps.Equal(got.By, tt.want) {
			t.Errorf("%s: %+v, %v; want %v", name, got.By, err, tt.want)
		}
	}
}

// Only an order that rests on the rows is assumed; one by positions is certain.
func TestMatch_CountsWhatItAssumesOfTheOrder(t *testing.T) {
	h := NewHasher()
	for name, tt := range map[string]struct {
		ordered       bool
		lsn           []uint64 // of the records in theirs
		wrong, assume int64
	}{
		"by the rows":   {ordered: true, wrong: 1, assume: 1},
		"by positions":  {ordered: true, lsn: []uint64{20, 10}, wrong: 1},
		"by one alone":  {ordered: true, lsn: []uint64{20, 0}, wrong: 1, assume: 1},
		"not by either": {},
	} {
		m := New(Config{})
		for i := range 2 {
			id := fmt.Append(nil, i)
			if err := m.Row(&Row{ID: h.ID(id), Content: h.Content([]byte("key"), id, nil), Number: uint64(i + 1), Rank: uint64(i + 1), XID: uint32(i + 1)}); err != nil {
				t.Fatal(err)
			}
		}
		for offset, i := range []int{1, 0} {
			id := fmt.Append(nil, i)
			r := Record{ID: h.ID(id), Content: h.Content([]byte("key"), id, nil), Offset: int64(offset)}
			if tt.lsn != nil {
				r.LSN = tt.lsn[offset]
			}
			if err := m.Record(&r); err != nil {
				t.Fatal(err)
			}
		}
		got, err := m.Finish([]Table{{Ordered: tt.ordered}}, make([]Topic, 1), func(Finding) {})
		m.Close()
		if err != nil || got.By[OutOfOrder] != tt.wrong || got.Assumed != tt.assume {
			t.Errorf("%s: %+v, %v; want %d, %d of them assumed", name, got, err, tt.wrong, tt.assume)
		}
	}
}
