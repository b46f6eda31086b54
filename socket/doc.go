// Package socket is how the relay reads and writes its two busy connections: PostgreSQL's
// stream and the brokers'.
//
// Go tells its scheduler of each system call before and after, because a call may block.
// Of a process that was asleep, that also wakes the scheduler's watchman (sysmon), which
// then looks around every 20 µs until all is asleep again, more rarely after the first
// millisecond. At the tip, where a row comes at a time, a relay is awake for some hundred
// microseconds for each, and a quarter of its CPU time went to the watchman and to what it
// made the scheduler do. A socket of Go's never blocks, so that it is not told costs little:
// sysmon sleeps until the next timer, and what computes for long is not interrupted
// before. The relay has timers of half a second and less.
package socket
