//go:build race

package router

// The race detector makes pools forget.
const allocations = 10
