package router

import (
	"encoding/json"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// ForMessages completes the mapping of logical messages, whose only column is
// their body: a JSON object whose members have the roles. What m sets stays.
func ForMessages(m Mapping) Mapping {
	m.Preset = "outbox"
	for _, c := range []struct {
		column  *string
		pointer string
	}{
		{&m.Columns.ID, "/id"},
		{&m.Columns.Key, "/aggregateId"},
		{&m.Columns.Route, "/aggregateType"},
		{&m.Columns.Type, "/type"},
		{&m.Columns.Payload, "/payload"},
		{&m.Columns.Headers, "/headers"},
		{&m.Columns.Trace, "/traceparent"},
	} {
		if *c.column == "" {
			*c.column = MessageBody + "#" + c.pointer
		}
	}
	return m
}

// memberOf is where ForMessages looks for a role.
func memberOf(r role) string {
	m := ForMessages(Mapping{})
	return m.Columns.column(r)
}

// checkBody looks at a message's body once, so that whatever points into it finds
// a JSON object.
func checkBody(row *wal.Row) error {
	for _, v := range row.Values {
		text := trimBlank(v.Data)
		what := errNotJSON
		if len(text) > 0 && text[0] != '{' {
			what = errNotObject
		}
		if len(text) == 0 || text[0] != '{' || !json.Valid(text) {
			return reject(ReasonMapping, MessageBody, "the message body %v; send a JSON object with the members id, aggregateType, aggregateId, type and payload, or say in columns where they are", what)
		}
	}
	return nil
}
