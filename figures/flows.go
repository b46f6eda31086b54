package figures

import (
	"math"
	"slices"
	"strings"
	"time"
)

// MaxFlows bounds the names that Flows keeps numbers of.
const MaxFlows = 20

// Flows keeps a number of each name, such as the rate of each table, every ten seconds.
type Flows struct {
	step    int64   // seconds
	numbers []int64 // time ÷ step of each point, plus 1; 0: there is none
	values  map[string][]float32
	leftOut int // names of the last point that found no room
}

// NewFlows makes one that keeps the given time, at least a minute.
func NewFlows(keep time.Duration) *Flows {
	points := int(max(keep, time.Minute) / coarseStep)
	return &Flows{step: int64(coarseStep / time.Second), numbers: make([]int64, points), values: map[string][]float32{}}
}

// Add puts the numbers of a moment. What is more than MaxFlows is left out, unless another name has no number
// any more.
func (f *Flows) Add(at time.Time, values map[string]float64) {
	number := at.Unix() / f.step
	if number < 0 {
		return
	}
	place := int(number % int64(len(f.numbers)))
	f.numbers[place] = number + 1
	for name, column := range f.values {
		column[place] = float32(math.NaN())
		if _, goes := values[name]; !goes && !f.any(column, number) {
			delete(f.values, name)
		}
	}
	f.leftOut = 0
	for _, name := range greatest(values) {
		column := f.values[name]
		if column == nil {
			if len(f.values) >= MaxFlows {
				f.leftOut++
				continue
			}
			column = make([]float32, len(f.numbers))
			for i := range column {
				column[i] = float32(math.NaN())
			}
			f.values[strings.Clone(name)] = column
		}
		column[place] = float32(values[name])
	}
}

// any reports whether a column has a number that is still kept.
func (f *Flows) any(column []float32, newest int64) bool {
	for i, v := range column {
		if v == v && f.numbers[i] > newest+1-int64(len(f.numbers)) {
			return true
		}
	}
	return false
}

// greatest sorts names by their numbers, so that those that matter find room.
func greatest(values map[string]float64) []string {
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if values[a] != values[b] {
			if values[a] > values[b] {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	return names
}

// FlowColumns are the numbers of each name, a step apart; NaN where nothing is known.
type FlowColumns struct {
	From    time.Time
	Step    time.Duration
	Names   []string // sorted
	Values  [][]float32
	LeftOut int // names without numbers, as there were too many
}

// Read gives the numbers up to a time, as far as they are kept.
func (f *Flows) Read(to time.Time) FlowColumns {
	last := to.Unix() / f.step
	first := last - int64(len(f.numbers)) + 1
	for first < last && f.numbers[int(max(0, first)%int64(len(f.numbers)))] != first+1 {
		first++ // nothing was known yet
	}
	c := FlowColumns{From: time.Unix(first*f.step, 0), Step: time.Duration(f.step) * time.Second, LeftOut: f.leftOut}
	for name := range f.values {
		c.Names = append(c.Names, name)
	}
	slices.Sort(c.Names)
	for _, name := range c.Names {
		column := make([]float32, 0, last-first+1)
		for number := first; number <= last; number++ {
			v := float32(math.NaN())
			if place := int(max(0, number) % int64(len(f.numbers))); f.numbers[place] == number+1 {
				v = f.values[name][place]
			}
			column = append(column, v)
		}
		c.Values = append(c.Values, column)
	}
	return c
}
