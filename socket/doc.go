// Package socket is how the relay reads and writes its two busy connections: PostgreSQL's
// stream and the brokers'.
//
// Go tells its scheduler of each system call before and after, because a call may block.
// Of a process that was asleep, that also wakes the scheduler's watchman (sysmon), which
// then looks around every 20 µs until all is asleep again. At the tip, where a row comes
// at a time, a relay is awake for some hundred microseconds for each, and a quarter of its
// CPU time went to the watchman and to what it made the scheduler do. But a socket of
// Go's never blocks: there is nothing that the scheduler would have to know.
package socket
