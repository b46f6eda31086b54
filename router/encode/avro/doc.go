// Package avro makes JSON Avro by a schema: schema.go makes a schema ready, walk.go writes, decode.go
// reads back.
package avro
