// Package check looks for whatever stands in the way of streaming: in the configuration, in
// PostgreSQL, in Kafka, and in the newest rows of the tables. It changes nothing.
package check
