// Package takeover changes over from a Debezium connector to the relay, on the connector's own
// slot: what Debezium's stored position proves about rows in the log, what would happen, and
// what forbids it.
//
// java.go, position.go and proof.go are pure: bytes in, decisions out.
package takeover
