// Package broker connects to Kafka and knows what brokers' answers mean.
//
// Connection makes clients, Reach reports whether any broker answers, Classify names an error
// with what has to happen next, and BatchSize counts as brokers do. It sends no records.
// Everything below sink that talks to Kafka is built on it.
package broker
