//go:build race

package outbox

// The race detector allocates too.
const allocations = 9
