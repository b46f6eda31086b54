// Package converter has the converters of Kafka Connect and Debezium, which write keys, values and
// headers.
package converter
