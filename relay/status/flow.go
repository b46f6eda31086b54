package status

import (
	"cmp"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Flow is what was read of one table, or acknowledged for one topic, since the process started.
type Flow struct {
	Name      string    `json:"name"`
	Total     int64     `json:"total"`
	Rejected  int64     `json:"rejected"`   // of a table: rows that can never be delivered as they are
	PerSecond float64   `json:"per_second"` // over the last ten seconds
	Last      time.Time `json:"last,omitzero"`
}

// maxFlows bounds the topics that a status has rates of: the busiest ones.
const maxFlows = 100

// flowSeconds is over how many seconds a rate is the average.
const flowSeconds = 10

// flows counts by name. What is counted comes in runs, so that a batch of one table or topic
// costs one look-up. It has no clock and is guarded by the monitor's lock.
type flows struct {
	limit  int // of names
	byName map[string]*flow

	at   [flowSeconds + 1]time.Time // of the points that each flow has, a ring
	next int
}

type flow struct {
	total   int64
	refused int64
	last    time.Time
	points  [flowSeconds + 1]int64
}

func newFlows(limit int) flows { return flows{limit: limit, byName: map[string]*flow{}} }

// of returns the flow of a name; nil: there are too many.
func (f *flows) of(name string) *flow {
	one, known := f.byName[name]
	if !known && len(f.byName) < f.limit {
		one = new(flow)
		f.byName[name] = one
	}
	return one
}

func (f *flow) add(n int, now time.Time) {
	if f != nil {
		f.total += int64(n)
		f.last = now
	}
}

// tick takes a point of each flow, at most one a second.
func (f *flows) tick(now time.Time) {
	before := f.at[(f.next+flowSeconds)%(flowSeconds+1)]
	if now.Sub(before) < time.Second {
		return
	}
	f.at[f.next] = now
	for _, one := range f.byName {
		one.points[f.next] = one.total
	}
	f.next = (f.next + 1) % (flowSeconds + 1)
}

// list gives the flows by name, or the busiest maxFlows of them.
func (f *flows) list() []Flow {
	newest := (f.next + flowSeconds) % (flowSeconds + 1)
	oldest := f.next
	for oldest != newest && f.at[oldest].IsZero() {
		oldest = (oldest + 1) % (flowSeconds + 1)
	}
	took := f.at[newest].Sub(f.at[oldest]).Seconds()
	all := make([]Flow, 0, len(f.byName))
	for name, one := range f.byName {
		shown := Flow{Name: name, Total: one.total, Rejected: one.refused, Last: one.last}
		if took > 0 {
			shown.PerSecond = float64(one.points[newest]-one.points[oldest]) / took
		}
		all = append(all, shown)
	}
	return busiest(all)
}

// busiest sorts by name, and leaves out the quietest where there are too many.
func busiest(all []Flow) []Flow {
	if len(all) > maxFlows {
		slices.SortFunc(all, func(a, b Flow) int {
			return cmp.Or(cmp.Compare(b.PerSecond, a.PerSecond), cmp.Compare(b.Total, a.Total), cmp.Compare(a.Name, b.Name))
		})
		all = all[:maxFlows]
	}
	slices.SortFunc(all, func(a, b Flow) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// joined adds up the flows of several shards.
func joined(all []Flow) []Flow {
	byName := make(map[string]int, len(all))
	sums := make([]Flow, 0, len(all))
	for _, one := range all {
		at, known := byName[one.Name]
		if !known {
			byName[one.Name] = len(sums)
			sums = append(sums, one)
			continue
		}
		s := &sums[at]
		s.Total += one.Total
		s.Rejected += one.Rejected
		s.PerSecond += one.PerSecond
		if one.Last.After(s.Last) {
			s.Last = one.Last
		}
	}
	return busiest(sums)
}

// counted are the flows of a relay.
type counted struct {
	tables    flows                   // of rows that were read
	relations map[*wal.Relation]*flow // the same
	topics    flows                   // of records that are durable
}

func newCounted() counted {
	return counted{tables: newFlows(maxTopics), relations: map[*wal.Relation]*flow{}, topics: newFlows(maxTopics)}
}

// count takes the points of which rates are made.
func (b *Monitor) count(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counted.tables.tick(now)
	b.counted.topics.tick(now)
}

// readRows counts the rows of a batch by table. Call it with the lock held.
func (b *Monitor) readRows(batch *wal.Batch, now time.Time) {
	rows := batch.Rows
	b.rowsRead.Add(int64(len(rows)))
	for begin := 0; begin < len(rows); {
		of := rows[begin].Relation
		end := begin + 1
		for end < len(rows) && rows[end].Relation == of {
			end++
		}
		b.tableFlow(of).add(end-begin, now)
		begin = end
	}
}

// RejectedRow counts a row that can never be delivered as it is. table is empty where that is not known.
func (b *Monitor) RejectedRow(table string) {
	b.Rejected.Add(1)
	if table == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if one := b.counted.tables.of(table); one != nil {
		one.refused++
	}
}

// tableFlow is that of a relation, which a session announces anew. Call it with the lock held.
func (b *Monitor) tableFlow(of *wal.Relation) *flow {
	one, known := b.counted.relations[of]
	if !known {
		if len(b.counted.relations) >= maxTopics {
			clear(b.counted.relations)
		}
		one = b.counted.tables.of(of.Qualified())
		b.counted.relations[of] = one
	}
	return one
}
