// Package progress is what a backfill knows without a server: how far it came and how that is
// written down, which place in an order a relay's position stands for, what follows from the slots
// and the progress that a call finds, and whether a slot lasts. Pure: values in, values out.
package progress
