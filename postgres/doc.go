// Package postgres is the way to a server: what is configured about it, the connection with
// the settings that decide how a value is written, statements over it, the names of shards,
// and what an error of the driver or the server means.
//
// It imports fault, peer, replication/wal and wording. Its sub-packages ask and change what is
// beside the stream: catalog reads what is there, provision makes it, preflight checks it
// before a start, watch looks at it beside a running stream, sample and snapshot read rows with
// SQL, maintenance acts on delivered ones.
package postgres
