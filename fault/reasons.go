package fault

// Why a row, a session or the relay cannot continue. A reason is a value in the status, in logs
// and in dead letters, a label of metrics, and the heading of an entry of the runbook
// (docs/operations.md). So it never changes its text, and every reason of the module is here.

// Reasons that PostgreSQL or its stream gives. They are those of an Error.
const (
	ReasonAuth               = "auth"
	ReasonCancelled          = "cancelled"
	ReasonConfiguration      = "configuration"
	ReasonDatabaseMissing    = "database_missing"
	ReasonInRecovery         = "in_recovery"
	ReasonInsecure           = "insecure"
	ReasonNetwork            = "network" // no server answers, or no broker
	ReasonPermission         = "permission"
	ReasonProtocol           = "protocol"
	ReasonPublicationChanged = "publication_changed"
	ReasonPublicationMissing = "publication_missing"
	ReasonRowTooLarge        = "row_too_large"
	ReasonServerError        = "server_error"
	ReasonServerLimit        = "server_limit"
	ReasonServerShutdown     = "server_shutdown"
	ReasonServerVersion      = "server_version"
	ReasonShards             = "shards"
	ReasonSlotInUse          = "slot_in_use"
	ReasonSlotLost           = "slot_lost"
	ReasonSlotMissing        = "slot_missing"
	ReasonSlotUnusable       = "slot_unusable"
	ReasonTableChanged       = "table_changed"
	ReasonTableMissing       = "table_missing"
	ReasonTableUnpublished   = "table_unpublished"
	ReasonTimeout            = "timeout"
	ReasonTLS                = "tls" // also of a broker
	ReasonUndecodable        = "undecodable"
	ReasonWALLevel           = "wal_level"
)

// Reasons for which a server or a slot is not the one that the relay streamed from, and for
// which a position in Kafka is not gone on from.
const (
	ReasonForeignServer        = "foreign_server"
	ReasonForeignTimeline      = "foreign_timeline"
	ReasonStalePrimary         = "stale_primary"
	ReasonSlotMoved            = "slot_moved"
	ReasonConfirmedNotMoving   = "confirmed_not_moving" // the slot's confirmed position stands still although WAL or rows wait
	ReasonSlotAhead            = "slot_ahead_of_checkpoint"
	ReasonCheckpointUnreadable = "checkpoint_unreadable"
	ReasonCheckpointLost       = "checkpoint_lost"
	ReasonPartChanged          = "part_of_another_configuration"
)

// Reasons for which no record can be made of a row.
const (
	ReasonSchema  = "schema"  // the table no longer has what the mapping needs
	ReasonMapping = "mapping" // a value that the mapping needs is null or malformed
	ReasonRoute   = "route"   // no legal topic name comes out
	ReasonEncode  = "encode"  // the payload cannot be put into the configured format
)

// Reasons for which the brokers reject one record.
const (
	ReasonRecordTooLarge   = "record_too_large"
	ReasonInvalidRecord    = "invalid_record"
	ReasonInvalidTimestamp = "invalid_timestamp"
	ReasonInvalidPartition = "invalid_partition"
	ReasonCorruptMessage   = "corrupt_message"
	ReasonInvalidTopic     = "invalid_topic"
)

// Reasons for which a schema is not there. No row is at fault.
const (
	ReasonRegistryUnreachable = "registry_unreachable"
	ReasonRegistryRefused     = "registry_refused" // password, token or rights
	ReasonRegistryAnswer      = "registry_answer"  // the answer is not a registry's
	ReasonUnknownSubject      = "unknown_subject"
	ReasonSchemaUnusable      = "schema_unusable"
)

// Reasons of failures to produce that pass, or that a new try gets over.
const (
	ReasonKafkaUnreachable         = "kafka_unreachable"
	ReasonKafkaNotAcknowledging    = "kafka_not_acknowledging"
	ReasonClosed                   = "closed"           // the sink was closed
	ReasonHeldBack                 = "held_back"        // an earlier record failed
	ReasonOvertaken                = "overtaken"        // durable before an earlier record that failed
	ReasonRefusedTogether          = "refused_together" // rejected together, but none alone
	ReasonInterrupted              = "interrupted"      // the caller stopped waiting
	ReasonTopicRecreated           = "topic_recreated"
	ReasonTLSHandshake             = "tls_handshake"
	ReasonSASLInterrupted          = "sasl_interrupted"
	ReasonOutOfOrderSequenceNumber = "out_of_order_sequence_number"
	ReasonUnknownProducerID        = "unknown_producer_id"
	ReasonInvalidProducerEpoch     = "invalid_producer_epoch"
	ReasonInvalidProducerIDMapping = "invalid_producer_id_mapping"
	ReasonUnknownServerError       = "unknown_server_error"
	ReasonMetadataStale            = "metadata_stale"      // a broker does not know a topic that exists
	ReasonLettersHidden            = "dead_letters_hidden" // an open Kafka transaction lies before the end of the topic
	ReasonRecordsHidden            = "records_hidden"      // the same, of a topic that an audit reads
)

// Reasons for which somebody has to change the brokers, or the configuration.
const (
	ReasonUnknownTopic                       = "unknown_topic"
	ReasonTopicAuthorizationFailed           = "topic_authorization_failed"
	ReasonClusterAuthorizationFailed         = "cluster_authorization_failed"
	ReasonTransactionalIDAuthorizationFailed = "transactional_id_authorization_failed"
	ReasonPolicyViolation                    = "policy_violation"
	ReasonSASLAuthenticationFailed           = "sasl_authentication_failed"
	ReasonSASLMechanismUnsupported           = "sasl_mechanism_unsupported"
	ReasonSASLRefused                        = "sasl_refused"
	ReasonSASLSecret                         = "sasl_secret"
	ReasonMessageFormatUnsupported           = "message_format_unsupported"
	ReasonBrokerTooOld                       = "broker_too_old"
	ReasonCompressionUnsupported             = "compression_unsupported"
	ReasonAcksRefused                        = "acks_refused"
	ReasonTransactionTimeoutRefused          = "transaction_timeout_refused"
	ReasonDeadLetterTopic                    = "dead_letter_topic" // it does not keep every dead letter
	ReasonParkedKeysFull                     = "parked_keys_full"  // no further key can be parked
	ReasonKafkaError                         = "kafka_error"       // an answer without a reason of its own
)

// Reasons of failures that only exactly-once has.
const (
	ReasonFenced            = "fenced"             // another producer opened the same transactional id
	ReasonTransactionEnded  = "transaction_ended"  // the brokers aborted the transaction
	ReasonCommitUnknown     = "commit_unknown"     // the brokers did not answer whether the transaction is committed
	ReasonCheckpointTopic   = "checkpoint_topic"   // it is missing, or not as it must be
	ReasonGivenUp           = "given_up"           // rows that a polling publisher gave up
	ReasonRecordsDiffer     = "records_differ"     // the relay would send other records than the publisher sent
	ReasonCutoverTrigger    = "cutover_trigger"    // the trigger of a cutover is not as it was made
	ReasonBackfillProgress  = "backfill_progress"  // it is gone from the topic, or another backfill wrote it
	ReasonCheckpointRefused = "checkpoint_refused" // the brokers reject the relay's records there
	ReasonCheckpointHidden  = "checkpoint_hidden"  // another producer's open transaction lies before the end of the topic
)

// Reasons for which rows are not proven delivered, or stay although they are.
const (
	ReasonBeforeSlotUnknown = "before_slot_unknown" // nobody knows whether rows from before the slot are delivered
	ReasonSlotBehind        = "slot_behind"         // a slot has not passed the rows in time
	ReasonRowsSkipped       = "rows_skipped"        // rows were left out, and nothing names them
	ReasonDeadLettersUnread = "dead_letters_unread" // their topic could not be read to its end
	ReasonDeadLettersFull   = "dead_letters_full"   // more wait than can be held against the rows
	ReasonNoIndex           = "no_index"
	ReasonReplicaIdentity   = "replica_identity" // a publication makes the delete fail
	ReasonReplicationLag    = "replication_lag"  // a standby server is behind
	ReasonLockTimeout       = "lock_timeout"
	ReasonExportFailed      = "export_failed"      // rows could not be written to files
	ReasonPartitionBusy     = "partition_busy"     // others hold it, or a slot did not pass it while it was locked
	ReasonPartitionUnlogged = "partition_unlogged" // no slot has its rows, and it is left alone
	ReasonMaintenanceInUse  = "maintenance_in_use" // another process works on the table
)
