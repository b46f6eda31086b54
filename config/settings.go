package config

// settings is the tree of keys. Tags:
//
//	yaml     name of the key
//	desc     one sentence; comment in the example file and description in the schema
//	default  text that the key has when nothing sets it
//	enum     allowed values, comma separated
//	empty    "ok": an empty environment variable sets the empty text
//
// A key without default is empty, false or zero. Types decide how a value is
// read: see values.go.
type settings struct {
	Postgres postgresSettings `yaml:"postgres" desc:"Where the rows come from."`
	Outbox   []outboxSettings `yaml:"outbox" desc:"The outbox tables, one or more, of one database. All share the slot."`
	Kafka    kafkaSettings    `yaml:"kafka" desc:"Where the records go."`
	Relay    relaySettings    `yaml:"relay" desc:"What happens in between."`

	Maintenance maintenanceSettings `yaml:"maintenance" desc:"The connection that works on delivered rows, and its pace. See outbox[].retention and outbox[].mark."`

	HTTP    httpSettings    `yaml:"http" desc:"Health checks, metrics and status."`
	Tracing tracingSettings `yaml:"tracing" desc:"Spans of delivered rows, sent to a collector by OTLP over HTTP. OTEL_EXPORTER_OTLP_* apply where a key is unset."`

	Log      Log    `yaml:"log" desc:"Log on standard error."`
	Pipeline string `yaml:"pipeline" default:"default" desc:"Label on metrics and field in logs; tells several relays apart."`
}

type postgresSettings struct {
	URL              dsn      `yaml:"url" desc:"libpq URL or keyword string; several hosts, PG* variables and service files apply. Without sslmode: verify-full, except on loopback and sockets."`
	Password         secret   `yaml:"password" desc:"Password; overrides the one in the URL. Better kept in password_file or ${NAME}."`
	PasswordFile     string   `yaml:"password_file" desc:"File that holds the password; read again at every connect."`
	PasswordCommand  []string `yaml:"password_command" desc:"Program and arguments that print the password; run at every connect."`
	Auth             string   `yaml:"auth" default:"password" enum:"password,aws_rds_iam" desc:"How to authenticate. aws_rds_iam: by a token of the usual AWS credentials, made at every connect; the region is that of kafka.region, of the environment, or of the host's name."`
	Insecure         bool     `yaml:"insecure" default:"false" desc:"Permit a cleartext password without TLS to a host that is not loopback."`
	Slot             string   `yaml:"slot" default:"cdc_relay" desc:"Replication slot; made by setup, never by run."`
	Publication      string   `yaml:"publication" default:"cdc_relay" desc:"Publication; made by setup, never by run."`
	WalSenderTimeout duration `yaml:"wal_sender_timeout" default:"15s" desc:"wal_sender_timeout of the relay's own connection: how soon the server notices that the relay is gone."`
	Shards           int      `yaml:"shards" default:"1" desc:"Number of slots and publications that divide the tables' rows by a hash of the record's key (PostgreSQL 15 and later), 1 to 64. Order is kept for each key. Changed by setup --reshard-from alone."`
	OwnShards        []string `yaml:"own_shards" desc:"With shards: numbers of those that this process runs, from 0 on. Empty: all."`
}

type outboxSettings struct {
	Table             string            `yaml:"table" desc:"Table as schema.name; parts may be quoted as in SQL. Without schema: public."`
	MessagePrefix     string            `yaml:"message_prefix" desc:"Instead of a table: prefix of logical messages (pg_logical_emit_message) whose JSON body has the roles, at /id, /aggregateId, /aggregateType, /type, /payload, /headers and /traceparent unless columns says otherwise (body#/pointer)."`
	Preset            string            `yaml:"preset" default:"auto" desc:"Known table shape. auto looks at the columns; several matches are an error with a block to paste."`
	Columns           columnsSettings   `yaml:"columns" desc:"Role: column, or column#/json/pointer. Only what differs from the preset."`
	Topic             template          `yaml:"topic" desc:"Topic template: ${column}, ${column|lower}, ${column|topic} (cleans the name), ${column|default:x}; ${routedByValue} after topic_regex. Empty: the preset's."`
	TopicRegex        string            `yaml:"topic_regex" desc:"Must match the whole route value and name the group routedByValue; a value that does not match is the topic itself."`
	Headers           templatePairs     `yaml:"headers" desc:"Further record headers: name: column or template."`
	Key               string            `yaml:"key" default:"raw" enum:"raw,json_string" desc:"Format of the key."`
	Value             string            `yaml:"value" enum:"raw,json_string,envelope,merged,cloudevents,cloudevents_binary,eventuate,avro,json_schema,protobuf" desc:"Format of the value. raw: the payload's own bytes. avro, json_schema, protobuf: by a schema, which schema says. Empty: the preset's, which is raw for all but eventuate-tram."`
	ValueFields       pairs             `yaml:"value_fields" desc:"Columns that envelope and merged take up, and extension attributes of cloudevents: field: column."`
	CloudEventsSource string            `yaml:"cloudevents_source" desc:"Attribute source of cloudevents, a URI reference. Empty: /cdc-relay/ and the table's name, which is the same for two databases."`
	Partition         string            `yaml:"partition" desc:"Integer column that chooses the partition. Empty: murmur2 of the key, as the Java client does."`
	TombstoneOnEmpty  bool              `yaml:"tombstone_on_empty" default:"false" desc:"Send an empty or blank payload as a null value; not for bytea. SQL NULL always is one."`
	Schema            schemaSettings    `yaml:"schema" desc:"With value: avro, json_schema or protobuf: which schema. With value: raw: whether the payload is checked."`
	Retention         retentionSettings `yaml:"retention" desc:"What run and cdc-relay retention --once do with delivered rows when they are old."`

	Marking markSettings    `yaml:"mark" desc:"Column that run and cdc-relay mark --once set on delivered rows, for whoever reads it."`
	Rejects rejectsSettings `yaml:"rejects" desc:"Columns in which the same job says of a row that it was rejected and is a dead letter."`

	Debezium templatePairs `yaml:"debezium" desc:"Options of Debezium's PostgreSQL connector, its EventRouter, other transforms and converters under their own names. With any of them records equal Debezium's byte for byte, and only keys that Debezium's options do not decide may be set beside them."`
}

type schemaSettings struct {
	Check         string   `yaml:"check" default:"none" enum:"none,confluent" desc:"With value: raw. confluent: a payload that does not begin with a zero byte and the number of a schema of kafka.registry is a rejected row."`
	Subject       template `yaml:"subject" desc:"Subject whose schema encodes the row: ${topic} is the record's topic, other names are columns. Empty: ${topic}-value."`
	Version       string   `yaml:"version" default:"latest" desc:"Version of the subject: latest, or a number, with which an event gives equal bytes whenever it is sent."`
	File          string   `yaml:"file" desc:"File with the schema: .avsc, .json, or for Protobuf a descriptor set. With id: instead of subject, and no registry is asked. With register: what cdc-relay setup registers."`
	ID            string   `yaml:"id" desc:"With file: the schema's number in the registry."`
	Register      bool     `yaml:"register" default:"false" desc:"With file: cdc-relay setup registers it under subject, which has to be literal. run registers nothing."`
	Message       string   `yaml:"message" desc:"With value: protobuf: full name of the message, for example shop.v1.Order. Empty: the first one of the schema's file."`
	Validate      bool     `yaml:"validate" default:"false" desc:"With value: json_schema: a payload that the schema does not take is a rejected row. Without it payloads are sent as they are."`
	UnknownFields string   `yaml:"unknown_fields" default:"reject" enum:"reject,drop" desc:"What a member of the payload does that the schema does not have. reject: it makes the row a rejected one; drop: it is left out."`
	Bytes         string   `yaml:"bytes" enum:"base64,latin1" desc:"With value: avro: how the payload writes what the schema has as bytes or fixed. Needed if it has some; decimals and UUIDs need nothing."`
}

type retentionSettings struct {
	Then         string         `yaml:"then" default:"none" enum:"none,delete,archive,export,drop_partition,detach_partition" desc:"none: rows stay; delete: they go; archive: they move to archive_table, in one transaction; export: they go once they are in files; drop_partition, detach_partition: whole partitions go. Only rows that are proven delivered; needs relay.detect_moved_slot or exactly_once."`
	Keep         age            `yaml:"keep" desc:"How old a row has to be by the column of by, at least 1h: 7d, 36h."`
	By           string         `yaml:"by" default:"created_at" desc:"Column that says how old a row is: timestamptz, or timestamp in UTC. It needs an index in a table of over 100 000 rows."`
	Where        string         `yaml:"where" desc:"SQL condition that a row has to meet as well, for example status = 'sent'. Functions outside pg_catalog with their schema."`
	ArchiveTable string         `yaml:"archive_table" desc:"With then: archive: table that has every column of this one by name and type."`
	Export       exportSettings `yaml:"export" desc:"With then: export: the files that rows are written to before they are deleted."`
	Scan         string         `yaml:"scan" default:"index" enum:"index,blocks" desc:"How rows that are due are found. index: by an index on the column of by. blocks: without one; each look reads the whole table, block by block."`
	CreateAhead  int            `yaml:"create_ahead" default:"7" desc:"With then: drop_partition or detach_partition: how many partitions are made before they are needed, as long as the newest one; 0: somebody else makes them."`
}

type exportSettings struct {
	To        string   `yaml:"to" desc:"Directory of this machine that exists, or s3://BUCKET/PREFIX. The files are TABLE/YEAR/MONTH/DAY/HOUR-PART.ndjson.zst below it. Credentials for a bucket come from AWS's usual chain."`
	Region    string   `yaml:"region" desc:"With a bucket: its AWS region. Empty: the environment's."`
	Endpoint  string   `yaml:"endpoint" desc:"With a bucket: URL of another store that has the protocol of S3, for example http://minio:9000. Empty: AWS."`
	PathStyle bool     `yaml:"path_style" default:"false" desc:"With a bucket: have its name in the path and not in the host's name, as most other stores need it."`
	Slice     duration `yaml:"slice" default:"1h" desc:"Whose rows are written together, by the column of by: whole hours that divide a day. Rows go when all of their slice are old enough."`
}

type markSettings struct {
	Column    string   `yaml:"column" desc:"Column that the relay sets on delivered rows: a timestamp, a boolean, or a status whose default marks unpublished rows. Empty: rows are not marked. Needs relay.detect_moved_slot or exactly_once."`
	Value     string   `yaml:"value" desc:"Value of the column for a delivered row. Empty: now for a timestamp, true for a boolean. Required for a status, for example sent."`
	Interval  duration `yaml:"interval" default:"1s" desc:"With maintenance.in_run: how often run looks for rows to mark."`
	BatchRows int      `yaml:"batch_rows" default:"1000" desc:"Rows of a transaction at most, 1 to 10000. With maintenance.max_rows_per_second a transaction has a 50th of those, or 50 if that is more."`
}

type rejectsSettings struct {
	Error    string `yaml:"error" desc:"With mark.column and relay.on_reject: dead_letter: text column that gets the reason and the place of a row's dead letter while it waits, and nothing of the row. Empty: rows do not show it."`
	Attempts string `yaml:"attempts" desc:"With error: column of whole numbers that is raised by one for each dead letter."`
}

type maintenanceSettings struct {
	URL               dsn      `yaml:"url" desc:"Like postgres.url, for a role of its own that may delete or update; to the primary itself, without a pooler. Empty: postgres.url."`
	Password          secret   `yaml:"password" desc:"With url: password; overrides the one in the URL. Better kept in password_file or ${NAME}."`
	PasswordFile      string   `yaml:"password_file" desc:"With url: file that holds the password; read again at every connect."`
	InRun             bool     `yaml:"in_run" default:"true" desc:"run does the work beside the stream, while it holds the slot. false: cdc-relay retention --once and mark --once do it, from cron for example."`
	Interval          duration `yaml:"interval" default:"1m" desc:"With in_run: how often run looks for rows that are due."`
	BatchRows         int      `yaml:"batch_rows" default:"1000" desc:"Rows of a transaction at most, 1 to 10000. With maintenance.max_rows_per_second a transaction has a 50th of those, or 50 if that is more."`
	MaxRowsPerSecond  int      `yaml:"max_rows_per_second" default:"5000" desc:"Rows a second at most; 0: no limit."`
	Wait              duration `yaml:"wait" default:"60s" desc:"How long to wait until the slots have passed the rows, and for standby servers that are behind."`
	AlsoWaitFor       []string `yaml:"also_wait_for" desc:"Slots of other pipelines that read these tables: rows stay until these slots have passed them too."`
	Skipped           string   `yaml:"skipped" default:"refuse" enum:"refuse,treat_as_delivered" desc:"With relay.on_reject: skip, nothing names the rows that were left out. refuse: nothing is deleted or marked; treat_as_delivered: they are treated like the others."`
	PauseAtReplicaLag duration `yaml:"pause_at_replica_lag" default:"30s" desc:"Pause while a standby server is this far behind; 0s: never."`
}

type columnsSettings struct {
	ID        string `yaml:"id" desc:"Event id, sent as header id."`
	Key       string `yaml:"key" desc:"Key of the record: rows with one key stay in order."`
	Route     string `yaml:"route" desc:"What the topic is made of."`
	Type      string `yaml:"type" desc:"Event type, sent as a header."`
	Payload   string `yaml:"payload" desc:"Value of the record."`
	Headers   string `yaml:"headers" desc:"json or jsonb object, hstore or text[] whose entries become record headers."`
	Trace     string `yaml:"trace" desc:"W3C trace context, sent as traceparent and tracestate."`
	Timestamp string `yaml:"timestamp" desc:"Time of the record. Empty: the time of producing."`
}

type kafkaSettings struct {
	Brokers         []string             `yaml:"brokers" desc:"Brokers to start from, as host:port."`
	Preset          string               `yaml:"preset" enum:"msk-iam,confluent-cloud,event-hubs,aiven,redpanda" desc:"Defaults for a managed service: TLS, mechanism, and whatever else it needs. Keys that are set win."`
	Insecure        bool                 `yaml:"insecure" default:"false" desc:"Permit credentials in clear text without TLS to brokers that are not loopback."`
	TLS             tlsSettings          `yaml:"tls" desc:"TLS to the brokers. Files are read again for every connection."`
	SASL            saslSettings         `yaml:"sasl" desc:"Authentication to the brokers."`
	OAuth           oauthSettings        `yaml:"oauth" desc:"Client-credentials grant, for sasl.mechanism oauthbearer."`
	Region          string               `yaml:"region" desc:"AWS region, for sasl.mechanism aws-msk-iam and postgres.auth aws_rds_iam. Empty: the environment's."`
	Compression     string               `yaml:"compression" default:"snappy" enum:"none,gzip,snappy,lz4,zstd" desc:"Compression of record batches."`
	Linger          duration             `yaml:"linger" default:"0s" desc:"How long a batch waits for more records. With 0s, none while the relay is caught up, and up to 15 ms in a backlog."`
	MaxMessageBytes size                 `yaml:"max_message_bytes" default:"1MiB" desc:"Largest record and batch; at most the limit of brokers and topics."`
	Registry        registrySettings     `yaml:"registry" desc:"Schema registry for outbox[].schema: that of Confluent, Redpanda, Karapace, or Apicurio at …/apis/ccompat/v7."`
	CreateTopics    createTopicsSettings `yaml:"create_topics" desc:"Make missing topics at their first record."`
}

type registrySettings struct {
	URL          []string            `yaml:"url" desc:"Address of its API, with https, or several of one registry. http with credentials only to loopback, or with kafka.insecure."`
	Username     string              `yaml:"username" desc:"User of basic authentication."`
	Password     secret              `yaml:"password" desc:"With username: password. Better kept in password_file or ${NAME}."`
	PasswordFile string              `yaml:"password_file" desc:"With username: file that holds the password; read again at each request."`
	TokenFile    string              `yaml:"token_file" desc:"Instead of username: file that holds a bearer token; read again at each request."`
	Timeout      duration            `yaml:"timeout" default:"5s" desc:"How long a request may take."`
	Refresh      duration            `yaml:"refresh" default:"5m" desc:"How often subjects are looked at of which the latest version counts. A row that does not fit is a reason to look at once."`
	TLS          registryTLSSettings `yaml:"tls" desc:"TLS to the registry. Files are read again for every connection."`
}

type registryTLSSettings struct {
	CAFile   string `yaml:"ca_file" desc:"PEM file of the authorities to trust. Empty: the system's."`
	CertFile string `yaml:"cert_file" desc:"PEM file of the client certificate."`
	KeyFile  string `yaml:"key_file" desc:"PEM file of the client certificate's key."`
}

type tlsSettings struct {
	Enabled    bool   `yaml:"enabled" default:"false" desc:"Use TLS and verify the brokers."`
	CAFile     string `yaml:"ca_file" desc:"PEM file of the authorities to trust. Empty: the system's."`
	CertFile   string `yaml:"cert_file" desc:"PEM file of the client certificate."`
	KeyFile    string `yaml:"key_file" desc:"PEM file of the client certificate's key."`
	ServerName string `yaml:"server_name" desc:"Name to verify instead of each broker's host."`
}

type saslSettings struct {
	Mechanism    string `yaml:"mechanism" enum:"plain,scram-sha-256,scram-sha-512,oauthbearer,aws-msk-iam" desc:"How to authenticate. Empty: not at all."`
	Username     string `yaml:"username" desc:"User, for plain and scram."`
	Password     secret `yaml:"password" desc:"Password, for plain and scram. Better kept in password_file or ${NAME}."`
	PasswordFile string `yaml:"password_file" desc:"File that holds the password; read again at every authentication."`
}

type oauthSettings struct {
	TokenEndpoint    string `yaml:"token_endpoint" desc:"URL that hands out tokens; https unless loopback or kafka.insecure."`
	ClientID         string `yaml:"client_id" desc:"Client to ask as."`
	ClientSecret     secret `yaml:"client_secret" desc:"The client's secret. Better kept in client_secret_file or ${NAME}."`
	ClientSecretFile string `yaml:"client_secret_file" desc:"File that holds the client's secret; read again for every token."`
	Scope            string `yaml:"scope" desc:"Scope to ask for."`
	Extensions       pairs  `yaml:"extensions" desc:"SASL extensions to send with the token, for example logicalCluster."`
}

type createTopicsSettings struct {
	Enabled           bool  `yaml:"enabled" default:"false" desc:"Make missing topics."`
	Partitions        int   `yaml:"partitions" default:"12" desc:"Partitions of a new topic; -1: the broker's default."`
	ReplicationFactor int   `yaml:"replication_factor" default:"-1" desc:"Replicas of a new topic; -1: the broker's default, from Kafka 2.4 on."`
	Config            pairs `yaml:"config" desc:"Topic configuration, for example retention.ms."`
}

type relaySettings struct {
	Guarantee        string   `yaml:"guarantee" default:"at_least_once" enum:"at_least_once,exactly_once" desc:"What consumers may rely on. exactly_once: for those that read committed records only; needs checkpoint_topic."`
	CommitInterval   duration `yaml:"commit_interval" default:"100ms" desc:"With exactly_once: how long a record waits at most before its Kafka transaction is committed."`
	CheckpointTopic  string   `yaml:"checkpoint_topic" default:"__cdc_relay_checkpoints" desc:"With exactly_once or detect_moved_slot: topic that keeps the position of each slot; one partition, compacted; made by setup."`
	DetectMovedSlot  bool     `yaml:"detect_moved_slot" default:"false" desc:"With at_least_once: write to checkpoint_topic how far the slot may be confirmed, before it is, so that a start sees that somebody else moved it. All relays on the slot need it. exactly_once always does it."`
	OnReject         string   `yaml:"on_reject" default:"stop" enum:"stop,dead_letter,skip" desc:"What happens to a row that can never be delivered. stop: block and confirm nothing past it; dead_letter: send it to dead_letter_topic and continue; skip: count it, log it and lose it."`
	AcceptLoss       bool     `yaml:"accept_loss" default:"false" desc:"Has to be true for on_reject: skip."`
	DeadLetterTopic  string   `yaml:"dead_letter_topic" default:"cdc-relay.dead-letters" desc:"Topic of on_reject: dead_letter, made by setup and kept for dead letters alone; the deadletter commands read it whatever on_reject is."`
	ParkKey          bool     `yaml:"park_key" default:"false" desc:"With on_reject: dead_letter: later rows of the same topic and key follow a rejected one there, in order, until they are re-driven. The relay then reads the topic at its start."`
	PositionHeaders  bool     `yaml:"position_headers" default:"false" desc:"Add the headers cdc-relay-lsn (end of the commit), cdc-relay-seq (ordinal in the transaction) and cdc-relay-commit-time. The rows of a transaction then wait until its commit was read."`
	OnBlocked        string   `yaml:"on_blocked" default:"wait" enum:"wait,exit" desc:"What a blocked relay does. wait: stay up, not ready, and try again; exit: end with code 4."`
	MaxInFlightBytes size     `yaml:"max_in_flight_bytes" default:"8MiB" desc:"Bytes of rows and their records until they are acknowledged. The process grows by two to three times as much."`
	MaxRowBytes      size     `yaml:"max_row_bytes" default:"64MiB" desc:"Largest row that is read, as PostgreSQL sends it; a larger one blocks without being read, whatever on_reject is. Four times kafka.max_message_bytes are always read."`
	DrainTimeout     duration `yaml:"drain_timeout" default:"30s" desc:"How long a stop waits for rows in flight."`
}

type httpSettings struct {
	Listen    string   `yaml:"listen" default:"127.0.0.1:8080" empty:"ok" desc:"Address as host:port; empty turns it off."`
	Token     secret   `yaml:"token" desc:"Bearer token that metrics and status ask for. Better kept in token_file or ${NAME}."`
	TokenFile string   `yaml:"token_file" desc:"File that holds the token; read again at every use."`
	Hosts     []string `yaml:"hosts" desc:"Host names that requests may use, besides loopback names and the address itself, when http listens on loopback without a token; [*]: any."`

	Console consoleSettings `yaml:"console" desc:"Pages for people at /, on the same address. They change nothing, unless actions is true."`
}

type consoleSettings struct {
	Enabled           bool     `yaml:"enabled" default:"true" desc:"Serve the pages, and keep the figures that they show."`
	Actions           bool     `yaml:"actions" default:"false" desc:"An operator may re-drive and discard dead letters, and have a pause between attempts cut short. Needs operator_token_file."`
	OperatorTokenFile string   `yaml:"operator_token_file" desc:"File that holds the token of operators, another one than http.token; read again at every use. It also admits to all that http.token admits to."`
	Payloads          bool     `yaml:"payloads" default:"false" desc:"An operator may see key, header values and value of a dead letter, and of the record that the newest row of a table becomes. Needs operator_token_file."`
	Hosts             []string `yaml:"hosts" desc:"Further names like those of http.hosts."`
	History           duration `yaml:"history" default:"1h" desc:"How long figures are kept for the charts, 1m to 6h; 0s: not at all."`
}

// Log says what is logged and how.
type Log struct {
	Level  string `yaml:"level" default:"info" enum:"trace,debug,info,warn,error" desc:"Least level that is logged."`
	Format string `yaml:"format" default:"auto" enum:"auto,text,json" desc:"auto: text on a terminal, JSON elsewhere."`
}
