// Package debezium makes the records that Debezium's PostgreSQL connector, its transforms and
// Connect's converters make of a row, by their own options. Config is what the router is
// given in Mapping.Connector.
//
// Like the router it is pure: no clock, no socket, no goroutine. The router does not import
// it; the configuration fills it in where a table has the block debezium. With the folder
// go that key and the commands import and takeover.
package debezium
