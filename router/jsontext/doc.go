// Package jsontext reads JSON without decoding it, so that members keep their bytes, and
// writes strings byte for byte as Kafka Connect does. It imports nothing of the module.
package jsontext
