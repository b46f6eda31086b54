// Package ways has, for each reason for which a relay does not go on, the ways out of it, as
// commands to copy. It is pure. docs/operations.md explains each reason; this is its last
// line in the names of the relay at hand.
package ways

import (
	"slices"
	"strconv"
	"strings"
)

// Facts are the names that the commands have in them. What is empty stands as a word in capitals.
type Facts struct {
	Slot            string
	Publication     string
	Table           string   // schema.name, as PostgreSQL has it
	Tables          []string // that are configured, as SQL names them
	Topic           string
	Position        string // that gives up the transaction of the row, as X/Y
	Bytes           int    // of the record
	OwnLimit        bool   // the record is over the relay's limit, and not over one of the brokers'
	DeadLetterTopic string
	CheckpointTopic string
	Brokers         string // the bootstrap servers, with commas
	Principal       string // of the relay, as in User:relay
	Role            string // of the relay in PostgreSQL
	File            string // with the configuration, as --config takes it; empty: the commands find it, or it is the environment alone
	Since           string // RFC 3339: what commits before was delivered, with a margin

	Secured  bool  // the brokers ask for TLS or a login
	Streamed bool  // the process has streamed, so the names in its configuration were right
	WALLimit int64 // bytes that double what the slot may keep, where its WAL runs short; zero: it does not

	Stops          bool // relay.on_reject: stop
	KeepsPositions bool // the position is in the checkpoint topic, too
}

// Loss reports whether a way gives rows up.
type Loss string

// What a way may cost.
const (
	Nothing Loss = "no"
	Later   Loss = "no, it waits" // the row goes out once somebody sends it again
	Rows    Loss = "yes"
)

// Way is one way out.
type Way struct {
	Title   string `json:"title"`
	Shell   string `json:"shell,omitempty"`  // for a shell; one command a line
	SQL     string `json:"sql,omitempty"`    // for psql
	Config  string `json:"config,omitempty"` // keys of the configuration
	Loses   Loss   `json:"loses_rows"`
	Restart bool   `json:"restart"` // the relay goes on after a restart alone
	Stopped bool   `json:"stopped"` // the relay has to be stopped meanwhile
}

// Heals are the reasons that pass by themselves, or need nothing to be done.
var Heals = []string{
	"slot_in_use", "checkpoint_hidden", "transaction_ended", "commit_unknown", "refused_together", "topic_recreated", "dead_letters_hidden",
	"records_hidden", "metadata_stale", "closed", "held_back", "interrupted", "overtaken", "out_of_order_sequence_number", "unknown_producer_id",
	"invalid_producer_epoch", "invalid_producer_id_mapping", "unknown_server_error", "sasl_interrupted", "in_recovery",
	"maintenance_in_use", "server_shutdown", "cancelled", "tls_handshake", "fenced",
}

// HealsByItself reports whether waiting is a way out.
func HealsByItself(reason string) bool { return slices.Contains(Heals, reason) }

// Out lists the ways out of a reason, the one that costs least first. There is none for a reason
// that is not in the runbook.
func Out(reason string, f Facts) []Way {
	f = f.complete()
	var all []Way
	if of := byReason[reason]; of != nil {
		all = of(&f)
	}
	if rowReasons[reason] {
		all = append(all, f.ofARow(reason)...)
	}
	if len(all) > 0 && f.WALLimit > 0 && !withoutSlot[reason] {
		all = slices.Insert(all, 0, f.moreWAL())
	}
	for i := range all {
		if all[i].Loses == "" {
			all[i].Loses = Nothing
		}
		all[i].Shell = f.inFull(all[i].Shell)
	}
	return all
}

// withoutSlot are the reasons at which there is no WAL that could be kept.
var withoutSlot = map[string]bool{"slot_lost": true, "slot_missing": true, "publication_missing": true, "foreign_server": true, "foreign_timeline": true}

// moreWAL wins time for the other ways.
func (f *Facts) moreWAL() Way {
	const mib = 1 << 20
	return Way{
		Title: "First win time: let PostgreSQL keep more WAL, if its disk has the room",
		SQL:   "ALTER SYSTEM SET max_slot_wal_keep_size = '" + strconv.FormatInt((f.WALLimit+mib-1)/mib, 10) + "MB';\nSELECT pg_reload_conf();",
	}
}

// inFull has each command of ours find the configuration of the relay at hand.
func (f *Facts) inFull(shell string) string {
	lines := strings.Split(shell, "\n")
	for i, line := range lines {
		if f.File != "" && strings.HasPrefix(line, "cdc-relay ") {
			lines[i] = strings.ReplaceAll(line, "cdc-relay ", "cdc-relay --config "+Word(f.File)+" ")
		}
	}
	return strings.Join(lines, "\n")
}

// rowReasons are those of one row that can never be delivered as it is.
var rowReasons = map[string]bool{
	"route": true, "mapping": true, "encode": true, "record_too_large": true, "invalid_record": true, "corrupt_message": true,
	"invalid_timestamp": true, "invalid_topic": true, "invalid_partition": true, "row_too_large": true, "undecodable": true,
}

// ofARow sets the row aside, or gives it up.
func (f *Facts) ofARow(reason string) []Way {
	var all []Way
	if f.Stops && reason != "row_too_large" && reason != "undecodable" { // of which no record can be made
		all = append(all, Way{
			Title:  "Set the row aside as a dead letter, to be sent later",
			Config: "relay: {on_reject: dead_letter}", Shell: "cdc-relay setup", Loses: Later, Restart: true,
		})
	}
	give := Way{
		Title: "Give up the whole transaction of the row",
		SQL:   "SELECT pg_replication_slot_advance(" + Literal(f.Slot) + ", " + Literal(f.Position) + ");",
		Loses: Rows, Restart: true, Stopped: true,
	}
	if f.KeepsPositions {
		give.Shell = "cdc-relay setup --accept-gap"
	}
	return append(all, give)
}

var kafkaAway = one(Way{Title: "See which broker answers, and start those that do not", Shell: "cdc-relay check --problems"})

var serverAway = one(Way{Title: "Nothing, if the server comes back: the relay goes on by itself. If it lasts, see which server does not answer, and start it", Shell: "cdc-relay check --problems"})

// one is a way that has no name of the relay in it.
func one(all ...Way) func(*Facts) []Way {
	return func(*Facts) []Way { return slices.Clone(all) }
}

// byReason are the ways of each reason, besides those of a row.
var byReason = map[string]func(*Facts) []Way{
	"cutover_trigger": func(f *Facts) []Way {
		return []Way{{Title: "As the table's owner, have the trigger mark every new row again", SQL: "ALTER TABLE " + f.table() + " ENABLE ALWAYS TRIGGER cdc_relay_cutover;"}}
	},
	"given_up": one(
		Way{Title: "Send the rows that the publisher gave up, once it is stopped", Shell: "cdc-relay cutover --stopped --given-up send --yes"},
		Way{Title: "Leave them in the table, where nobody sends them", Shell: "cdc-relay cutover --mark-new --given-up leave --yes", Loses: Later},
	),
	"partition_busy": one(
		Way{Title: "See who has the table or the partition, and end what stays open; the next pass tries again", SQL: "SELECT pid, state, xact_start, query FROM pg_stat_activity WHERE xact_start < now() - interval '1 second' ORDER BY xact_start"},
		Way{Title: "See prepared transactions, and commit or roll back each", SQL: "SELECT gid, prepared, owner, database FROM pg_prepared_xacts ORDER BY prepared"},
	),
	"partition_unlogged": one(
		Way{Title: "See which partition it is, and what to do about it; rows of the others go", Shell: "cdc-relay retention"},
	),
	"export_failed": one(
		Way{Title: "Make room in the directory of outbox[].retention.export.to, or give the right to write there; the next pass writes the rows again", Shell: "cdc-relay retention"},
		Way{Title: "See what a bucket lacks", Shell: "cdc-relay check"},
	),
	"records_differ": one(
		Way{Title: "See what the mapping makes of a row, and correct it", Shell: "cdc-relay explain"},
		Way{Title: "Go on, if consumers can take both", Shell: "cdc-relay cutover --mark-new --compare 100 --accept-difference --yes"},
	),
	"unknown_topic": func(f *Facts) []Way {
		if f.Topic == f.DeadLetterTopic { // it must not delete a letter that waits
			return []Way{{Title: "Have the topic of the dead letters made, with settings that keep them", Shell: "cdc-relay setup"}}
		}
		return []Way{
			{Title: "Create the topic", Shell: f.kafka("kafka-topics.sh", "--create --topic "+Word(f.Topic)+" --partitions 12")},
			{Title: "Have the relay create missing topics", Config: "kafka: {create_topics: {enabled: true}}", Restart: true},
		}
	},
	"topic_authorization_failed": func(f *Facts) []Way {
		return []Way{{Title: "Let the relay write to the topic", Shell: f.acl("--operation Write --operation Describe --topic " + Word(f.Topic))}}
	},
	"cluster_authorization_failed": func(f *Facts) []Way {
		return []Way{{Title: "Let the relay produce idempotently", Shell: f.acl("--operation IdempotentWrite --cluster")}}
	},
	"transactional_id_authorization_failed": func(f *Facts) []Way {
		return []Way{{Title: "Let the relay use its transactional ids", Shell: f.acl("--operation Write --operation Describe --resource-pattern-type prefixed --transactional-id cdc-relay-")}}
	},
	"record_too_large": func(f *Facts) []Way {
		topic := Way{Title: "Let the topic take it", Shell: f.topicConfig("max.message.bytes=" + f.limit())}
		relay := Way{Title: "Let the relay send it, and the topic take it", Shell: topic.Shell, Config: "kafka: {max_message_bytes: " + f.limitKiB() + "}", Restart: true}
		switch {
		case f.OwnLimit:
			return []Way{relay}
		case f.Bytes > 0: // it was sent
			return []Way{topic}
		}
		relay.Title += ", where the message names kafka.max_message_bytes"
		return []Way{topic, relay}
	},
	"invalid_record": invalidRecord, "corrupt_message": invalidRecord,
	"invalid_timestamp": func(f *Facts) []Way {
		return []Way{
			{Title: "Let the topic take any timestamp", Shell: f.topicConfig("message.timestamp.before.max.ms=9223372036854775807,message.timestamp.after.max.ms=9223372036854775807")},
			{Title: "Send the time of producing instead", Config: "outbox: [{columns: {timestamp: \"\"}}]", Restart: true},
		}
	},
	"invalid_topic": one(Way{Title: "Route to a topic with another name", Config: "outbox: [{topic: \"PREFIX-${aggregate_type|topic}\"}]", Restart: true}),
	"invalid_partition": func(f *Facts) []Way {
		return []Way{{Title: "Add partitions; keys that are hashed may change theirs", Shell: f.kafka("kafka-topics.sh", "--alter --topic "+Word(f.Topic)+" --partitions NUMBER")}}
	},
	"route":   one(Way{Title: "Give such rows a topic", Config: "outbox: [{topic: \"${aggregate_type|topic|default:OTHER}-events\"}]", Restart: true}),
	"mapping": one(Way{Title: "Map another column, or leave the role out", Shell: "cdc-relay explain --no-record", Restart: true}),
	"encode":  one(Way{Title: "Send the payload as it is", Config: "outbox: [{value: raw}]", Restart: true}),
	"row_too_large": one(Way{
		Title: "Read it, if Kafka can take it; the process needs four times as much memory", Config: "relay: {max_row_bytes: SIZE}\nkafka: {max_message_bytes: SIZE}", Restart: true,
	}),
	"schema": func(f *Facts) []Way {
		return []Way{
			{
				Title:  "Map the new column, and keep the preset: `auto` may choose another one now, with another topic and key. The message has ROLE (outbox[].columns.ROLE) and the columns, the log has PRESET (`table mapped`)",
				Config: "outbox: [{table: " + f.configTable() + ", preset: PRESET, columns: {ROLE: COLUMN}}]", Restart: true,
			},
			{
				Title: "Before the restart, see whether topic and key are as before", Shell: "cdc-relay explain --no-record", Restart: true,
			},
		}
	},

	"policy_violation": func(f *Facts) []Way {
		return []Way{{Title: "Create the topic as the policy demands", Shell: f.kafka("kafka-topics.sh", "--create --topic "+Word(f.Topic)+" --partitions PARTITIONS --replication-factor REPLICAS")}}
	},
	"sasl_authentication_failed": sasl, "sasl_mechanism_unsupported": sasl, "sasl_refused": sasl,
	"sasl_secret": one(Way{Title: "Put the file with the secret where the configuration names it", Shell: "cdc-relay config print"}),
	"tls":         one(Way{Title: "See what the other side presents, and correct kafka.tls or sslmode and sslrootcert of the URL", Shell: "openssl s_client -connect HOST:PORT </dev/null", Restart: true}),

	"registry_unreachable": one(Way{Title: "See what the registry answers, and start it; a wrong kafka.registry.url needs a restart", Shell: "cdc-relay check --problems"}),
	"registry_refused":     one(Way{Title: "Correct the file with the password or token, which is read at each request, or let the account read subjects and schemas", Shell: "cdc-relay check --problems"}),
	"registry_answer":      one(Way{Title: "Name the address of the registry's API", Config: "kafka: {registry: {url: [https://REGISTRY:8081]}}", Restart: true}),
	"unknown_subject": one(
		Way{Title: "Register the schema under the subject that the message names", Shell: "cdc-relay check --problems"},
		Way{Title: "Name the subject that has it", Config: "outbox: [{schema: {subject: SUBJECT}}]", Restart: true},
	),
	"schema_unusable": one(
		Way{Title: "Register a version that can be used: the message says what is in the way", Shell: "cdc-relay check --problems"},
		Way{Title: "Use an earlier version", Config: "outbox: [{schema: {version: NUMBER}}]", Restart: true},
	),

	"kafka_unreachable": kafkaAway,
	"network":           serverAway, "timeout": serverAway,
	"kafka_not_acknowledging": func(f *Facts) []Way {
		return []Way{{Title: "Find the partitions without enough replicas, and get those back", Shell: f.kafka("kafka-topics.sh", "--describe --under-min-isr-partitions") + "\n" + f.kafka("kafka-topics.sh", "--describe --unavailable-partitions")}}
	},
	"kafka_error":    one(Way{Title: "Do what the message says; see what else is wrong", Shell: "cdc-relay check --problems"}),
	"broker_too_old": brokers, "acks_refused": brokers,
	"message_format_unsupported": func(f *Facts) []Way {
		return []Way{{Title: "Raise the topic's format", Shell: f.topicConfig("message.format.version=2.1")}}
	},
	"compression_unsupported":     one(Way{Title: "Send without compression", Config: "kafka: {compression: none}", Restart: true}),
	"transaction_timeout_refused": one(Way{Title: "Raise the limit of the brokers", Config: "# server.properties of each broker\ntransaction.max.timeout.ms=30000"}),

	"slot_missing": func(f *Facts) []Way {
		made := f.anew("Make the slot again", "")
		if f.Streamed { // with this name
			return []Way{made}
		}
		return []Way{
			{Title: "Correct the name, if another slot has the rows: see which there are", SQL: "SELECT slot_name, active, confirmed_flush_lsn FROM pg_replication_slots;", Config: "postgres: {slot: NAME}", Restart: true},
			{Title: "For a new relay: make the slot", Shell: "cdc-relay setup", Restart: true, Stopped: true},
			made,
		}
	},
	"slot_lost": newSlot,
	"slot_unusable": func(*Facts) []Way {
		return []Way{{Title: "Use another name", SQL: "SELECT slot_name, plugin, slot_type, database FROM pg_replication_slots;", Config: "postgres: {slot: NAME}", Shell: "cdc-relay setup", Restart: true, Stopped: true}}
	},
	"slot_moved": one(Way{Title: "End what moved the slot, then restart; rows in between may be missing and have to be sent again", Restart: true, Loses: Later}),
	"confirmed_not_moving": func(f *Facts) []Way {
		return []Way{
			{Title: "See what PostgreSQL sends, and what it waits for", SQL: "SELECT pid, state, sent_lsn, flush_lsn, reply_time FROM pg_stat_replication;\nSELECT slot_name, active_pid, confirmed_flush_lsn, restart_lsn FROM pg_replication_slots WHERE slot_name = " + Literal(f.Slot) + ";"},
			{Title: "See whether the brokers and topics take records", Shell: "cdc-relay check --problems"},
			{Title: "Restart: the relay reads on from the confirmed position, and sends again what is not confirmed", Restart: true},
		}
	},
	"slot_ahead_of_checkpoint": one(Way{
		Title: "Send the rows between the two positions again later, and go on", Shell: "cdc-relay setup --accept-gap", Loses: Later, Restart: true, Stopped: true,
	}),
	"checkpoint_lost": one(Way{Title: "Restart: it goes on from the position in the topic", Restart: true}),
	"shards":          one(Way{Title: "Put postgres.shards back, or go on with the change", Shell: "cdc-relay setup --reshard-from NUMBER", Restart: true}),

	"parked_keys_full": one(Way{
		Title: "Correct the cause, then send all dead letters again", Shell: "cdc-relay deadletter list\ncdc-relay deadletter redrive --all --yes", Restart: true,
	}),
	"dead_letter_topic": func(f *Facts) []Way {
		return []Way{{Title: "Have the topic keep every dead letter", Shell: f.kafka("kafka-configs.sh", "--alter --entity-type topics --entity-name "+Word(f.DeadLetterTopic)+" --add-config cleanup.policy=delete,retention.ms=-1")}}
	},
	"checkpoint_topic": checkpoint, "checkpoint_refused": checkpoint, "checkpoint_unreadable": checkpoint,
	"backfill_progress":             one(Way{Title: "End the other backfill, then run it again", Shell: "cdc-relay backfill --yes"}),
	"part_of_another_configuration": one(Way{Title: "Restore the tables of the configuration until the transaction is past", Config: "outbox: […as before]", Restart: true}),

	"foreign_server": server, "foreign_timeline": server,
	"stale_primary": one(Way{Title: "Shut the old primary down, or make it a standby", Shell: "pg_rewind --target-pgdata=DIRECTORY --source-server='host=NEW-PRIMARY'"}),

	"publication_missing": func(f *Facts) []Way {
		if f.Streamed { // with this name
			return newSlot(f)
		}
		return append([]Way{{Title: "Correct the name, if another publication has the tables", SQL: "SELECT * FROM pg_publication_tables;", Config: "postgres: {publication: NAME}", Restart: true}}, newSlot(f)...)
	},
	"publication_changed": func(f *Facts) []Way {
		return []Way{{Title: "Repair the publication and restart; rows that were written meanwhile have to be sent again", Shell: "cdc-relay setup --dry-run", SQL: "SELECT * FROM pg_publication_tables WHERE pubname = " + Literal(f.Publication) + ";", Loses: Later, Restart: true}}
	},
	"table_unpublished": func(f *Facts) []Way {
		return []Way{{Title: "Publish the table; rows that were written meanwhile have to be sent again", SQL: "ALTER PUBLICATION " + Identifier(f.Publication) + " ADD TABLE " + f.table() + ";", Loses: Later, Restart: true}}
	},
	"table_missing": func(f *Facts) []Way {
		return []Way{{Title: "Correct the name, or create the table and publish it", SQL: "ALTER PUBLICATION " + Identifier(f.Publication) + " ADD TABLE " + f.table() + ";", Restart: true}}
	},
	"table_changed": func(f *Facts) []Way {
		return []Way{{Title: "Rename the table back, or put the new name into the configuration and publish it", SQL: "ALTER PUBLICATION " + Identifier(f.Publication) + " ADD TABLE " + f.table() + ";", Restart: true}}
	},

	"auth": one(Way{Title: "Correct the password or pg_hba.conf: logical replication needs a line for the database", SQL: "SELECT * FROM pg_hba_file_rules;"}),
	"permission": func(f *Facts) []Way {
		return []Way{{Title: "Grant what the message names, usually this", SQL: "ALTER ROLE " + Identifier(f.Role) + " REPLICATION;"}}
	},
	"database_missing": one(Way{Title: "Correct the database in the URL", Config: "postgres: {url: …}", Restart: true}),
	"wal_level":        one(Way{Title: "Have PostgreSQL write what logical decoding needs, and restart it", SQL: "ALTER SYSTEM SET wal_level = logical;"}),
	"server_version":   one(Way{Title: "Connect to PostgreSQL 14 or later itself", Config: "postgres: {url: …}", Restart: true}),
	"configuration":    one(Way{Title: "Correct what the message names; connect to the server without a pooler", Config: "postgres: {url: …}", Restart: true}),
	"insecure":         one(Way{Title: "Use TLS", Config: "postgres: {url: …?sslmode=verify-full}", Restart: true}),
	"server_limit":     one(Way{Title: "Raise what the message names, or end what nobody uses", SQL: "SELECT pid, application_name, client_addr, state FROM pg_stat_replication;"}),
	"server_error":     one(Way{Title: "Do what the message says; see what else is wrong", Shell: "cdc-relay check --problems"}),
	"undecodable":      one(Way{Title: "Repair the server, if its log names what is broken", Shell: "cdc-relay check --problems"}),
	"protocol":         one(Way{Title: "Connect to PostgreSQL directly, without a proxy", Config: "postgres: {url: …}", Restart: true}),

	"before_slot_unknown": one(Way{Title: "Say that the rows from before the slot are delivered, if you know it", Shell: "cdc-relay setup --before-slot delivered"}),
	"slot_behind":         one(Way{Title: "Let the relay catch up, then run it again", Shell: "cdc-relay status --until caught_up --timeout 10m && cdc-relay retention --once"}),
	"rows_skipped":        one(Way{Title: "Keep rejected rows as dead letters", Config: "relay: {on_reject: dead_letter}", Restart: true}),
	"dead_letters_unread": func(f *Facts) []Way {
		return []Way{
			{Title: "Let the relay read the dead-letter topic", Shell: f.acl("--operation Read --operation Describe --topic " + Word(f.DeadLetterTopic))},
			{Title: "If letters may be lost: say that their rows are delivered, when you know it", Shell: "cdc-relay setup --before-slot delivered"},
		}
	},
	"dead_letters_full": one(Way{Title: "Correct the cause, then send them again", Shell: "cdc-relay deadletter list\ncdc-relay deadletter redrive --all --yes"}),
	"no_index":          one(Way{Title: "Create the index: this prints the statement", Shell: "cdc-relay retention"}),
	"replica_identity": func(f *Facts) []Way {
		return []Way{{Title: "Let PostgreSQL publish deletes of the table", SQL: "ALTER TABLE " + f.table() + " REPLICA IDENTITY FULL;"}}
	},
	"replication_lag": one(Way{Title: "Delete more slowly", Config: "maintenance: {max_rows_per_second: 1000}"}),
	"lock_timeout":    one(Way{Title: "See who holds the lock, and run it again when that is over", SQL: "SELECT pid, state, query FROM pg_stat_activity WHERE wait_event_type = 'Lock';"}),
}

func invalidRecord(f *Facts) []Way {
	return []Way{
		{Title: "Take compact off the topic, where the key is null", Shell: f.topicConfig("cleanup.policy=delete")},
		{Title: "Map a key that is never null", Config: "outbox: [{columns: {key: COLUMN}}]", Restart: true},
	}
}

func sasl(*Facts) []Way {
	return []Way{{Title: "Correct user, secret, mechanism or port", Config: "kafka: {brokers: […], sasl: {mechanism: …, username: …, password_file: …}}", Restart: true}}
}

func brokers(*Facts) []Way {
	return []Way{{Title: "Upgrade the brokers to 2.1 or later, or connect to others", Config: "kafka: {brokers: […]}", Restart: true}}
}

func checkpoint(f *Facts) []Way {
	return []Way{{Title: "Make " + f.CheckpointTopic + " as it must be", Shell: "cdc-relay setup"}}
}

func server(*Facts) []Way {
	return []Way{
		{Title: "Correct the address, if it leads to the wrong server", SQL: "SELECT system_identifier FROM pg_control_system();", Config: "postgres: {url: …}", Restart: true},
		{Title: "Restart, if the database was moved there on purpose", Restart: true},
	}
}

func newSlot(f *Facts) []Way {
	return []Way{f.anew("Begin with a new slot", "cdc-relay teardown --yes\n")}
}

// anew makes a slot, after which the rows between the old one and it are still in the table.
func (f *Facts) anew(title, before string) Way {
	setup, since := "cdc-relay setup", f.Since
	if f.KeepsPositions {
		setup += " --accept-gap"
	}
	title += ", and send the rows since the confirmed position again from the table"
	if since == "" {
		since = "TIME"
		title += "; TIME is some minutes before the last row that was delivered, as in 2026-01-31T08:00:00Z: see the newest record in the topics, or the log"
	} else {
		title += "; take an earlier time if a transaction was open for longer than 5 min"
	}
	return Way{
		Title: title, Shell: before + setup + "\ncdc-relay replay --since " + since + " --complete-keys --yes",
		Loses: Later, Restart: true, Stopped: true,
	}
}

func (f Facts) complete() Facts {
	for _, of := range []struct {
		field *string
		word  string
	}{
		{&f.Slot, "SLOT"}, {&f.Publication, "PUBLICATION"}, {&f.Topic, "TOPIC"}, {&f.Position, "LSN"}, {&f.DeadLetterTopic, "DEAD-LETTER-TOPIC"},
		{&f.CheckpointTopic, "the checkpoint topic"}, {&f.Brokers, "BROKER:9092"}, {&f.Principal, "User:RELAY"}, {&f.Role, "RELAY"},
	} {
		if *of.field == "" {
			*of.field = of.word
		}
	}
	return f
}

const (
	kib       = 1 << 10
	limitStep = 256 * kib
)

// room is a round size that the record fits into, with what the batch adds.
func (f *Facts) room() int { return (f.Bytes + f.Bytes/8 + limitStep) / limitStep * limitStep }

func (f *Facts) limit() string {
	if f.Bytes == 0 {
		return "BYTES"
	}
	return strconv.Itoa(f.room())
}

func (f *Facts) limitKiB() string {
	if f.Bytes == 0 {
		return "SIZE"
	}
	return strconv.Itoa(f.room()/kib) + "KiB"
}

func (f *Facts) kafka(program, args string) string {
	program += " --bootstrap-server " + Word(f.Brokers)
	if f.Secured {
		program += " --command-config ADMIN.PROPERTIES"
	}
	return program + " " + args
}

func (f *Facts) topicConfig(settings string) string {
	return f.kafka("kafka-configs.sh", "--alter --entity-type topics --entity-name "+Word(f.Topic)+" --add-config "+settings)
}

func (f *Facts) acl(of string) string {
	return f.kafka("kafka-acls.sh", "--add --allow-principal "+Word(f.Principal)+" "+of)
}

// configTable is the table at hand for the configuration.
func (f *Facts) configTable() string {
	if len(f.Tables) == 1 {
		return f.Tables[0]
	}
	if f.Table != "" && !strings.ContainsAny(f.Table, "\"' :#{}[],") {
		return f.Table
	}
	return "SCHEMA.TABLE"
}

// table is the table at hand, or all.
func (f *Facts) table() string {
	if schema, name, found := strings.Cut(f.Table, "."); found {
		return Identifier(schema) + "." + Identifier(name)
	}
	if len(f.Tables) > 0 {
		return strings.Join(f.Tables, ", ")
	}
	return "SCHEMA.TABLE"
}
