//go:build !race

package kafkainbox

const allocations = 6
