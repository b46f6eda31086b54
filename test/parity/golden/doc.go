// Package golden reads and writes golden cases: a connector's configuration, a
// schema and a script of SQL, together with the Kafka records that a real
// Debezium wrote for them. It compares records and says where they differ first.
//
// A case is one txtar archive, named after the case:
//
//	case.json             what it pins, topics to make before the start, how to capture it
//	connector.json        as it is posted to Kafka Connect; addresses and user are replaced
//	worker.properties     settings of the worker, where they are not the usual ones
//	schema.sql            run before the connector starts
//	dml.sql               run while it streams; lines that begin with --@ are directives
//	expected.jsonl        records by topic, partition and offset
//	expected-schemas.jsonl  what the schema registry had in the end
//	expected-error.txt    why the connector failed: exception and causes
//	expected-digest.json  instead of the middle of a long expected.jsonl
//	expected-notes.json, expected-log.txt   for the reader, never compared
//	relay.yaml            the relay's configuration, where the random comparison kept a case
//
// A part that is no plain text is NAME.base64: bytes that are not UTF-8, control
// characters, a last line without its end, or a line that would begin a part.
//
// Nothing here touches a server.
package golden
