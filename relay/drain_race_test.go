//go:build race

package relay

// The race detector makes pools forget and everything slow. What is left to see is an
// allocation for each row.
const (
	drainAllocs = 0.9
	drainRows   = 50_000
)
