package parity

// Exceptions are cases that the relay refuses where Debezium goes on, and why:
// nothing that anybody should want. docs/debezium.md repeats them.
var Exceptions = map[string]string{
	"arrays-dimensions":             "of an array with two dimensions Debezium keeps nothing: every element becomes null, or an address in memory",
	"timestamp-future-topic-allows": "an event timestamp of infinity is the year 292278994 to Debezium; the relay refuses record timestamps after the year 2262",
}
