//go:build race

package kafka

// UnderRace is for tests that only make many random trials: each costs the race detector
// ten times as much, and has no second goroutine, or the same two, in the hundredth.
const UnderRace = true
