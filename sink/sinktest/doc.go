// Package sinktest holds the sinks that tests use and the suite that every sink
// passes.
//
// Recorder keeps what it is given and does what a script says: hold
// acknowledgements, fail a record, lose an acknowledgement. Faulty does such
// things at random from a seed. Discard forgets everything, for benchmarks.
// None of them uses a network, and time only where a delay is asked for, so
// they run in a testing/synctest bubble. Exercise is the conformance suite.
package sinktest
