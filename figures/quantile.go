package figures

import "math"

// Buckets are a cumulative histogram: Counts[i] observations are at most Upper[i], and Total
// there are in all.
type Buckets struct {
	Upper  []float64
	Counts []uint64
	Total  uint64
}

// Add adds a histogram with the same bounds.
func (b *Buckets) Add(other Buckets) {
	if b.Upper == nil {
		b.Upper, b.Counts = other.Upper, make([]uint64, len(other.Upper))
	}
	for i := range min(len(b.Counts), len(other.Counts)) {
		b.Counts[i] += other.Counts[i]
	}
	b.Total += other.Total
}

// Quantile is that of what was observed between two looks, interpolated within its bucket as
// Prometheus does it. What is over the last bound counts as that. NaN: nothing was observed.
func Quantile(q float64, before, after Buckets) float64 {
	total := float64(after.Total - before.Total)
	if after.Total <= before.Total || len(after.Upper) == 0 {
		return math.NaN()
	}
	rank := q * total
	lower, below := 0.0, 0.0
	for i, upper := range after.Upper {
		n := float64(after.Counts[i])
		if i < len(before.Counts) {
			n -= float64(before.Counts[i])
		}
		if n >= rank && n > below {
			return lower + (upper-lower)*max(0, rank-below)/(n-below)
		}
		lower, below = upper, n
	}
	return lower
}
