//go:build !race

package relay

// What a row of a drain may allocate, averaged over so many.
const (
	drainAllocs = 0.1
	drainRows   = 200_000
)
