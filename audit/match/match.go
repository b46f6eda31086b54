package match

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"unsafe"
)

// Verdict is what is found of a row.
type Verdict string

// The verdicts. Those of Faults are wrong; the others say what cannot be told, or what is worth
// knowing.
const (
	Missing    Verdict = "missing"      // no record, and the topic would have it
	Differs    Verdict = "differs"      // the record is in another topic, or has other content
	Twice      Verdict = "twice"        // more than one record
	OutOfOrder Verdict = "out_of_order" // an earlier row of the key comes later

	Gone       Verdict = "gone"        // no record, and the topic may have removed it
	Waiting    Verdict = "waiting"     // no record, and a dead letter waits
	Discarded  Verdict = "discarded"   // no record, and its dead letter was discarded
	BeforeSlot Verdict = "before_slot" // no record, and nobody knows what became of rows from before the slot
	Rejected   Verdict = "rejected"    // the mapping makes no record of the row

	OrderUnclear  Verdict = "order_unclear"  // an inversion that may be none
	TwoPartitions Verdict = "two_partitions" // a key has records in several partitions
)

// Verdicts are all of them, in the order of reports.
var Verdicts = []Verdict{Missing, Differs, Twice, OutOfOrder, Gone, Waiting, Discarded, BeforeSlot, Rejected, OrderUnclear, TwoPartitions}

// Fault reports whether something is wrong.
func (v Verdict) Fault(once bool) bool {
	return v == Missing || v == Differs || v == OutOfOrder || v == Twice && once
}

// Finding is a row that is not simply proven.
type Finding struct {
	Verdict Verdict
	Table   int
	Number  uint64 // of the row
	Topic   int    // where its record should be
	Part    string // that differs
	Records int    // of the row

	// Place of a record; Found is false where there is none.
	Found     bool
	InTopic   int
	Partition int32
	Offset    int64
	LSN       uint64
}

// Counts are those of a run.
type Counts struct {
	Rows     int64
	Records  int64 // with an event id
	Proven   int64
	By       map[Verdict]int64
	Assumed  int64 // of OutOfOrder, those by the order of the rows: it is certain if writers of one key do not overlap
	Extra    int64 // records of no row that was looked at
	Resent   int64 // sent again on purpose, beside another one
	Late     int64 // rows whose record was sent late or again: their order is not compared
	DiskUsed int64 // bytes in files at a time, at most
}

// Table is what is known of a table.
type Table struct {
	Ordered       bool // the order of its rows is that of their commits, where transactions differ
	NoOrder       bool // the order of its rows says nothing about when they were written
	BeforeUnknown bool // nobody knows whether rows from before the slot are delivered
	OwnPartitions bool // a column chooses the partition, so that a key may have several
}

// Topic is what is known of a topic.
type Topic struct {
	Compacted bool
	Removed   bool   // records were removed from its beginning
	Horizon   uint32 // Unix seconds: no record of a later row was removed; zero: it may have been
}

// Config of a Match.
type Config struct {
	Dir    string // for files; empty: that of the system
	Memory int    // bytes for entries, roughly
	Once   bool   // a second record is a fault
	Shared bool   // records of rows that nobody looks at may have the same event ids
}

// minMemory has a part be worth its overhead.
const minMemory = 1 << 20

// Match takes rows and records, and compares them. One goroutine uses it.
type Match struct {
	cfg     Config
	budget  *budget
	rows    *division
	records *division
	letters []Letters // by table

	tables []Table
	topics []Topic
	first  []uint64 // by table, the first row that has a record
	keys   *sorter
	counts Counts
	report func(Finding)
}

// New returns an empty one, which is to be closed.
func New(cfg Config) *Match {
	cfg.Memory = max(cfg.Memory, minMemory)
	m := &Match{cfg: cfg, budget: newBudget(cfg.Dir, cfg.Memory/2), counts: Counts{By: make(map[Verdict]int64)}}
	m.rows, m.records = m.budget.divide(rowSize), m.budget.divide(recordSize)
	m.keys = newSorter(m.budget, cfg.Memory/2)
	return m
}

// Close removes its files.
func (m *Match) Close() {
	m.budget.close()
	m.keys.close()
}

// Row takes a row.
func (m *Match) Row(r *Row) error {
	m.counts.Rows++
	return m.rows.add(share(&r.ID, 0), r.append)
}

// Reject counts a row of which the mapping makes no record.
func (m *Match) Reject() {
	m.counts.Rows++
	m.counts.By[Rejected]++
}

// Record takes a record.
func (m *Match) Record(r *Record) error {
	m.counts.Records++
	return m.records.add(share(&r.ID, 0), r.append)
}

// Letters are the dead letters of a table.
type Letters struct {
	Waiting   map[ID]struct{}
	Unnamed   int // that wait, each of one row of which nobody knows which it is
	Discarded map[ID]struct{}
}

// Letters takes the dead letters of each table, in the order of Finish's tables. Without a call none has any.
func (m *Match) Letters(of []Letters) { m.letters = of }

// share is the part of an id at a depth: six bits further on at each.
func share(id *ID, depth int) int {
	at := depth * 6
	return int(uint16(id[at/8])<<8|uint16(id[at/8+1])) >> (10 - at%8) & (fan - 1)
}

// maxDepth has 60 bits looked at: what is still together has one event id.
const maxDepth = 9

// Finish compares, and reports what is not simply proven. Rows and Records give their memory back.
func (m *Match) Finish(tables []Table, topics []Topic, report func(Finding)) (Counts, error) {
	m.letters = append(m.letters, make([]Letters, max(0, len(tables)-len(m.letters)))...)
	m.tables, m.topics, m.report = tables, topics, report
	m.first = make([]uint64, len(tables))
	if err := m.join(m.rows, m.records, 0); err != nil {
		return m.counts, err
	}
	if err := m.inOrder(); err != nil {
		return m.counts, err
	}
	m.counts.DiskUsed = m.budget.most
	return m.counts, nil
}

// join merges part by part.
func (m *Match) join(rows, records *division, depth int) error {
	defer rows.close()
	defer records.close()
	for n := range fan {
		held := rows.count(n)*int(unsafe.Sizeof(Row{})) + records.count(n)*int(unsafe.Sizeof(Record{}))
		if held > m.cfg.Memory/2 {
			if depth >= maxDepth {
				return fmt.Errorf("%d records have one event id, or nearly: more than --memory holds", records.count(n))
			}
			r, err := rows.divided(n, depth+1)
			if err != nil {
				return err
			}
			c, err := records.divided(n, depth+1)
			if err == nil {
				err = m.join(r, c, depth+1)
			}
			if err != nil {
				return err
			}
			continue
		}
		if err := m.part(rows, records, n); err != nil {
			return err
		}
	}
	return nil
}

// divided divides a part again.
func (d *division) divided(n, depth int) (*division, error) {
	finer := d.budget.divide(d.size)
	err := d.each(n, func(entry []byte) error {
		var id ID
		copy(id[:], entry)
		return finer.add(share(&id, depth), func(b []byte) []byte { return append(b, entry...) })
	})
	return finer, err
}

// part merges what fits into memory.
func (m *Match) part(rows, records *division, n int) error {
	left, right := make([]Row, 0, rows.count(n)), make([]Record, 0, records.count(n))
	err := rows.each(n, func(entry []byte) error {
		left = append(left, Row{})
		left[len(left)-1].parse(entry)
		return nil
	})
	if err == nil {
		err = records.each(n, func(entry []byte) error {
			right = append(right, Record{})
			right[len(right)-1].parse(entry)
			return nil
		})
	}
	if err != nil {
		return err
	}
	slices.SortFunc(left, func(a, b Row) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	slices.SortFunc(right, func(a, b Record) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	for len(left) > 0 {
		id := left[0].ID
		r := slices.IndexFunc(left, func(x Row) bool { return x.ID != id })
		if r < 0 {
			r = len(left)
		}
		for len(right) > 0 && bytes.Compare(right[0].ID[:], id[:]) < 0 {
			m.counts.Extra++
			right = right[1:]
		}
		c := 0
		for c < len(right) && right[c].ID == id {
			c++
		}
		if err := m.event(left[:r], right[:c]); err != nil {
			return err
		}
		left, right = left[r:], right[c:]
	}
	m.counts.Extra += int64(len(right))
	return nil
}

// event compares the rows of one event id, of which several tables may have one, with its records.
// Each row has those that are as the mapping makes them; rows that are alike share them. What is
// left is of a row that has none, and with a single row of that one, unless somebody else's records
// may have the id too.
func (m *Match) event(rows []Row, records []Record) error {
	if len(rows) > 1 { // those that are alike have the records in their order
		slices.SortFunc(rows, func(a, b Row) int { return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Number, b.Number)) })
		slices.SortFunc(records, func(a, b Record) int {
			return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
		})
	}
	own := make([][]Record, len(rows))
	var left []Record
	for _, c := range records {
		i := -1
		for n := range rows {
			if rows[n].Topic == c.Topic && rows[n].Same(&c.Content) && (i < 0 || len(own[n]) < len(own[i])) {
				i = n
			}
		}
		if i < 0 {
			left = append(left, c)
			continue
		}
		own[i] = append(own[i], c)
	}
	to := slices.IndexFunc(own, func(has []Record) bool { return len(has) == 0 })
	if len(rows) == 1 && !m.cfg.Shared {
		to = 0
	}
	if to >= 0 {
		own[to] = append(own[to], left...)
	} else {
		m.counts.Extra += int64(len(left))
	}
	for i := range rows {
		if err := m.row(&rows[i], own[i]); err != nil {
			return err
		}
	}
	return nil
}

func (m *Match) row(row *Row, own []Record) error {
	s := seen{Row: *row}
	if len(own) == 0 {
		letters := &m.letters[row.Table]
		if _, waits := letters.Waiting[row.ID]; waits {
			m.find(&s, Waiting, 0)
			return nil
		}
		if _, gone := letters.Discarded[row.ID]; gone {
			m.find(&s, Discarded, 0)
			return nil
		}
		return m.keys.add(&s) // whether it can be there depends on the others
	}
	slices.SortFunc(own, func(a, b Record) int { return earlier(row, &a, &b) })
	first := &own[0]
	s.found, s.resent, s.partition, s.offset, s.lsn, s.seq = true, first.Resent, first.Partition, first.Offset, first.LSN, first.Seq
	if at := &m.first[row.Table]; *at == 0 || row.Number < *at {
		*at = row.Number
	}
	if first.Resent {
		m.counts.Late++
	}
	sent, wrong := 0, ""
	where := first
	for i := range own {
		c := &own[i]
		if c.Resent && len(own) > 1 && sent > 0 {
			m.counts.Resent++
			continue
		}
		sent++
		if wrong == "" && c.Topic != row.Topic {
			wrong, where = "topic", c
		} else if wrong == "" && !c.Same(&row.Content) {
			wrong, where = row.differs(&c.Content), c
		}
	}
	if wrong != "" {
		m.findAt(&s, Differs, wrong, sent, where)
		s.faulty = true
	} else if sent > 1 {
		m.find(&s, Twice, sent)
		s.faulty = m.cfg.Once
	}
	if !s.faulty {
		m.counts.Proven++
	}
	s.found = first.Topic == row.Topic // the order is that of the topic where it should be
	if s.found || !s.faulty {
		return m.keys.add(&s)
	}
	return nil
}

// earlier has those in the right topic first, those sent again on purpose last, and the others as
// their partitions have them.
func earlier(row *Row, a, b *Record) int {
	rank := func(c *Record) int64 {
		n := int64(0)
		if c.Topic != row.Topic {
			n += 2
		}
		if c.Resent {
			n++
		}
		return n
	}
	if ra, rb := rank(a), rank(b); ra != rb {
		return int(ra - rb)
	}
	if a.Partition != b.Partition {
		return int(a.Partition) - int(b.Partition)
	}
	if a.Offset < b.Offset {
		return -1
	}
	return 1
}

func (m *Match) find(s *seen, v Verdict, records int) {
	m.counts.By[v]++
	m.report(Finding{
		Verdict: v, Table: int(s.Table), Number: s.Number, Topic: int(s.Topic), Records: records,
		Found: s.found, InTopic: int(s.Topic), Partition: s.partition, Offset: s.offset, LSN: s.lsn,
	})
}

func (m *Match) findAt(s *seen, v Verdict, part string, records int, c *Record) {
	m.counts.By[v]++
	m.report(Finding{
		Verdict: v, Table: int(s.Table), Number: s.Number, Topic: int(s.Topic), Part: part, Records: records,
		Found: true, InTopic: int(c.Topic), Partition: c.Partition, Offset: c.Offset, LSN: c.LSN,
	})
}

// group is the rows of one key in one topic, of one table.
type group struct {
	seen
	last    map[int32]seen // in each partition, the row that is furthest behind so far
	newest  uint64         // rank of the newest row that has a record, or whose tombstone is gone
	several bool
}

// inOrder looks at each key, and at the rows without a record beside the others of their key.
func (m *Match) inOrder() error {
	var at *group
	return m.keys.each(func(s *seen) error {
		if at == nil || at.Key != s.Key || at.NoKey != s.NoKey || at.Topic != s.Topic || at.Table != s.Table {
			at = &group{seen: *s, last: make(map[int32]seen)}
		}
		if s.found {
			m.follows(at, s)
			return nil
		}
		m.lacks(at, s)
		return nil
	})
}

// follows looks at a row's place after those before it.
func (m *Match) follows(at *group, s *seen) {
	at.newest = max(at.newest, s.Rank)
	if s.NoKey || s.resent {
		return
	}
	before, had := at.last[s.partition]
	if !had && len(at.last) > 0 && !at.several && !m.tables[s.Table].OwnPartitions {
		at.several = true
		m.find(s, TwoPartitions, 0)
	}
	if !had || s.offset > before.offset {
		at.last[s.partition] = *s
		return
	}
	switch exact := s.lsn != 0 && before.lsn != 0; {
	case exact || m.tables[s.Table].Ordered && s.Rank > before.Rank && s.XID != before.XID:
		m.find(s, OutOfOrder, 0)
		if !exact {
			m.counts.Assumed++
		}
		if !s.faulty {
			m.counts.Proven--
		}
	case s.Rank > before.Rank:
		m.find(s, OrderUnclear, 0)
	}
}

// lacks says what it means that a row has no record.
func (m *Match) lacks(at *group, s *seen) {
	topic, table := &m.topics[s.Topic], &m.tables[s.Table]
	first := m.first[s.Table]
	switch {
	case topic.Compacted && !s.NoKey && (s.Rank <= at.newest || table.NoOrder && at.newest > 0 || s.NoValue):
		at.newest = max(at.newest, s.Rank)
		m.find(s, Gone, 0)
	case topic.Removed && (s.At == 0 || topic.Horizon == 0 || s.At <= topic.Horizon):
		m.find(s, Gone, 0)
	case table.BeforeUnknown && (table.NoOrder || first == 0 || s.Number < first):
		m.find(s, BeforeSlot, 0)
	case m.letters[s.Table].Unnamed > 0:
		m.letters[s.Table].Unnamed--
		m.find(s, Waiting, 0)
	default:
		m.find(s, Missing, 0)
	}
}

var errTooMany = errors.New("more than 65 000 topics, or 255 tables")

// Numbers gives topics their numbers. One goroutine uses it.
type Numbers struct {
	Names []string
	by    map[string]uint16
}

// Of is the number of a topic.
func (n *Numbers) Of(topic string) (uint16, error) {
	if at, known := n.by[topic]; known {
		return at, nil
	}
	if len(n.Names) > 65_000 {
		return 0, errTooMany
	}
	if n.by == nil {
		n.by = make(map[string]uint16)
	}
	at := uint16(len(n.Names))
	n.by[topic], n.Names = at, append(n.Names, topic)
	return at, nil
}
