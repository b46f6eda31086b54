package preset

import (
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/format"
)

// The tables of frameworks, as they document them. What auto needs to see is in
// signature; optional columns are only in columns.

var eventTypeOfRole = Header{Name: eventTypeHeader, Role: RoleType}

var javaPresets = []Preset{
	{
		Name: "debezium-quarkus",
		columns: [RoleCount][]string{
			RoleID: {"id"}, RoleKey: {"aggregateid"}, RoleRoute: {"aggregatetype"}, RoleType: {"type"},
			RolePayload: {"payload"}, RoleTrace: {"tracingspancontext"},
		},
		exact:    true,
		strict:   true,
		required: []Role{RoleID, RoleKey, RoleRoute, RolePayload},
		Topic:    "outbox.event.${routedByValue}",
		framework: framework{
			signature: []string{"id", "aggregatetype", "aggregateid", "type", "timestamp", "payload", "tracingspancontext"},
		},
	},
	{
		Name: "eventuate-tram",
		columns: [RoleCount][]string{
			RoleID: {"id"}, RoleKey: {"headers#/PARTITION_ID"}, RoleTopic: {"destination"}, RoleType: {"headers#/event-type"},
			RolePayload: {"payload"}, RoleHeaders: {"headers"},
		},
		exact:    true,
		required: []Role{RoleID, RoleTopic, RolePayload, RoleHeaders},
		Topic:    "${topic}",
		Headers:  []Header{eventTypeOfRole},
		framework: framework{
			signature:   []string{"id", "destination", "headers", "payload", "published", "creation_time"},
			Fallback:    [RoleCount]string{RoleKey: "id"},
			textHeaders: true,
			Value:       format.Eventuate,
			noteIf: map[string]string{
				"dbid": "column dbid: if the database generates the ids, a row has neither an id nor the header ID that consumers of Tram need; have the application generate them",
			},
		},
	},
	{
		Name: "axon",
		columns: [RoleCount][]string{
			RoleID: {"event_identifier"}, RoleKey: {"aggregate_identifier"}, RoleRoute: {"type"}, RoleType: {"payload_type"},
			RolePayload: {"payload"}, RoleHeaders: {"meta_data"},
		},
		exact:    true,
		required: []Role{RoleID, RoleKey, RoleRoute, RoleType, RolePayload},
		Topic:    "${routedByValue}-events",
		Headers:  []Header{eventTypeOfRole, {Name: "sequence_number", Column: "sequencenumber"}, {Name: "payload_revision", Column: "payloadrevision"}},
		framework: framework{
			signature: []string{"global_index", "event_identifier", "aggregate_identifier", "sequence_number", "type", "payload", "payload_type", "payload_revision", "meta_data", "time_stamp"},
			notes:     []string{"preset axon sends the event store itself: payloads are in the format of Axon's serializer, and events that are internal to the service go out too"},
		},
	},
	{
		Name: "outbox-kafka",
		columns: [RoleCount][]string{
			RoleID: {"id"}, RoleKey: {"key"}, RoleTopic: {"topic"}, RolePayload: {"value"}, RoleHeaders: {"headers"},
		},
		exact:    true,
		required: []Role{RoleID, RoleKey, RoleTopic, RolePayload},
		Topic:    "${topic}",
		framework: framework{
			signature: []string{"id", "created", "processed", "topic", "key", "value", "headers"},
		},
	},
	{
		Name: "namastack",
		columns: [RoleCount][]string{
			RoleID: {"id"}, RoleKey: {"aggregate_id"}, RoleType: {"event_type"}, RolePayload: {"payload"},
		},
		exact:    true,
		required: []Role{RoleID, RoleKey, RoleType, RolePayload},
		Topic:    "${type}",
		Headers:  []Header{eventTypeOfRole},
		framework: framework{
			signature: []string{"id", "status", "aggregate_id", "event_type", "payload", "created_at", "completed_at", "retry_count", "next_retry_at"},
			tables:    "outbox_record",
			notes:     []string{"preset namastack: stop the application's own outbox scheduler, or each event is handled twice"},
		},
	},
}

var dotnetPresets = []Preset{
	{
		Name: "brighter",
		columns: [RoleCount][]string{
			RoleID: {"messageid"}, RoleKey: {"partitionkey"}, RoleTopic: {"topic"}, RoleType: {"type", "messagetype"},
			RolePayload: {"body"}, RoleHeaders: {"headerbag"}, RoleTrace: {"traceparent"},
		},
		exact:    true,
		required: []Role{RoleID, RoleTopic, RolePayload},
		Topic:    "${topic}",
		Headers: []Header{
			eventTypeOfRole, {Name: format.ContentTypeHeader, Column: "contenttype"}, {Name: "correlationId", Column: "correlationid"}, {Name: "replyTo", Column: "replyto"},
			{Name: "source", Column: "source"}, {Name: "subject", Column: "subject"}, {Name: "dataschema", Column: "dataschema"},
			{Name: format.TraceState, Column: "tracestate"}, {Name: "baggage", Column: "baggage"},
		},
		framework: framework{
			signature:   []string{"messageid", "messagetype", "topic", "timestamp", "headerbag", "body", "dispatched"},
			Fallback:    [RoleCount]string{RoleType: "messagetype"},
			textHeaders: true,
			notes:       []string{"preset brighter: the application may only deposit; with a sweeper or a call of ClearOutbox each message is sent twice"},
		},
	},
	{
		Name: "eshop",
		columns: [RoleCount][]string{
			RoleID: {"EventId"}, RoleType: {"EventTypeName"}, RolePayload: {"Content"},
		},
		exact:    true,
		required: []Role{RoleID, RoleType, RolePayload},
		Topic:    "${type}",
		Headers:  []Header{eventTypeOfRole, {Name: "transactionId", Column: "transactionid"}},
		framework: framework{
			signature: []string{"EventId", "EventTypeName", "State", "TimesSent", "CreationTime", "Content"},
			notes:     []string{"preset eshop: stop the application's own publisher, or each event is sent twice; for events of one thing to keep their order set columns.key, such as Content#/OrderId"},
		},
	},
	{
		Name: "marten",
		columns: [RoleCount][]string{
			RoleID: {"id"}, RoleKey: {"stream_id"}, RoleType: {"type"}, RolePayload: {"data"}, RoleHeaders: {"headers"},
		},
		exact:    true,
		required: []Role{RoleID, RoleKey, RoleType, RolePayload},
		Topic:    "${type}",
		Headers: []Header{
			eventTypeOfRole, {Name: "version", Column: "version"}, {Name: "tenant_id", Column: "tenantid"},
			{Name: "correlation_id", Column: "correlationid"}, {Name: "causation_id", Column: "causationid"},
		},
		framework: framework{
			signature: []string{"seq_id", "id", "stream_id", "version", "data", "type", "timestamp", "tenant_id", "mt_dotnet_type", "is_archived"},
			notes:     []string{"preset marten sends the event store itself: events that are internal to the service go out too, and where the table is partitioned by is_archived, archiving sends an event again"},
		},
	},
}

var goPresets = []Preset{
	{
		Name: "watermill",
		columns: [RoleCount][]string{
			RoleID: {"uuid"}, RolePayload: {"payload"}, RoleHeaders: {"metadata"},
		},
		exact:    true,
		required: []Role{RoleID, RolePayload},
		framework: framework{
			signature:   []string{"offset", "uuid", "created_at", "payload", "metadata"},
			tables:      "watermill_*",
			TablePrefix: "watermill_",
			notes:       []string{"preset watermill sends payloads as they are; if these rows are the envelopes of Watermill's forwarder, set preset: watermill-forwarder"},
		},
	},
	{
		Name: "watermill-forwarder",
		columns: [RoleCount][]string{
			RoleID: {"payload#/uuid"}, RoleTopic: {"payload#/destination_topic"}, RolePayload: {"payload#/payload"}, RoleHeaders: {"payload#/metadata"},
		},
		exact:    true,
		required: []Role{RoleID, RoleTopic, RolePayload},
		Topic:    "${topic}",
		framework: framework{
			signature: []string{"offset", "uuid", "created_at", "payload", "metadata"},
			tables:    "watermill_forwarder_topic",
			Base64:    true,
		},
	},
	{
		Name: "goharvest",
		columns: [RoleCount][]string{
			RoleID: {"id"}, RoleKey: {"kafka_key"}, RoleTopic: {"kafka_topic"}, RolePayload: {"kafka_value"}, RoleHeaders: {"kafka_header_keys"},
		},
		exact:    true,
		required: []Role{RoleID, RoleKey, RoleTopic, RolePayload, RoleHeaders},
		Topic:    "${topic}",
		framework: framework{
			signature:    []string{"id", "create_time", "kafka_topic", "kafka_key", "kafka_value", "kafka_header_keys", "kafka_header_values"},
			HeaderValues: "kafka_header_values",
		},
	},
	{
		Name: "pgx-outbox",
		columns: [RoleCount][]string{
			RoleID: {"id"}, RoleTopic: {"topic"}, RolePayload: {"payload"}, RoleHeaders: {"metadata"},
		},
		exact:    true,
		required: []Role{RoleID, RoleTopic, RolePayload},
		Topic:    "${topic}",
		framework: framework{
			signature: []string{"id", "broker", "topic", "metadata", "payload", "created_at", "published_at"},
		},
	},
	{
		Name: "outboxd",
		columns: [RoleCount][]string{
			RoleID: {"id"}, RoleKey: {"partition_key", "aggregate_id"}, RoleTopic: {"topic"}, RolePayload: {"payload"},
		},
		exact:     true,
		required:  []Role{RoleID, RoleTopic, RolePayload},
		Topic:     "${topic}",
		framework: framework{explicit: true, Fallback: [RoleCount]string{RoleKey: "aggregate_id"}},
	},
	{
		Name: "open-outbox",
		columns: [RoleCount][]string{
			RoleID: {"event_id"}, RoleKey: {"partition_key"}, RoleType: {"event_type"}, RolePayload: {"payload"}, RoleHeaders: {"headers"},
		},
		exact:    true,
		required: []Role{RoleID, RoleKey, RoleType, RolePayload},
		Topic:    "${type}",
		Headers:  []Header{eventTypeOfRole},
		framework: framework{
			signature: []string{"event_id", "event_type", "partition_key", "payload", "headers", "status", "attempts", "available_at", "locked_by", "locked_at", "created_at"},
		},
	},
}

var scriptPresets = []Preset{
	{
		Name: "pg-transactional-outbox",
		columns: [RoleCount][]string{
			RoleID: {"id"}, RoleKey: {"segment"}, RoleRoute: {"aggregate_type"}, RoleType: {"message_type"}, RolePayload: {"payload"}, RoleHeaders: {"metadata"},
		},
		exact:    true,
		required: []Role{RoleID, RoleKey, RoleRoute, RolePayload},
		Topic:    "${routedByValue}-events",
		Headers:  []Header{eventTypeOfRole},
		framework: framework{
			signature: []string{"id", "aggregate_type", "aggregate_id", "message_type", "segment", "concurrency", "payload", "metadata", "locked_until", "created_at", "processed_at"},
			Fallback:  [RoleCount]string{RoleKey: "aggregate_id"},
		},
	},
	{
		Name: "sbmt",
		columns: [RoleCount][]string{
			RoleID: {"uuid"}, RoleKey: {"event_key"}, RoleType: {"event_name"}, RolePayload: {"payload", "proto_payload"}, RoleHeaders: {"options#/headers"},
		},
		exact:    true,
		required: []Role{RoleID, RoleKey, RoleType, RolePayload},
		Topic:    "${type}",
		Headers:  []Header{eventTypeOfRole},
		framework: framework{
			signature: []string{"uuid", "event_name", "event_key", "bucket", "status", "options", "errors_count"},
		},
	},
	{
		Name: "rails-event-store",
		columns: [RoleCount][]string{
			RoleID: {"event_id"}, RoleType: {"event_type"}, RolePayload: {"data"}, RoleHeaders: {"metadata"},
		},
		exact:    true,
		required: []Role{RoleID, RoleType, RolePayload},
		Headers:  []Header{eventTypeOfRole},
		framework: framework{
			signature:    []string{"event_id", "event_type", "metadata", "data", "created_at", "valid_at"},
			PayloadForms: []column.Form{column.FormJSON},
			PayloadWhy:   "it holds what Ruby's serialiser wrote; make the event store's tables with --data-type=json or jsonb",
			notes:        []string{"preset rails-event-store sends the event store itself: events that are internal to the service go out too"},
		},
	},
	{
		Name: "django-outbox-pattern",
		columns: [RoleCount][]string{
			RoleID: {"id"}, RoleRoute: {"destination"}, RolePayload: {"body"}, RoleHeaders: {"headers"},
		},
		exact:    true,
		required: []Role{RoleID, RoleRoute, RolePayload},
		Topic:    "${routedByValue}",
		framework: framework{
			signature: []string{"id", "version", "destination", "body", "added", "expires_at", "retry", "status", "headers"},
			Regex:     `/(?:topic|queue)/(?<routedByValue>.+)`,
			notes:     []string{"preset django-outbox-pattern: stop the publish command, or each event is sent twice; destinations such as /topic/x.v1 go to topic x.v1"},
		},
	},
}

// The recipes of libraries that have no outbox of their own. Their columns are
// what everybody's are, so auto takes a generic preset for them.
var recipePresets = []Preset{
	{
		Name: "laravel",
		columns: [RoleCount][]string{
			RoleID: {"id"}, RoleKey: {"key", "routing_key"}, RoleTopic: {"topic"}, RoleType: {"event_type"}, RolePayload: {"payload"}, RoleHeaders: {"headers"},
		},
		exact:     true,
		required:  []Role{RoleID, RoleTopic, RolePayload},
		Topic:     "${topic}",
		Headers:   []Header{eventTypeOfRole},
		framework: framework{explicit: true, Fallback: [RoleCount]string{RoleKey: "routing_key"}},
	},
	{
		Name: "prisma",
		columns: [RoleCount][]string{
			RoleID: {"id"}, RoleKey: {"aggregateid"}, RoleRoute: {"aggregatetype"}, RoleType: {"eventtype", "eventname"}, RolePayload: {"payload"}, RoleHeaders: {"metadata"},
		},
		strict:   true,
		required: []Role{RoleID, RoleKey, RoleRoute, RolePayload},
		Topic:    "${routedByValue}-events",
		Headers:  []Header{eventTypeOfRole},
		framework: framework{
			signature: []string{"id", "aggregateType", "aggregateId", "eventName", "payload"},
		},
	},
	{
		Name: "typeorm",
		columns: [RoleCount][]string{
			RoleID: {"id"}, RoleKey: {"aggregateid"}, RoleTopic: {"topic"}, RoleType: {"eventtype", "type"}, RolePayload: {"payload"},
		},
		required:  []Role{RoleID, RoleType, RolePayload},
		Topic:     "${topic}",
		Headers:   []Header{eventTypeOfRole},
		framework: framework{explicit: true, TopicElse: "${type}"},
	},
	{
		Name: "mikroorm",
		columns: [RoleCount][]string{
			RoleID: {"id"}, RoleTopic: {"topic"}, RolePayload: {"payload"},
		},
		required:  []Role{RoleID, RoleTopic, RolePayload},
		Topic:     "${topic}",
		framework: framework{explicit: true},
	},
	{
		Name: "drizzle",
		columns: [RoleCount][]string{
			RoleID: {"id"}, RoleKey: {"aggregateid"}, RoleRoute: {"aggregatetype"}, RoleType: {"eventtype"}, RolePayload: {"payload"},
		},
		required:  []Role{RoleID, RoleKey, RoleRoute, RolePayload},
		Topic:     "${routedByValue}-events",
		Headers:   []Header{eventTypeOfRole},
		framework: framework{explicit: true},
	},
	{
		Name: "generic-simple",
		columns: [RoleCount][]string{
			RoleID: {"id"}, RoleType: {"eventtype"}, RolePayload: {"payload"},
		},
		required:  []Role{RoleID, RoleType, RolePayload},
		Topic:     "${type}",
		Headers:   []Header{eventTypeOfRole},
		framework: framework{explicit: true},
	},
	{
		Name: "generic-aggregate-type",
		columns: [RoleCount][]string{
			RoleID: {"id"}, RoleRoute: {"aggregate"}, RoleType: {"eventtype"}, RolePayload: {"payload"},
		},
		required:  []Role{RoleID, RoleRoute, RolePayload},
		Topic:     "${routedByValue}-events",
		Headers:   []Header{eventTypeOfRole},
		framework: framework{explicit: true},
	},
}
