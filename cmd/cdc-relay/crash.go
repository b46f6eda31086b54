package main

import "runtime/debug"

// A crash is a panic, an error of Go's runtime, or SIGQUIT or SIGABRT from outside, such
// as systemd's watchdog sends. By itself Go would end it with status 2, which is ours for a
// configuration that is wrong, and which supervisors do not restart.

// prepareForCrashes has a crash print every goroutine and end the process by SIGABRT, and
// has nothing of its memory written: rows and secrets are in there.
//
// The first process of a container cannot be ended by a signal of its own; there Go's 2 stays.
func prepareForCrashes() {
	forbidCores()
	debug.SetTraceback("crash")
}
