package router

// The tables of frameworks, as they document them. What auto needs to see is in
// signature; optional columns are only in columns.

var eventTypeOfRole = presetHeader{name: eventTypeHeader, role: roleType}

var javaPresets = []preset{
	{
		name: "debezium-quarkus",
		columns: [roleCount][]string{
			roleID: {"id"}, roleKey: {"aggregateid"}, roleRoute: {"aggregatetype"}, roleType: {"type"},
			rolePayload: {"payload"}, roleTrace: {"tracingspancontext"},
		},
		exact:    true,
		strict:   true,
		required: []role{roleID, roleKey, roleRoute, rolePayload},
		topic:    "outbox.event.${routedByValue}",
		framework: framework{
			signature: []string{"id", "aggregatetype", "aggregateid", "type", "timestamp", "payload", "tracingspancontext"},
		},
	},
	{
		name: "eventuate-tram",
		columns: [roleCount][]string{
			roleID: {"id"}, roleKey: {"headers#/PARTITION_ID"}, roleTopic: {"destination"}, roleType: {"headers#/event-type"},
			rolePayload: {"payload"}, roleHeaders: {"headers"},
		},
		exact:    true,
		required: []role{roleID, roleTopic, rolePayload, roleHeaders},
		topic:    "${topic}",
		headers:  []presetHeader{eventTypeOfRole},
		framework: framework{
			signature:   []string{"id", "destination", "headers", "payload", "published", "creation_time"},
			otherwise:   [roleCount]string{roleKey: "id"},
			textHeaders: true,
			value:       FormatEventuate,
			noteIf: map[string]string{
				"dbid": "column dbid: where the database makes the ids, a row has neither id nor the header ID that consumers of Tram ask for; have the application make them",
			},
		},
	},
	{
		name: "axon",
		columns: [roleCount][]string{
			roleID: {"event_identifier"}, roleKey: {"aggregate_identifier"}, roleRoute: {"type"}, roleType: {"payload_type"},
			rolePayload: {"payload"}, roleHeaders: {"meta_data"},
		},
		exact:    true,
		required: []role{roleID, roleKey, roleRoute, roleType, rolePayload},
		topic:    "${routedByValue}-events",
		headers:  []presetHeader{eventTypeOfRole, {name: "sequence_number", column: "sequencenumber"}, {name: "payload_revision", column: "payloadrevision"}},
		framework: framework{
			signature: []string{"global_index", "event_identifier", "aggregate_identifier", "sequence_number", "type", "payload", "payload_type", "payload_revision", "meta_data", "time_stamp"},
			notes:     []string{"preset axon sends the event store itself: payloads are in the format of Axon's serializer, and events that are internal to the service go out too"},
		},
	},
	{
		name: "outbox-kafka",
		columns: [roleCount][]string{
			roleID: {"id"}, roleKey: {"key"}, roleTopic: {"topic"}, rolePayload: {"value"}, roleHeaders: {"headers"},
		},
		exact:    true,
		required: []role{roleID, roleKey, roleTopic, rolePayload},
		topic:    "${topic}",
		framework: framework{
			signature: []string{"id", "created", "processed", "topic", "key", "value", "headers"},
		},
	},
	{
		name: "namastack",
		columns: [roleCount][]string{
			roleID: {"id"}, roleKey: {"aggregate_id"}, roleType: {"event_type"}, rolePayload: {"payload"},
		},
		exact:    true,
		required: []role{roleID, roleKey, roleType, rolePayload},
		topic:    "${type}",
		headers:  []presetHeader{eventTypeOfRole},
		framework: framework{
			signature: []string{"id", "status", "aggregate_id", "event_type", "payload", "created_at", "completed_at", "retry_count", "next_retry_at"},
			tables:    "outbox_record",
			notes:     []string{"preset namastack: stop the application's own outbox scheduler, or each event is handled twice"},
		},
	},
}

var dotnetPresets = []preset{
	{
		name: "brighter",
		columns: [roleCount][]string{
			roleID: {"messageid"}, roleKey: {"partitionkey"}, roleTopic: {"topic"}, roleType: {"type", "messagetype"},
			rolePayload: {"body"}, roleHeaders: {"headerbag"}, roleTrace: {"traceparent"},
		},
		exact:    true,
		required: []role{roleID, roleTopic, rolePayload},
		topic:    "${topic}",
		headers: []presetHeader{
			eventTypeOfRole, {name: contentTypeHeader, column: "contenttype"}, {name: "correlationId", column: "correlationid"}, {name: "replyTo", column: "replyto"},
			{name: "source", column: "source"}, {name: "subject", column: "subject"}, {name: "dataschema", column: "dataschema"},
			{name: traceState, column: "tracestate"}, {name: "baggage", column: "baggage"},
		},
		framework: framework{
			signature:   []string{"messageid", "messagetype", "topic", "timestamp", "headerbag", "body", "dispatched"},
			otherwise:   [roleCount]string{roleType: "messagetype"},
			textHeaders: true,
			notes:       []string{"preset brighter: the application may only deposit; with a sweeper or a call of ClearOutbox each message is sent twice"},
		},
	},
	{
		name: "eshop",
		columns: [roleCount][]string{
			roleID: {"EventId"}, roleType: {"EventTypeName"}, rolePayload: {"Content"},
		},
		exact:    true,
		required: []role{roleID, roleType, rolePayload},
		topic:    "${type}",
		headers:  []presetHeader{eventTypeOfRole, {name: "transactionId", column: "transactionid"}},
		framework: framework{
			signature: []string{"EventId", "EventTypeName", "State", "TimesSent", "CreationTime", "Content"},
			notes:     []string{"preset eshop: stop the application's own publisher, or each event is sent twice; for events of one thing to keep their order set columns.key, such as Content#/OrderId"},
		},
	},
	{
		name: "marten",
		columns: [roleCount][]string{
			roleID: {"id"}, roleKey: {"stream_id"}, roleType: {"type"}, rolePayload: {"data"}, roleHeaders: {"headers"},
		},
		exact:    true,
		required: []role{roleID, roleKey, roleType, rolePayload},
		topic:    "${type}",
		headers: []presetHeader{
			eventTypeOfRole, {name: "version", column: "version"}, {name: "tenant_id", column: "tenantid"},
			{name: "correlation_id", column: "correlationid"}, {name: "causation_id", column: "causationid"},
		},
		framework: framework{
			signature: []string{"seq_id", "id", "stream_id", "version", "data", "type", "timestamp", "tenant_id", "mt_dotnet_type", "is_archived"},
			notes:     []string{"preset marten sends the event store itself: events that are internal to the service go out too, and where the table is partitioned by is_archived, archiving sends an event again"},
		},
	},
}

var goPresets = []preset{
	{
		name: "watermill",
		columns: [roleCount][]string{
			roleID: {"uuid"}, rolePayload: {"payload"}, roleHeaders: {"metadata"},
		},
		exact:    true,
		required: []role{roleID, rolePayload},
		framework: framework{
			signature:   []string{"offset", "uuid", "created_at", "payload", "metadata"},
			tables:      "watermill_*",
			tablePrefix: "watermill_",
			notes:       []string{"preset watermill sends payloads as they are; if these rows are the envelopes of Watermill's forwarder, set preset: watermill-forwarder"},
		},
	},
	{
		name: "watermill-forwarder",
		columns: [roleCount][]string{
			roleID: {"payload#/uuid"}, roleTopic: {"payload#/destination_topic"}, rolePayload: {"payload#/payload"}, roleHeaders: {"payload#/metadata"},
		},
		exact:    true,
		required: []role{roleID, roleTopic, rolePayload},
		topic:    "${topic}",
		framework: framework{
			signature: []string{"offset", "uuid", "created_at", "payload", "metadata"},
			tables:    "watermill_forwarder_topic",
			base64:    true,
		},
	},
	{
		name: "goharvest",
		columns: [roleCount][]string{
			roleID: {"id"}, roleKey: {"kafka_key"}, roleTopic: {"kafka_topic"}, rolePayload: {"kafka_value"}, roleHeaders: {"kafka_header_keys"},
		},
		exact:    true,
		required: []role{roleID, roleKey, roleTopic, rolePayload, roleHeaders},
		topic:    "${topic}",
		framework: framework{
			signature:    []string{"id", "create_time", "kafka_topic", "kafka_key", "kafka_value", "kafka_header_keys", "kafka_header_values"},
			headerValues: "kafka_header_values",
		},
	},
	{
		name: "pgx-outbox",
		columns: [roleCount][]string{
			roleID: {"id"}, roleTopic: {"topic"}, rolePayload: {"payload"}, roleHeaders: {"metadata"},
		},
		exact:    true,
		required: []role{roleID, roleTopic, rolePayload},
		topic:    "${topic}",
		framework: framework{
			signature: []string{"id", "broker", "topic", "metadata", "payload", "created_at", "published_at"},
		},
	},
	{
		name: "outboxd",
		columns: [roleCount][]string{
			roleID: {"id"}, roleKey: {"partition_key", "aggregate_id"}, roleTopic: {"topic"}, rolePayload: {"payload"},
		},
		exact:     true,
		required:  []role{roleID, roleTopic, rolePayload},
		topic:     "${topic}",
		framework: framework{explicit: true, otherwise: [roleCount]string{roleKey: "aggregate_id"}},
	},
	{
		name: "open-outbox",
		columns: [roleCount][]string{
			roleID: {"event_id"}, roleKey: {"partition_key"}, roleType: {"event_type"}, rolePayload: {"payload"}, roleHeaders: {"headers"},
		},
		exact:    true,
		required: []role{roleID, roleKey, roleType, rolePayload},
		topic:    "${type}",
		headers:  []presetHeader{eventTypeOfRole},
		framework: framework{
			signature: []string{"event_id", "event_type", "partition_key", "payload", "headers", "status", "attempts", "available_at", "locked_by", "locked_at", "created_at"},
		},
	},
}

var scriptPresets = []preset{
	{
		name: "pg-transactional-outbox",
		columns: [roleCount][]string{
			roleID: {"id"}, roleKey: {"segment"}, roleRoute: {"aggregate_type"}, roleType: {"message_type"}, rolePayload: {"payload"}, roleHeaders: {"metadata"},
		},
		exact:    true,
		required: []role{roleID, roleKey, roleRoute, rolePayload},
		topic:    "${routedByValue}-events",
		headers:  []presetHeader{eventTypeOfRole},
		framework: framework{
			signature: []string{"id", "aggregate_type", "aggregate_id", "message_type", "segment", "concurrency", "payload", "metadata", "locked_until", "created_at", "processed_at"},
			otherwise: [roleCount]string{roleKey: "aggregate_id"},
		},
	},
	{
		name: "sbmt",
		columns: [roleCount][]string{
			roleID: {"uuid"}, roleKey: {"event_key"}, roleType: {"event_name"}, rolePayload: {"payload", "proto_payload"}, roleHeaders: {"options#/headers"},
		},
		exact:    true,
		required: []role{roleID, roleKey, roleType, rolePayload},
		topic:    "${type}",
		headers:  []presetHeader{eventTypeOfRole},
		framework: framework{
			signature: []string{"uuid", "event_name", "event_key", "bucket", "status", "options", "errors_count"},
		},
	},
	{
		name: "rails-event-store",
		columns: [roleCount][]string{
			roleID: {"event_id"}, roleType: {"event_type"}, rolePayload: {"data"}, roleHeaders: {"metadata"},
		},
		exact:    true,
		required: []role{roleID, roleType, rolePayload},
		headers:  []presetHeader{eventTypeOfRole},
		framework: framework{
			signature:    []string{"event_id", "event_type", "metadata", "data", "created_at", "valid_at"},
			payloadForms: []form{formJSON},
			payloadWhy:   "it holds what Ruby's serialiser wrote; make the event store's tables with --data-type=json or jsonb",
			notes:        []string{"preset rails-event-store sends the event store itself: events that are internal to the service go out too"},
		},
	},
	{
		name: "django-outbox-pattern",
		columns: [roleCount][]string{
			roleID: {"id"}, roleRoute: {"destination"}, rolePayload: {"body"}, roleHeaders: {"headers"},
		},
		exact:    true,
		required: []role{roleID, roleRoute, rolePayload},
		topic:    "${routedByValue}",
		framework: framework{
			signature: []string{"id", "version", "destination", "body", "added", "expires_at", "retry", "status", "headers"},
			regex:     `/(?:topic|queue)/(?<routedByValue>.+)`,
			notes:     []string{"preset django-outbox-pattern: stop the publish command, or each event is sent twice; destinations such as /topic/x.v1 go to topic x.v1"},
		},
	},
}

// The recipes of libraries that have no outbox of their own. Their columns are
// what everybody's are, so auto takes a generic preset for them.
var recipePresets = []preset{
	{
		name: "laravel",
		columns: [roleCount][]string{
			roleID: {"id"}, roleKey: {"key", "routing_key"}, roleTopic: {"topic"}, roleType: {"event_type"}, rolePayload: {"payload"}, roleHeaders: {"headers"},
		},
		exact:     true,
		required:  []role{roleID, roleTopic, rolePayload},
		topic:     "${topic}",
		headers:   []presetHeader{eventTypeOfRole},
		framework: framework{explicit: true, otherwise: [roleCount]string{roleKey: "routing_key"}},
	},
	{
		name: "prisma",
		columns: [roleCount][]string{
			roleID: {"id"}, roleKey: {"aggregateid"}, roleRoute: {"aggregatetype"}, roleType: {"eventtype", "eventname"}, rolePayload: {"payload"}, roleHeaders: {"metadata"},
		},
		strict:   true,
		required: []role{roleID, roleKey, roleRoute, rolePayload},
		topic:    "${routedByValue}-events",
		headers:  []presetHeader{eventTypeOfRole},
		framework: framework{
			signature: []string{"id", "aggregateType", "aggregateId", "eventName", "payload"},
		},
	},
	{
		name: "typeorm",
		columns: [roleCount][]string{
			roleID: {"id"}, roleKey: {"aggregateid"}, roleTopic: {"topic"}, roleType: {"eventtype", "type"}, rolePayload: {"payload"},
		},
		required:  []role{roleID, roleType, rolePayload},
		topic:     "${topic}",
		headers:   []presetHeader{eventTypeOfRole},
		framework: framework{explicit: true, topicElse: "${type}"},
	},
	{
		name: "mikroorm",
		columns: [roleCount][]string{
			roleID: {"id"}, roleTopic: {"topic"}, rolePayload: {"payload"},
		},
		required:  []role{roleID, roleTopic, rolePayload},
		topic:     "${topic}",
		framework: framework{explicit: true},
	},
	{
		name: "drizzle",
		columns: [roleCount][]string{
			roleID: {"id"}, roleKey: {"aggregateid"}, roleRoute: {"aggregatetype"}, roleType: {"eventtype"}, rolePayload: {"payload"},
		},
		required:  []role{roleID, roleKey, roleRoute, rolePayload},
		topic:     "${routedByValue}-events",
		headers:   []presetHeader{eventTypeOfRole},
		framework: framework{explicit: true},
	},
	{
		name: "generic-simple",
		columns: [roleCount][]string{
			roleID: {"id"}, roleType: {"eventtype"}, rolePayload: {"payload"},
		},
		required:  []role{roleID, roleType, rolePayload},
		topic:     "${type}",
		headers:   []presetHeader{eventTypeOfRole},
		framework: framework{explicit: true},
	},
	{
		name: "generic-aggregate-type",
		columns: [roleCount][]string{
			roleID: {"id"}, roleRoute: {"aggregate"}, roleType: {"eventtype"}, rolePayload: {"payload"},
		},
		required:  []role{roleID, roleRoute, rolePayload},
		topic:     "${routedByValue}-events",
		headers:   []presetHeader{eventTypeOfRole},
		framework: framework{explicit: true},
	},
}
