// Package protobuf makes JSON a message of Protobuf by a descriptor: schema.go reads descriptors,
// walk.go writes, well_known.go has the types with a JSON form of their own, decode.go reads back.
//
// JSON is that of proto3's mapping, for all editions.
package protobuf
