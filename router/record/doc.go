// Package record holds what a row is made into: a Record with its headers, the Buffer
// that records are made in, and the RowError of a row that gives none. It knows Kafka's
// rule for the name of a topic, and the position headers.
//
// Whoever makes, carries or sends records uses it. Of the module it imports replication/wal, tracing
// and fault.
package record
