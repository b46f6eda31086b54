// Package watch looks at slot and publication from beside a running stream, reads where slots
// stand, and keeps the lock of whoever works on a slot's dead letters.
//
// It imports postgres and catalog. relay and commands use it.
package watch
