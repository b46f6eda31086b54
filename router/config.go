package router

import (
	"github.com/cdc-relay/cdc-relay/router/preset"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/schemas"
	"github.com/cdc-relay/cdc-relay/tracing"
)

// Config holds one Mapping per configured table, in the order of
// postgres.Config.Tables.
type Config struct {
	Mappings []Mapping

	// RunID names this run in the records of connectors; empty: it has no name there.
	RunID string

	// PositionHeaders has each record say where its row comes from. Route leaves room for it:
	// record.FillPosition fills it in once the commit was read, because its end is not known before.
	// The relay holds the rows of a transaction until then.
	PositionHeaders bool

	// Tracer starts spans for rows; nil: a trace context that a row brings is only passed on.
	Tracer *tracing.Tracer

	// Registry has the schemas. The router hands it on (Router.Registry) and never asks it. nil: no
	// mapping needs a schema.
	Registry schemas.Registry

	Reserved record.Reserved // topics that no row may have: Route refuses it
}

// Columns names the columns that have the roles of a mapping. Each is the name of a
// column, optionally followed by `#` and a JSON pointer into it; empty takes what the
// preset says, and a role that the preset leaves open stays unmapped.
type Columns struct {
	ID        string
	Key       string
	Route     string
	Type      string
	Payload   string
	Headers   string
	Trace     string
	Timestamp string
}

// Field names a column that an envelope or merged value takes up under a name.
type Field struct {
	Name   string
	Column string
}

// HeaderMapping adds one record header: the value of a column, or a template
// when Source contains `${`.
type HeaderMapping struct {
	Name   string
	Source string
}

// Mapping says how the rows of one table become records.
type Mapping struct {
	Table            string // as written in the configuration, for messages
	Path             string // of the configuration's entry, for errors; empty: outbox[index]
	Preset           string // name of a preset; "auto" or empty looks at the columns
	Columns          Columns
	Topic            string // template; empty takes the preset's
	TopicRegex       string // the whole route value must match, else the value itself is the topic (Debezium's rule)
	Headers          []HeaderMapping
	Key              string // format.Raw or format.JSONString; empty is raw
	Value            string // any format; empty takes the preset's
	ValueFields      []Field
	Partition        string // integer column; empty: murmur2 of the key
	TombstoneOnEmpty bool
	Schema           schemas.Config // of the formats that have one, and of the check of format.Raw

	// Connector makes the records instead of the fields above; it may allow some of them. nil:
	// there is none.
	Connector ConnectorConfig

	// CloudEventsSource is the attribute source of the cloudevents formats, a URI
	// reference; empty is /cdc-relay/schema.table. With the event id it has to be
	// unique among all events that a consumer sees.
	CloudEventsSource string
}

// column gives the setting for a role.
func (c *Columns) column(r preset.Role) string {
	switch r {
	case preset.RoleID:
		return c.ID
	case preset.RoleKey:
		return c.Key
	case preset.RoleRoute:
		return c.Route
	case preset.RoleType:
		return c.Type
	case preset.RolePayload:
		return c.Payload
	case preset.RoleHeaders:
		return c.Headers
	case preset.RoleTrace:
		return c.Trace
	case preset.RoleTimestamp:
		return c.Timestamp
	default: // preset.RoleTopic is for the template to set
		return ""
	}
}
