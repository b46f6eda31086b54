// Package transform holds the single message transforms of Kafka Connect and Debezium, and their
// predicates: a Chain changes or drops one Record after the other.
//
// A record begins as a Change of a table's row. Its value, Debezium's envelope, is made when the
// first transform looks into it; the EventRouter never does.
//
// It is pure. A chain remembers what it made of earlier records (topics, schemas of envelopes),
// as Debezium does, and belongs to one goroutine.
package transform
