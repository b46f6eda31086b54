package router

import (
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/preset"
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
