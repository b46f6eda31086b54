// Package sandbox runs throw-away servers for the demo and the tests: a real
// PostgreSQL with logical WAL, in-process Kafka brokers whose faults have names,
// and a TCP proxy that can stall and cut.
//
// It promises that nothing is left behind: a server dies with the process that
// started it, also after kill -9, and its directory goes with it. It refuses to
// be a dependency of anything that ships: only demo/ and test/ import it.
//
// A PostgreSQL server refuses to run as root. Started as root, the sandbox drops
// to the account postgres, or nobody where there is none, and keeps binaries and
// data where that account can read them.
package sandbox
