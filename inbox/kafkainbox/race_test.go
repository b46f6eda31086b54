//go:build race

package kafkainbox

// The race detector allocates too.
const allocations = 12
