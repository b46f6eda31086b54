//go:build !race

package router

// allocations is what a hundred rows may cost.
const allocations = 0
