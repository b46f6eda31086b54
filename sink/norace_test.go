//go:build !race

package sink

// UnderRace is for tests that only make many random trials.
const UnderRace = false
