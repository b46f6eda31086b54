// Package options lists every option of Debezium's PostgreSQL connector and of Kafka Connect
// around it, and what the relay does with each: apply, imply or refuse. Loading, import and the documentation read this
// one table. It imports nothing of the module.
package options
