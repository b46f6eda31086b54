package router

import (
	"encoding/json"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/jsontext"
	"github.com/cdc-relay/cdc-relay/router/preset"
	"github.com/cdc-relay/cdc-relay/router/record"
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
			*c.column = column.MessageBody + "#" + c.pointer
		}
	}
	return m
}

// memberOf is where ForMessages looks for a role.
func memberOf(r preset.Role) string {
	m := ForMessages(Mapping{})
	return m.Columns.column(r)
}

// checkBody looks at a message's body once, so that whatever points into it finds
// a JSON object.
func checkBody(row *wal.Row) error {
	for _, v := range row.Values {
		text := column.TrimBlank(v.Data)
		what := jsontext.ErrNotJSON
		if len(text) > 0 && text[0] != '{' {
			what = jsontext.ErrNotObject
		}
		if len(text) == 0 || text[0] != '{' || !json.Valid(text) {
			return record.Reject(fault.ReasonMapping, column.MessageBody, "the message body %v; send a JSON object with the members id, aggregateType, aggregateId, type and payload, or say in columns where they are", what)
		}
	}
	return nil
}
