//go:build !race

package outbox

// allocations is what an event may cost.
const allocations = 6
