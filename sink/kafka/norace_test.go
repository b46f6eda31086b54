//go:build !race

package kafka

// UnderRace is for tests that only make many random trials.
const UnderRace = false
