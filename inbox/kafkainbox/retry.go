package kafkainbox

import "time"

// delay is how long to wait after so many failures: a share of a time that doubles, so that
// many that failed at once do not come again at once.
func (r Retry) delay(failures int, share float64) time.Duration {
	limit := r.First
	for i := 1; i < failures && limit < r.Max; i++ {
		limit *= 2
	}
	return time.Duration(share * float64(min(limit, r.Max)))
}
