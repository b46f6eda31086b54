package options

import (
	"slices"
	"strings"
)

// Option is one option of Debezium or Kafka Connect and how cdc-relay treats it.
// `config.Load`, `cdc-relay import` and the documentation read the same table,
// DebeziumOptions.
type Option struct {
	// Name as in a connector's configuration. A trailing `.*` stands for any rest, and
	// so does `*` between dots. Options of transforms, predicates and converters are
	// named without the prefix that the configuration gives them.
	Name string

	// Scope is connector, eventrouter, transform, predicate, converter, worker or producer.
	Scope string

	// Of is the class, without its package, that an option of scope transform,
	// predicate or converter belongs to; empty for all of them.
	Of string

	// Type is string, bool, int, list, regex, class, password, or enum(a,b).
	Type string

	Default string // Debezium's; empty: none

	Fate string // one of the Fate constants
	Key  string // our key outside `debezium:`, for FateElsewhere
	Note string // why, and for FateNotCarried what that changes for consumers
}

// What happens to an option.
const (
	FateCarried    = "carried"      // stands below `debezium:` under its own name and means the same
	FateElsewhere  = "our key"      // has a key of ours, named in Key; refused below `debezium:`
	FateImplied    = "implied"      // always so here; accepted, without effect
	FateNotNeeded  = "not needed"   // has nothing to do here; accepted, without effect
	FateNotCarried = "not carried"  // refused below `debezium:`
	FateDefault    = "default only" // carried as long as it has the value that Debezium gives it
)

// Scopes of options.
const (
	ScopeConnector   = "connector"
	ScopeEventRouter = "eventrouter"
	ScopeTransform   = "transform"
	ScopePredicate   = "predicate"
	ScopeConverter   = "converter"
	ScopeWorker      = "worker"
	ScopeProducer    = "producer"
)

// Lookup finds the row for a name in a scope; `of` narrows to a
// class where the table knows it. A row for the whole name comes before a pattern.
func Lookup(scope, of, name string) (Option, bool) {
	best := -1
	for i, o := range All {
		if o.Scope != scope || o.Of != "" && o.Of != of || !matchOption(o.Name, name) {
			continue
		}
		if best < 0 || len(o.Name) > len(All[best].Name) || o.Name == name {
			best = i
		}
		if o.Name == name && o.Of == of {
			break
		}
	}
	if best < 0 {
		return Option{}, false
	}
	return All[best], true
}

// matchOption compares dotted names; `*` stands for one part, at the end for one
// or more.
func matchOption(pattern, name string) bool {
	if !strings.Contains(pattern, "*") {
		return pattern == name
	}
	p, n := strings.Split(pattern, "."), strings.Split(name, ".")
	for i, part := range p {
		if part == "*" && i == len(p)-1 {
			return len(n) > i
		}
		if i >= len(n) || part != "*" && part != n[i] {
			return false
		}
	}
	return len(p) == len(n)
}

// Accepted reports whether an option may stand below `debezium:`.
func (o *Option) Accepted() bool {
	return slices.Contains([]string{FateCarried, FateImplied, FateNotNeeded, FateDefault}, o.Fate)
}

// Allowed are the words of an enum.
func (o *Option) Allowed() []string {
	words, ok := strings.CutPrefix(o.Type, "enum(")
	if !ok {
		return nil
	}
	return strings.Split(strings.TrimSuffix(words, ")"), ",")
}

func carried(scope, name, typ, def, note string) Option {
	return Option{Name: name, Scope: scope, Type: typ, Default: def, Fate: FateCarried, Note: note}
}

func elsewhere(scope, name, typ, def, key, note string) Option {
	return Option{Name: name, Scope: scope, Type: typ, Default: def, Fate: FateElsewhere, Key: key, Note: note}
}

func option(scope, name, typ, def, fate, note string) Option {
	return Option{Name: name, Scope: scope, Type: typ, Default: def, Fate: fate, Note: note}
}

func carriedOf(class, scope, name, typ, def, note string) Option {
	return Option{Name: name, Scope: scope, Of: class, Type: typ, Default: def, Fate: FateCarried, Note: note}
}

func optionOf(class, scope, name, typ, def, fate, note string) Option {
	return Option{Name: name, Scope: scope, Of: class, Type: typ, Default: def, Fate: fate, Note: note}
}

// All lists every option of the PostgreSQL connector, the EventRouter
// and of what Kafka Connect puts around them (Debezium 3.6, Connect 4).
var All = []Option{
	// The EventRouter.
	carried(ScopeEventRouter, "table.field.event.id", "string", "id", "header id; also columns.id"),
	carried(ScopeEventRouter, "table.field.event.key", "string", "aggregateid", "record key; also columns.key"),
	carried(ScopeEventRouter, "table.field.event.payload", "string", "payload", "record value; also columns.payload"),
	carried(ScopeEventRouter, "table.field.event.timestamp", "string", "", "record timestamp, of a timestamp column without time zone; also columns.timestamp"),
	carried(ScopeEventRouter, "table.field.event.schema.version", "string", "", "version of the envelope's schema, an integer column"),
	option(ScopeEventRouter, "table.field.event.type", "string", "type", FateNotNeeded, "declared and never read by Debezium; the type goes where table.fields.additional.placement puts it"),
	carried(ScopeEventRouter, "table.fields.additional.placement", "list", "", "column:placement[:alias]; an unknown placement, an alias that is there twice and the alias payload are refused at load, where Debezium fails on the first row"),
	carried(ScopeEventRouter, "table.field.additional.missing", "enum(error,ignore)", "error", "a missing column is refused at load, where Debezium fails on the first row"),
	option(ScopeEventRouter, "table.fields.additional.error.on.missing", "bool", "true", FateNotNeeded, "since 3.6 Debezium ignores it, whatever its value; table.field.additional.missing took its place"),
	carried(ScopeEventRouter, "route.by.field", "string", "aggregatetype", "also columns.route"),
	carried(ScopeEventRouter, "route.topic.regex", "regex", "(?<routedByValue>.*)", "a Java pattern that RE2 can express: look-around, back-references, possessive and atomic groups are refused at load; also topic_regex"),
	carried(ScopeEventRouter, "route.topic.replacement", "string", "outbox.event.${routedByValue}", "an unknown group or a lone $ is refused at load, where Debezium fails on the first row that matches"),
	carried(ScopeEventRouter, "route.tombstone.on.empty.payload", "bool", "false", "also tombstone_on_empty"),
	carried(ScopeEventRouter, "table.op.invalid.behavior", "enum(warn,error,fatal)", "warn", "what an update does that leaves the primary key: warn and error drop it, fatal refuses the row"),
	option(ScopeEventRouter, "debezium.op.invalid.behavior", "enum(warn,error,fatal)", "warn", FateNotCarried, "the name before 2.0; write table.op.invalid.behavior, as import does"),
	option(ScopeEventRouter, "table.field.event.payload.id", "string", "aggregateid", FateNotCarried, "removed in 2.0; name the key column as table.field.event.key, as import does for a connector from before"),
	carried(ScopeEventRouter, "table.expand.json.payload", "bool", "false", "members of merged array elements come in the order first seen, which Java leaves to chance"),
	carried(ScopeEventRouter, "table.json.payload.null.behavior", "enum(ignore,optional_bytes)", "ignore", ""),
	carried(ScopeEventRouter, "table.json.payload.empty.array.behavior", "enum(ignore,optional_string)", "ignore", "since 3.7"),
	option(ScopeEventRouter, "field.name.adjustment.mode", "enum(none)", "none", FateDefault, "avro and avro_unicode make Debezium write null for the members that they rename"),
	option(ScopeEventRouter, "plugin.version", "string", "", FateNotNeeded, "chooses among versions of a plugin that are installed side by side; records are those of Debezium 3.6 and Connect 4"),
	option(ScopeEventRouter, "tracing.span.context.field", "string", "tracingspancontext", FateNotNeeded, "works in Debezium only with OpenTelemetry on the class path, and then writes span ids of its own; columns.trace without debezium: carries the trace context"),
	option(ScopeEventRouter, "tracing.operation.name", "string", "debezium-read", FateNotNeeded, "as tracing.span.context.field"),
	option(ScopeEventRouter, "tracing.with.context.field.only", "bool", "true", FateNotNeeded, "as tracing.span.context.field"),

	// Of the connector: what is in a record.
	carried(ScopeConnector, "topic.prefix", "string", "", "required: context headers, names of schemas, source topics, heartbeats"),
	option(ScopeConnector, "database.server.name", "string", "", FateNotCarried, "the name before 2.0; write topic.prefix, as import does"),
	carried(ScopeConnector, "extended.headers.enabled", "bool", "true", "headers __debezium.context.*; runId is new for each start of the relay"),
	carried(ScopeConnector, "decimal.handling.mode", "enum(precise,double,string)", "precise", ""),
	carried(ScopeConnector, "time.precision.mode", "enum(adaptive,adaptive_time_microseconds,connect,isostring,microseconds,nanoseconds)", "adaptive", ""),
	carried(ScopeConnector, "binary.handling.mode", "enum(bytes,base64,base64-url-safe,hex)", "bytes", ""),
	carried(ScopeConnector, "interval.handling.mode", "enum(numeric,string)", "numeric", ""),
	carried(ScopeConnector, "hstore.handling.mode", "enum(json,map)", "json", ""),
	carried(ScopeConnector, "money.fraction.digits", "int", "2", ""),
	carried(ScopeConnector, "include.unknown.datatypes", "bool", "false", ""),
	carried(ScopeConnector, "event.converting.failure.handling.mode", "enum(warn,skip,fail)", "warn", "a value that cannot be converted: NULL, or the row is refused"),
	carried(ScopeConnector, "unavailable.value.placeholder", "string", "__debezium_unavailable_value", "stands for a TOASTed value that an update of the primary key left alone"),
	carried(ScopeConnector, "schema.name.adjustment.mode", "enum(none,avro)", "none", ""),
	option(ScopeConnector, "field.name.adjustment.mode", "enum(none)", "none", FateDefault, "avro renames the columns that the EventRouter sees; rename the columns in its options instead"),
	carried(ScopeConnector, "column.include.list", "list", "", "regular expressions for schema.table.column; what they leave out is a missing column"),
	carried(ScopeConnector, "column.exclude.list", "list", "", "as column.include.list, the other way round"),
	carried(ScopeConnector, "column.propagate.source.type", "list", "", "parameters __debezium.source.column.* of schemas"),
	option(ScopeConnector, "datatype.propagate.source.type", "list", "", FateNotCarried, "only adds parameters to schemas; column.propagate.source.type is carried"),
	option(ScopeConnector, "include.schema.comments", "bool", "false", FateDefault, "only adds doc to schemas"),
	carried(ScopeConnector, "message.prefix.include.list", "list", "", "for an entry with message_prefix: regular expressions for the prefix of logical messages"),
	carried(ScopeConnector, "message.prefix.exclude.list", "list", "", "as message.prefix.include.list, the other way round"),
	carried(ScopeConnector, "skipped.operations", "list", "t", "c,u,d,t,none; with c inserts are never sent, so it is refused"),
	carried(ScopeConnector, "heartbeat.interval.ms", "int", "0", "the slot advances without heartbeats; this is for consumers of the heartbeat topic"),
	carried(ScopeConnector, "topic.heartbeat.prefix", "string", "__debezium-heartbeat", ""),
	option(ScopeConnector, "heartbeat.topics.prefix", "string", "__debezium-heartbeat", FateNotCarried, "the name before 2.0; write topic.heartbeat.prefix, as import does"),
	option(ScopeConnector, "heartbeat.action.query", "string", "", FateNotNeeded, "an idle slot advances by itself, so no statement is run; rows that it wrote for other readers are no longer written"),
	carried(ScopeConnector, "provide.transaction.metadata", "bool", "false", "topic <topic.prefix>.transaction"),
	option(ScopeConnector, "topic.transaction", "string", "transaction", FateDefault, "another name of the transaction topic"),
	option(ScopeConnector, "transaction.metadata.factory", "class", "io.debezium.pipeline.txmetadata.DefaultTransactionMetadataFactory", FateDefault, "another one is Java code"),
	option(ScopeConnector, "topic.delimiter", "string", ".", FateDefault, "source topics are named with a dot"),
	option(ScopeConnector, "topic.naming.strategy", "class", "io.debezium.schema.SchemaTopicNamingStrategy", FateDefault, "source topics are named by Debezium's default strategy"),
	option(ScopeConnector, "sourceinfo.struct.maker", "class", "io.debezium.connector.postgresql.PostgresSourceInfoStructMaker", FateDefault, "only in records that pass the EventRouter unchanged"),
	option(ScopeConnector, "column.mask.*", "string", "", FateNotCarried, "values would reach consumers unmasked; mask them where the row is written"),
	option(ScopeConnector, "column.truncate.*", "string", "", FateNotCarried, "values would reach consumers in full; shorten them where the row is written"),
	option(ScopeConnector, "converters", "list", "", FateNotCarried, "custom converters are Java code, and so are the values they make"),
	option(ScopeConnector, "post.processors", "list", "", FateNotCarried, "post processors are Java code"),
	option(ScopeConnector, "message.key.columns", "list", "", FateNotNeeded, "the EventRouter replaces the key that it makes"),
	option(ScopeConnector, "tombstones.on.delete", "bool", "true", FateNotNeeded, "the EventRouter drops deletes and their tombstones"),
	option(ScopeConnector, "skip.messages.without.change", "bool", "false", FateNotNeeded, "is about updates, which the EventRouter drops"),
	option(ScopeConnector, "schema.refresh.mode", "enum(columns_diff,columns_diff_exclude_unchanged_toast)", "columns_diff", FateNotNeeded, "columns are taken from the stream"),
	option(ScopeConnector, "topic.cache.size", "int", "10000", FateNotNeeded, "a cache inside Debezium"),
	option(ScopeConnector, "include.schema.changes", "bool", "true", FateNotNeeded, "not used by the PostgreSQL connector"),
	option(ScopeConnector, "schema.history.internal.*", "string", "", FateNotNeeded, "not used by the PostgreSQL connector"),
	option(ScopeConnector, "schema.history.internal", "string", "", FateNotNeeded, "not used by the PostgreSQL connector"),
	option(ScopeConnector, "database.history.*", "string", "", FateNotNeeded, "not used by the PostgreSQL connector"),
	option(ScopeConnector, "database.history", "string", "", FateNotNeeded, "not used by the PostgreSQL connector"),

	// Of the connector: the connection.
	elsewhere(ScopeConnector, "name", "string", "", "pipeline", "name of the relay in metrics and logs"),
	option(ScopeConnector, "connector.class", "class", "io.debezium.connector.postgresql.PostgresConnector", FateImplied, "PostgreSQL; another class is refused"),
	option(ScopeConnector, "connector.plugin.version", "string", "", FateNotNeeded, "chooses among versions of a plugin that are installed side by side; records are those of Debezium 3.6 and Connect 4"),
	option(ScopeConnector, "tasks.max.enforce", "bool", "true", FateNotNeeded, "as tasks.max"),
	option(ScopeConnector, "tasks.max", "int", "1", FateNotNeeded, "the connector has one task whatever it says"),
	elsewhere(ScopeConnector, "database.hostname", "string", "", "postgres.url", ""),
	elsewhere(ScopeConnector, "database.port", "int", "5432", "postgres.url", ""),
	elsewhere(ScopeConnector, "database.user", "string", "", "postgres.url", ""),
	elsewhere(ScopeConnector, "database.password", "password", "", "postgres.password_file", "never printed"),
	carried(ScopeConnector, "database.dbname", "string", "", "the connection is postgres.url; below debezium: it is the member source.db of records that pass the EventRouter unchanged"),
	elsewhere(ScopeConnector, "database.sslmode", "enum(disable,allow,prefer,require,verify-ca,verify-full)", "prefer", "postgres.url", "sslmode"),
	elsewhere(ScopeConnector, "database.sslcert", "string", "", "postgres.url", "sslcert"),
	elsewhere(ScopeConnector, "database.sslkey", "string", "", "postgres.url", "sslkey; Java's DER key becomes PEM"),
	elsewhere(ScopeConnector, "database.sslpassword", "password", "", "postgres.url", "sslpassword"),
	elsewhere(ScopeConnector, "database.sslrootcert", "string", "", "postgres.url", "sslrootcert"),
	option(ScopeConnector, "database.sslfactory", "class", "", FateNotCarried, "Java code; sslmode=require without verification is said in postgres.url"),
	option(ScopeConnector, "database.tcpKeepAlive", "bool", "true", FateImplied, "keep-alive is on"),
	option(ScopeConnector, "database.initial.statements", "string", "", FateNotNeeded, "is run on connections that read data; the relay reads the log"),
	option(ScopeConnector, "database.query.timeout.ms", "int", "600000", FateNotNeeded, "the relay's few look-ups have limits of their own"),
	option(ScopeConnector, "database.connection.factory.class", "class", "", FateNotCarried, "Java code; postgres.auth: aws_rds_iam takes the place of the AWS wrapper"),
	option(ScopeConnector, "database.connection.timeout.ms", "int", "", FateNotNeeded, "connect_timeout in postgres.url"),
	option(ScopeConnector, "driver.*", "string", "", FateNotCarried, "options of the Java driver; postgres.url takes those of libpq"),
	option(ScopeConnector, "connection.validation.timeout.ms", "int", "60000", FateNotNeeded, "Connect's check of a new configuration"),
	option(ScopeConnector, "custom.sanitize.pattern", "regex", "", FateNotNeeded, "no value of a row is ever logged"),

	// Of the connector: slot and publication.
	option(ScopeConnector, "plugin.name", "enum(pgoutput)", "decoderbufs", FateImplied, "pgoutput; a slot of another plugin cannot be taken over"),
	elsewhere(ScopeConnector, "slot.name", "string", "debezium", "postgres.slot", ""),
	option(ScopeConnector, "slot.drop.on.stop", "bool", "false", FateNotCarried, "true loses what is written between stop and start; the relay never drops its slot"),
	option(ScopeConnector, "slot.drop_on_stop", "bool", "false", FateNotCarried, "as slot.drop.on.stop"),
	option(ScopeConnector, "slot.failover", "bool", "false", FateNotNeeded, "is said when the slot is made, by setup"),
	option(ScopeConnector, "slot.stream.params", "string", "", FateNotCarried, "options of the output plugin; the relay sets its own"),
	option(ScopeConnector, "slot.max.retries", "int", "6", FateNotNeeded, "the relay waits for the slot as long as it takes"),
	option(ScopeConnector, "slot.retry.delay.ms", "int", "10000", FateNotNeeded, "as slot.max.retries"),
	option(ScopeConnector, "create.slot.command.timeout", "int", "90", FateNotNeeded, "setup makes the slot"),
	option(ScopeConnector, "slot.seek.to.known.offset.on.start", "bool", "false", FateNotNeeded, "the slot itself is the only offset"),
	option(ScopeConnector, "offset.mismatch.strategy", "string", "no_validation", FateNotNeeded, "the slot itself is the only offset"),
	elsewhere(ScopeConnector, "publication.name", "string", "dbz_publication", "postgres.publication", ""),
	option(ScopeConnector, "publication.autocreate.mode", "enum(all_tables,disabled,filtered,no_tables)", "all_tables", FateNotNeeded, "run never makes or changes a publication; setup makes one for the configured tables"),
	option(ScopeConnector, "publish.via.partition.root", "bool", "false", FateNotNeeded, "is a property of the publication, which is honoured; a partitioned table whose rows carry the names of its partitions is refused, where Debezium drops them silently"),
	option(ScopeConnector, "replica.identity.autoset.values", "string", "", FateNotCarried, "the relay never alters a table"),
	option(ScopeConnector, "read.only", "bool", "false", FateImplied, "streaming writes nothing to the database"),

	// Of the connector: what it captures.
	elsewhere(ScopeConnector, "table.include.list", "list", "", "outbox[].table", "one entry for each table"),
	elsewhere(ScopeConnector, "table.exclude.list", "list", "", "outbox[].table", "one entry for each table that is left"),
	elsewhere(ScopeConnector, "schema.include.list", "list", "", "outbox[].table", "one entry for each table"),
	elsewhere(ScopeConnector, "schema.exclude.list", "list", "", "outbox[].table", "one entry for each table that is left"),
	option(ScopeConnector, "table.ignore.builtin", "bool", "true", FateImplied, "only configured tables are read"),

	// Of the connector: snapshots.
	option(ScopeConnector, "snapshot.mode", "enum(always,initial,initial_only,no_data,never,when_needed,configuration_based,custom)", "initial", FateNotNeeded, "only what is written after the slot was made is sent; rows that were there before are sent by `cdc-relay backfill`, run instead of `cdc-relay setup`"),
	option(ScopeConnector, "snapshot.select.statement.overrides", "string", "", FateNotNeeded, "there is no snapshot"),
	option(ScopeConnector, "snapshot.select.statement.overrides.*", "string", "", FateNotNeeded, "there is no snapshot"),
	option(ScopeConnector, "snapshot.*", "string", "", FateNotNeeded, "there is no snapshot"),
	option(ScopeConnector, "legacy.snapshot.max.threads", "bool", "false", FateNotNeeded, "there is no snapshot"),
	option(ScopeConnector, "streaming.delay.ms", "int", "0", FateNotNeeded, "there is no snapshot"),
	option(ScopeConnector, "query.fetch.size", "int", "0", FateNotNeeded, "there is no snapshot"),
	option(ScopeConnector, "incremental.snapshot.*", "string", "", FateNotNeeded, "there is no snapshot, and no signal that asks for one"),
	option(ScopeConnector, "signal.*", "string", "", FateNotNeeded, "there are no signals"),
	option(ScopeConnector, "notification.*", "string", "", FateNotNeeded, "there are no notifications: /status and the metrics tell what a notification would"),

	// Of the connector: the flow of events.
	elsewhere(ScopeConnector, "max.queue.size.in.bytes", "int", "0", "relay.max_in_flight_bytes", "a memory limit; the default is 8MiB"),
	option(ScopeConnector, "max.batch.size", "int", "2048", FateNotNeeded, "rows are sent as they come; relay.max_in_flight_bytes bounds the memory"),
	option(ScopeConnector, "max.queue.size", "int", "8192", FateNotNeeded, "as max.batch.size"),
	option(ScopeConnector, "poll.interval.ms", "int", "500", FateNotNeeded, "rows are sent as they come"),
	option(ScopeConnector, "poll.dispatch.interval.ms", "int", "0", FateNotNeeded, "rows are sent as they come"),
	option(ScopeConnector, "queue.provider.type", "string", "memory", FateNotNeeded, "rows are sent as they come"),
	option(ScopeConnector, "status.update.interval.ms", "int", "10000", FateNotNeeded, "the position is reported at least each second"),
	option(ScopeConnector, "xmin.fetch.interval.ms", "int", "0", FateNotNeeded, "is only in the source block, which the EventRouter drops"),
	option(ScopeConnector, "lsn.flush.mode", "enum(connector,connector_and_driver)", "connector", FateDefault, "manual leaves moving the slot to somebody else"),
	option(ScopeConnector, "flush.lsn.source", "bool", "true", FateDefault, "false leaves moving the slot to somebody else"),
	option(ScopeConnector, "lsn.flush.timeout.ms", "int", "30000", FateNotNeeded, "the position is reported with every status message"),
	option(ScopeConnector, "lsn.flush.timeout.action", "string", "fail", FateNotNeeded, "the position is reported with every status message"),
	option(ScopeConnector, "errors.max.retries", "int", "-1", FateImplied, "a lost connection is made again as long as it takes"),
	option(ScopeConnector, "retriable.restart.connector.wait.ms", "int", "10000", FateNotNeeded, "the wait grows from a fraction of a second"),
	option(ScopeConnector, "custom.retriable.exception", "regex", "", FateNotNeeded, "is about Java exceptions"),
	option(ScopeConnector, "event.processing.failure.handling.mode", "enum(fail)", "fail", FateDefault, "warn, skip and ignore lose rows; relay.on_reject decides about a row that cannot be sent"),
	option(ScopeConnector, "executor.shutdown.timeout.ms", "int", "4000", FateNotNeeded, "relay.drain_timeout"),
	option(ScopeConnector, "log.position.check.enable", "bool", "true", FateImplied, "a slot that lost its position ends the start"),
	option(ScopeConnector, "offset.activity.monitor.interval.ms", "int", "600000", FateNotNeeded, "the metrics tell"),
	option(ScopeConnector, "advanced.metrics.enable", "bool", "false", FateNotNeeded, "metrics are Prometheus's"),
	option(ScopeConnector, "statistics.metrics.enabled", "bool", "false", FateNotNeeded, "metrics are Prometheus's"),
	option(ScopeConnector, "custom.metric.tags", "string", "", FateNotNeeded, "label pipeline tells relays apart"),
	option(ScopeConnector, "guardrail.*", "string", "", FateNotNeeded, "only configured tables are read"),
	option(ScopeConnector, "memory.management.*", "class", "", FateNotNeeded, "about Debezium's memory"),
	option(ScopeConnector, "internal.log.position.check.enable", "bool", "true", FateImplied, "a slot that lost its position ends the start"),
	option(ScopeConnector, "internal.*", "string", "", FateNotNeeded, "about Debezium's own workings; none of those that a worker lists changes a record"),
	option(ScopeConnector, "openlineage.*", "string", "", FateNotNeeded, "lineage events are not sent"),

	// Kafka Connect, around each connector.
	carried(ScopeConnector, "key.converter", "class", "", "required here, because without it Connect takes the worker's"),
	carried(ScopeConnector, "value.converter", "class", "", "required here, because without it Connect takes the worker's"),
	carried(ScopeConnector, "header.converter", "class", "org.apache.kafka.connect.storage.SimpleHeaderConverter", ""),
	carried(ScopeConnector, "key.converter.*", "string", "", "options of the key converter"),
	carried(ScopeConnector, "value.converter.*", "string", "", "options of the value converter"),
	carried(ScopeConnector, "header.converter.*", "string", "", "options of the header converter"),
	carried(ScopeConnector, "transforms", "list", "", "in order; left out: one EventRouter, whose options may then stand without their prefix"),
	carried(ScopeConnector, "transforms.*", "string", "", "options of the transforms"),
	carried(ScopeConnector, "predicates", "list", "", ""),
	carried(ScopeConnector, "predicates.*", "string", "", "options of the predicates"),
	elsewhere(ScopeConnector, "errors.tolerance", "enum(none,all)", "none", "relay.on_reject", "none is stop; all drops rows for ever"),
	option(ScopeConnector, "errors.retry.timeout", "int", "0", FateNotNeeded, "what can be tried again is tried as long as it takes"),
	option(ScopeConnector, "errors.retry.delay.max.ms", "int", "60000", FateNotNeeded, "what can be tried again is tried as long as it takes"),
	option(ScopeConnector, "errors.log.enable", "bool", "false", FateImplied, "every rejected row is logged with its position, never with its values"),
	option(ScopeConnector, "errors.log.include.messages", "bool", "false", FateNotNeeded, "values are never logged"),
	option(ScopeConnector, "errors.deadletterqueue.*", "string", "", FateNotNeeded, "has no effect on source connectors; relay.on_reject has"),
	option(ScopeConnector, "config.action.reload", "string", "restart", FateNotNeeded, "about the worker"),
	option(ScopeConnector, "transaction.boundary", "string", "poll", FateNotNeeded, "about Connect's transactions"),
	option(ScopeConnector, "transaction.boundary.interval.ms", "int", "", FateNotNeeded, "about Connect's transactions"),
	elsewhere(ScopeConnector, "exactly.once.support", "enum(requested,required)", "requested", "relay.guarantee", "required becomes exactly_once; otherwise the worker's exactly.once.source.support decides"),
	option(ScopeConnector, "offsets.storage.topic", "string", "", FateNotNeeded, "the slot itself is the only offset"),
	elsewhere(ScopeConnector, "topic.creation.default.partitions", "int", "", "kafka.create_topics.partitions", ""),
	elsewhere(ScopeConnector, "topic.creation.default.replication.factor", "int", "", "kafka.create_topics.replication_factor", ""),
	elsewhere(ScopeConnector, "topic.creation.default.*", "string", "", "kafka.create_topics.config", ""),
	option(ScopeConnector, "topic.creation.enable", "bool", "true", FateNotNeeded, "is a setting of the worker; Connect ignores it in a connector"),
	option(ScopeConnector, "topic.creation.*", "string", "", FateNotCarried, "one rule makes all missing topics; make those of other groups beforehand"),
	elsewhere(ScopeConnector, "producer.override.*", "string", "", "kafka", "see the producer's options"),
	option(ScopeConnector, "admin.override.*", "string", "", FateNotNeeded, "one client makes topics and records"),

	// Transforms and predicates.
	carried(ScopeTransform, "type", "class", "", ""),
	option(ScopeTransform, "plugin.version", "string", "", FateNotNeeded, "chooses among versions of a plugin that are installed side by side; records are those of Debezium 3.6 and Connect 4"),
	carried(ScopeTransform, "predicate", "string", "", ""),
	carried(ScopeTransform, "negate", "bool", "false", ""),
	carriedOf("RegexRouter", ScopeTransform, "regex", "regex", "", ""),
	carriedOf("RegexRouter", ScopeTransform, "replacement", "string", "", ""),
	carriedOf("TimestampRouter", ScopeTransform, "topic.format", "string", "${topic}-${timestamp}", ""),
	carriedOf("TimestampRouter", ScopeTransform, "timestamp.format", "string", "yyyyMMdd", "a Java pattern of numbers, quoted text and signs, in UTC; without an event timestamp the commit's time stands for the time of processing"),
	carriedOf("InsertHeader", ScopeTransform, "header", "string", "", ""),
	carriedOf("InsertHeader", ScopeTransform, "value.literal", "string", "", "is parsed, so 001 is the number 1"),
	carriedOf("DropHeaders", ScopeTransform, "headers", "list", "", ""),
	carriedOf("HeaderFrom", ScopeTransform, "fields", "list", "", ""),
	carriedOf("HeaderFrom", ScopeTransform, "headers", "list", "", ""),
	carriedOf("HeaderFrom", ScopeTransform, "operation", "enum(move,copy)", "", ""),
	carriedOf("HeaderFrom", ScopeTransform, "replace.null.with.default", "bool", "true", ""),
	carriedOf("InsertField", ScopeTransform, "static.field", "string", "", ""),
	carriedOf("InsertField", ScopeTransform, "static.value", "string", "", ""),
	carriedOf("InsertField", ScopeTransform, "topic.field", "string", "", ""),
	carriedOf("InsertField", ScopeTransform, "partition.field", "string", "", ""),
	carriedOf("InsertField", ScopeTransform, "timestamp.field", "string", "", ""),
	optionOf("InsertField", ScopeTransform, "offset.field", "string", "", FateNotCarried, "only sink connectors have offsets"),
	carriedOf("InsertField", ScopeTransform, "replace.null.with.default", "bool", "true", ""),
	carriedOf("HoistField", ScopeTransform, "field", "string", "", ""),
	carriedOf("ExtractField", ScopeTransform, "field", "string", "", ""),
	optionOf("ExtractField", ScopeTransform, "field.syntax.version", "enum(V1)", "V1", FateDefault, ""),
	carriedOf("ExtractField", ScopeTransform, "replace.null.with.default", "bool", "true", ""),
	carriedOf("ReplaceField", ScopeTransform, "include", "list", "", ""),
	carriedOf("ReplaceField", ScopeTransform, "exclude", "list", "", ""),
	carriedOf("ReplaceField", ScopeTransform, "renames", "list", "", ""),
	carriedOf("ReplaceField", ScopeTransform, "replace.null.with.default", "bool", "true", ""),
	carriedOf("ValueToKey", ScopeTransform, "fields", "list", "", ""),
	carriedOf("ValueToKey", ScopeTransform, "replace.null.with.default", "bool", "true", ""),
	carriedOf("SetSchemaMetadata", ScopeTransform, "schema.name", "string", "", ""),
	carriedOf("SetSchemaMetadata", ScopeTransform, "schema.version", "int", "", ""),
	carriedOf("SetSchemaMetadata", ScopeTransform, "replace.null.with.default", "bool", "true", ""),
	carriedOf("DecodeLogicalDecodingMessageContent", ScopeTransform, "fields.null.include", "bool", "false", ""),
	carriedOf("ExtractNewRecordState", ScopeTransform, "delete.tombstone.handling.mode", "enum(drop,tombstone,rewrite,rewrite-with-tombstone,delete-to-tombstone)", "tombstone", "only tombstone, drop and delete-to-tombstone"),
	optionOf("ExtractNewRecordState", ScopeTransform, "drop.tombstones", "bool", "true", FateNotCarried, "write delete.tombstone.handling.mode"),
	optionOf("ExtractNewRecordState", ScopeTransform, "delete.handling.mode", "string", "drop", FateNotCarried, "write delete.tombstone.handling.mode"),
	optionOf("ExtractNewRecordState", ScopeTransform, "drop.fields.*", "string", "", FateNotCarried, "only its defaults are known here"),
	optionOf("ExtractNewRecordState", ScopeTransform, "add.*", "string", "", FateNotCarried, "only its defaults are known here"),
	optionOf("ExtractNewRecordState", ScopeTransform, "route.by.field", "string", "", FateNotCarried, "only its defaults are known here"),

	carried(ScopePredicate, "type", "class", "", ""),
	carriedOf("TopicNameMatches", ScopePredicate, "pattern", "regex", "", ""),
	carriedOf("HasHeaderKey", ScopePredicate, "name", "string", "", ""),

	// Converters.
	carriedOf("JsonConverter", ScopeConverter, "schemas.enable", "bool", "true", ""),
	carriedOf("JsonConverter", ScopeConverter, "decimal.format", "enum(BASE64,NUMERIC)", "BASE64", ""),
	carriedOf("JsonConverter", ScopeConverter, "replace.null.with.default", "bool", "true", ""),
	optionOf("JsonConverter", ScopeConverter, "schemas.cache.size", "int", "1000", FateNotNeeded, "has no effect on bytes"),
	optionOf("JsonConverter", ScopeConverter, "schema.content", "string", "", FateNotNeeded, "only for reading"),
	optionOf("StringConverter", ScopeConverter, "converter.encoding", "enum(UTF-8,UTF8)", "UTF-8", FateDefault, ""),
	optionOf("StringConverter", ScopeConverter, "key.converter.encoding", "enum(UTF-8,UTF8)", "UTF-8", FateDefault, ""),
	optionOf("StringConverter", ScopeConverter, "value.converter.encoding", "enum(UTF-8,UTF8)", "UTF-8", FateDefault, ""),
	optionOf("StringConverter", ScopeConverter, "encoding", "enum(UTF-8,UTF8)", "UTF-8", FateDefault, ""),
	carriedOf("BinaryDataConverter", ScopeConverter, "delegate.converter.type", "class", "", ""),
	carriedOf("BinaryDataConverter", ScopeConverter, "delegate.converter.type.*", "string", "", "options of the delegate"),
	carriedOf("ByteBufferConverter", ScopeConverter, "delegate.converter.type", "class", "", ""),
	carriedOf("ByteBufferConverter", ScopeConverter, "delegate.converter.type.*", "string", "", "options of the delegate"),
	carriedOf("ByteArrayConverter", ScopeConverter, "delegate.converter.type", "class", "", ""),
	carriedOf("ByteArrayConverter", ScopeConverter, "delegate.converter.type.*", "string", "", "options of the delegate"),
	option(ScopeConverter, "schemas.enable", "bool", "true", FateNotNeeded, "this converter writes no schemas"),
	option(ScopeConverter, "decimal.format", "string", "BASE64", FateNotNeeded, "this converter writes no JSON"),
	option(ScopeConverter, "replace.null.with.default", "bool", "true", FateNotNeeded, "this converter writes no JSON"),
	option(ScopeConverter, "delegate.converter.type", "class", "", FateNotNeeded, "only Debezium's converters for binary data have a delegate"),
	option(ScopeConverter, "delegate.converter.type.*", "string", "", FateNotNeeded, "only Debezium's converters for binary data have a delegate"),
	option(ScopeConverter, "plugin.version", "string", "", FateNotNeeded, "chooses among versions of a plugin that are installed side by side; records are those of Debezium 3.6 and Connect 4"),
	option(ScopeConverter, "converter.type", "string", "", FateNotNeeded, "Connect sets it itself"),

	// Workers.
	elsewhere(ScopeWorker, "bootstrap.servers", "list", "", "kafka.brokers", ""),
	carried(ScopeWorker, "key.converter", "class", "", "where the connector has none, with the worker's properties"),
	carried(ScopeWorker, "value.converter", "class", "", "where the connector has none, with the worker's properties"),
	carried(ScopeWorker, "header.converter", "class", "org.apache.kafka.connect.storage.SimpleHeaderConverter", "where the connector has none, with the worker's properties"),
	carried(ScopeWorker, "key.converter.*", "string", "", ""),
	carried(ScopeWorker, "value.converter.*", "string", "", ""),
	carried(ScopeWorker, "header.converter.*", "string", "", ""),
	elsewhere(ScopeWorker, "topic.creation.enable", "bool", "true", "kafka.create_topics.enabled", "needs topic.creation.default.* in the connector too"),
	elsewhere(ScopeWorker, "producer.*", "string", "", "kafka", "see the producer's options"),
	elsewhere(ScopeWorker, "exactly.once.source.support", "string", "disabled", "relay.guarantee", "enabled becomes exactly_once"),
	option(ScopeWorker, "offset.flush.interval.ms", "int", "60000", FateNotNeeded, "the position is reported to PostgreSQL at least each second"),
	option(ScopeWorker, "offset.flush.timeout.ms", "int", "5000", FateNotNeeded, "the position is reported to PostgreSQL at least each second"),
	option(ScopeWorker, "offset.storage.*", "string", "", FateNotNeeded, "the slot itself is the only offset; takeover reads the old one"),
	option(ScopeWorker, "config.providers", "list", "", FateNotNeeded, "references become ours, ${NAME} and ${file:/path}"),
	option(ScopeWorker, "config.providers.*", "string", "", FateNotNeeded, "references become ours, ${NAME} and ${file:/path}"),
	option(ScopeWorker, "config.*", "string", "", FateNotNeeded, "about the worker"),
	option(ScopeWorker, "status.*", "string", "", FateNotNeeded, "about the worker"),
	option(ScopeWorker, "group.id", "string", "", FateNotNeeded, "about the worker"),
	option(ScopeWorker, "plugin.path", "list", "", FateNotNeeded, "about the worker"),
	option(ScopeWorker, "plugin.discovery", "string", "", FateNotNeeded, "about the worker"),
	option(ScopeWorker, "listeners", "list", "", FateNotNeeded, "about the worker; http.listen is ours"),
	option(ScopeWorker, "rest.*", "string", "", FateNotNeeded, "about the worker; http.listen is ours"),
	option(ScopeWorker, "connector.client.config.override.policy", "string", "All", FateNotNeeded, "about the worker"),
	option(ScopeWorker, "task.shutdown.graceful.timeout.ms", "int", "5000", FateNotNeeded, "relay.drain_timeout"),
	option(ScopeWorker, "internal.*", "string", "", FateNotNeeded, "about the worker"),
	option(ScopeWorker, "consumer.*", "string", "", FateNotNeeded, "about sink connectors"),
	option(ScopeWorker, "admin.*", "string", "", FateNotNeeded, "one client makes topics and records"),

	// Producers.
	elsewhere(ScopeProducer, "bootstrap.servers", "list", "", "kafka.brokers", ""),
	elsewhere(ScopeProducer, "compression.type", "enum(none,gzip,snappy,lz4,zstd)", "none", "kafka.compression", "snappy here unless set; not part of a record"),
	elsewhere(ScopeProducer, "linger.ms", "int", "0", "kafka.linger", ""),
	elsewhere(ScopeProducer, "max.request.size", "int", "1048576", "kafka.max_message_bytes", ""),
	elsewhere(ScopeProducer, "security.protocol", "enum(PLAINTEXT,SSL,SASL_PLAINTEXT,SASL_SSL)", "PLAINTEXT", "kafka.tls.enabled", "and kafka.sasl"),
	elsewhere(ScopeProducer, "sasl.mechanism", "string", "", "kafka.sasl.mechanism", ""),
	elsewhere(ScopeProducer, "sasl.jaas.config", "password", "", "kafka.sasl.username", "and kafka.sasl.password_file; never printed"),
	option(ScopeProducer, "sasl.*", "string", "", FateNotCarried, "kafka.sasl and kafka.oauth say the same in other words"),
	elsewhere(ScopeProducer, "ssl.ca.location", "string", "", "kafka.tls.ca_file", ""),
	option(ScopeProducer, "ssl.*", "string", "", FateNotCarried, "Java key stores become PEM files: kafka.tls"),
	option(ScopeProducer, "partitioner.class", "class", "", FateNotCarried, "records are spread by murmur2 of the key, as the Java client does by default; another partitioner puts keys elsewhere"),
	option(ScopeProducer, "partitioner.ignore.keys", "bool", "false", FateDefault, "true would spread keys over partitions"),
	option(ScopeProducer, "partitioner.*", "string", "", FateNotNeeded, "only for records without a key"),
	option(ScopeProducer, "acks", "enum(all,-1)", "all", FateImplied, "all; a row counts as delivered when every in-sync replica has it"),
	option(ScopeProducer, "enable.idempotence", "bool", "true", FateImplied, "always on"),
	option(ScopeProducer, "max.in.flight.requests.per.connection", "int", "1", FateNotNeeded, "order is kept"),
	option(ScopeProducer, "retries", "int", "2147483647", FateImplied, "what can be tried again is tried as long as it takes"),
	option(ScopeProducer, "delivery.timeout.ms", "int", "2147483647", FateImplied, "what can be tried again is tried as long as it takes"),
	option(ScopeProducer, "max.block.ms", "int", "9223372036854775807", FateImplied, "what can be tried again is tried as long as it takes"),
	option(ScopeProducer, "batch.size", "int", "16384", FateNotNeeded, "batches fill by themselves"),
	option(ScopeProducer, "buffer.memory", "int", "33554432", FateNotNeeded, "relay.max_in_flight_bytes bounds the memory"),
	option(ScopeProducer, "client.id", "string", "", FateNotNeeded, "cdc-relay"),
	option(ScopeProducer, "key.serializer", "class", "", FateImplied, "bytes"),
	option(ScopeProducer, "value.serializer", "class", "", FateImplied, "bytes"),
	option(ScopeProducer, "*", "string", "", FateNotNeeded, "tunes the Java client"),
}
