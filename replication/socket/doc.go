// Package socket tunes the TCP or Unix socket below the replication connection: how much a read
// takes, how long reads pause in a backlog, and what the kernel knows of the peer.
//
// The stream is right without it: Conn changes when bytes are read, never which. pace.go decides
// when to pause, from the times that the stream notes; conn.go reads and pauses;
// rcvlowat_linux.go keeps the kernel quiet during a pause. tls_records.go finds the TLS records
// that were read already. Unacknowledged counts what the peer has not acknowledged. The
// measurements are in docs/performance-notes.md.
//
// Elsewhere: TCP_USER_TIMEOUT of the connection is set in package postgres (patience_linux.go), and
// SO_LINGER of connections to brokers in package sink/broker (connection.go).
package socket
