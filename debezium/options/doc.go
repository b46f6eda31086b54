// Package options lists every option of Debezium's PostgreSQL connector and of Kafka Connect
// around it, with what becomes of it here. Loading, import and the documentation read this
// one table. It imports nothing of the module.
package options
