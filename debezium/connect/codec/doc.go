// Package codec makes Connect values of a column's text, as Debezium's PostgreSQL connector makes
// them. One file for each family of types; modes.go has the connector's options for them,
// defaults.go the default of a column as its schema has it.
package codec
