// Package figures keeps figures of the last minutes and hours in a fixed amount of memory, for
// whoever looks only once something has happened. It is pure: it has no clock, and the times
// are those of its caller.
package figures

import (
	"math"
	"time"
)

// Series is one figure over time.
type Series int

// The series of a Sample. StateSeries has numbers of the caller's: the greater the worse.
const (
	Received       Series = iota // rows a second
	Acknowledged                 // records a second
	LagSeconds                   // age of the oldest row that is not confirmed
	LagBytes                     // WAL that is not confirmed
	RetainedBytes                // WAL that PostgreSQL keeps for the slot
	SafeBytes                    // WAL until the slot is lost
	InFlightRows                 // rows that are not acknowledged
	InFlightBytes                // memory that they hold
	OldestUnacked                // seconds since the oldest row in flight was read
	AgeP50                       // seconds from commit to acknowledgement
	AgeP95                       //
	AgeP99                       //
	ProduceP95                   // seconds from hand-over to acknowledgement
	ResidentBytes                // memory of the process
	HeapBytes                    // of that, Go's heap
	CPU                          // of one core
	StateSeries                  //
	numberOfSeries               // how many there are
)

// names are those of the series in the interface.
var names = [numberOfSeries]string{
	"received", "acknowledged", "lag_seconds", "lag_bytes", "retained_bytes", "safe_bytes", "in_flight_rows", "in_flight_bytes",
	"oldest_unacked", "age_p50", "age_p95", "age_p99", "produce_p95", "resident_bytes", "heap_bytes", "cpu", "state",
}

// Names lists the series.
func Names() []string { return names[:] }

// Named finds a series by its name.
func Named(name string) (Series, bool) {
	for i, n := range names {
		if n == name {
			return Series(i), true
		}
	}
	return 0, false
}

// averaged are the series whose average says what a longer time was like. Of the others it is
// the greatest.
var averaged = [numberOfSeries]bool{Received: true, Acknowledged: true, CPU: true}

// Sample has one number for each series; NaN: not known.
type Sample [numberOfSeries]float32

// Unknown is a sample that knows nothing.
func Unknown() (s Sample) {
	for i := range s {
		s[i] = float32(math.NaN())
	}
	return s
}

const (
	fineStep   = time.Second
	finePoints = 900
	coarseStep = 10 * time.Second
)

// Ring keeps a sample a second for 15 minutes, and one of ten seconds for as long as it was
// made for.
type Ring struct {
	fine, coarse tier
	sum          Sample // of the ten seconds that are not over
	seen         [numberOfSeries]int
	open         int64 // number of these ten seconds
}

// tier is a ring of samples a step apart.
type tier struct {
	step    int64 // seconds
	samples []Sample
	numbers []int64 // time ÷ step of each sample, plus 1; 0: there is none
}

func newTier(step time.Duration, points int) tier {
	return tier{int64(step / time.Second), make([]Sample, points), make([]int64, points)}
}

func (t *tier) put(number int64, s *Sample) {
	at := int(number % int64(len(t.samples)))
	t.samples[at], t.numbers[at] = *s, number+1
}

// get returns nil where there is no sample.
func (t *tier) get(number int64) *Sample {
	if number < 0 {
		return nil
	}
	at := int(number % int64(len(t.samples)))
	if t.numbers[at] != number+1 {
		return nil
	}
	return &t.samples[at]
}

// NewRing makes a ring that keeps the given time, at least a minute.
func NewRing(keep time.Duration) *Ring {
	keep = max(keep, time.Minute)
	return &Ring{
		fine:   newTier(fineStep, int(min(keep/fineStep, finePoints))),
		coarse: newTier(coarseStep, int(keep/coarseStep)),
		sum:    Unknown(),
	}
}

// Add puts the sample of a second. One of a time before the last is kept too, as clocks are set.
func (r *Ring) Add(at time.Time, s Sample) {
	second := at.Unix()
	if second < 0 {
		return
	}
	r.fine.put(second, &s)
	number := second / r.coarse.step
	if number != r.open {
		r.open, r.sum, r.seen = number, Unknown(), [numberOfSeries]int{}
	}
	for i, v := range s {
		if v != v {
			continue
		}
		switch n := float32(r.seen[i]); {
		case n == 0:
			r.sum[i] = v
		case averaged[i]:
			r.sum[i] += (v - r.sum[i]) / (n + 1)
		default:
			r.sum[i] = max(r.sum[i], v)
		}
		r.seen[i]++
	}
	r.coarse.put(number, &r.sum)
}

// Columns are numbers of one series each, a step apart; NaN where nothing is known.
type Columns struct {
	From   time.Time
	Step   time.Duration
	Series []Series
	Values [][]float32
}

// Steps are the distances between points that Read knows.
var Steps = []time.Duration{fineStep, coarseStep}

// Read gives the series from a time to another one, both included, as far as they are kept.
func (r *Ring) Read(series []Series, from, to time.Time, step time.Duration) Columns {
	t := &r.coarse
	if step <= fineStep {
		t = &r.fine
	}
	last := to.Unix() / t.step
	first := max(from.Unix()/t.step, last-int64(len(t.samples))+1)
	if from.Unix()%t.step != 0 && first == from.Unix()/t.step {
		first++
	}
	c := Columns{From: time.Unix(first*t.step, 0), Step: time.Duration(t.step) * time.Second, Series: series, Values: make([][]float32, len(series))}
	for i, one := range series {
		c.Values[i] = make([]float32, 0, max(0, last-first+1))
		for number := first; number <= last; number++ {
			v := float32(math.NaN())
			if s := t.get(number); s != nil {
				v = s[one]
			}
			c.Values[i] = append(c.Values[i], v)
		}
	}
	return c
}
