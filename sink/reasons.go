package sink

// Reasons of failures that pass, or that a new try gets over.
const (
	ReasonNetwork                  = "network"          // no broker answers
	ReasonClosed                   = "closed"           // the sink was closed
	ReasonHeldBack                 = "held_back"        // a neighbour: an earlier record failed
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
)

// Reasons for which a record is rejected.
const (
	ReasonRecordTooLarge   = "record_too_large"
	ReasonInvalidRecord    = "invalid_record"
	ReasonInvalidTimestamp = "invalid_timestamp"
	ReasonInvalidPartition = "invalid_partition"
	ReasonCorruptMessage   = "corrupt_message"
	ReasonInvalidTopic     = "invalid_topic"
)

// Reasons for which somebody has to change the brokers, or the configuration.
const (
	ReasonUnknownTopic                       = "unknown_topic"
	ReasonTopicAuthorizationFailed           = "topic_authorization_failed"
	ReasonClusterAuthorizationFailed         = "cluster_authorization_failed"
	ReasonTransactionalIDAuthorizationFailed = "transactional_id_authorization_failed"
	ReasonPolicyViolation                    = "policy_violation"
	ReasonTLS                                = "tls"
	ReasonSASLAuthenticationFailed           = "sasl_authentication_failed"
	ReasonSASLMechanismUnsupported           = "sasl_mechanism_unsupported"
	ReasonSASLRefused                        = "sasl_refused"
	ReasonSASLSecret                         = "sasl_secret"
	ReasonMessageFormatUnsupported           = "message_format_unsupported"
	ReasonBrokerTooOld                       = "broker_too_old"
	ReasonCompressionUnsupported             = "compression_unsupported"
	ReasonAcksRefused                        = "acks_refused"
	ReasonTransactionTimeoutRefused          = "transaction_timeout_refused"
	ReasonKafkaError                         = "kafka_error" // an answer that has no reason of its own
)

// Reasons of failures that only transactions have.
const (
	ReasonFenced            = "fenced"             // somebody else opened the same transactional id
	ReasonTransactionEnded  = "transaction_ended"  // the brokers gave the transaction up
	ReasonCommitUnknown     = "commit_unknown"     // whether the transaction was committed was not answered
	ReasonCheckpointTopic   = "checkpoint_topic"   // it is missing or not as it must be
	ReasonCheckpointRefused = "checkpoint_refused" // the brokers do not take our records there
	ReasonCheckpointHidden  = "checkpoint_hidden"  // somebody else's open transaction lies before the end of the topic
)

// ReasonLettersHidden is that of a topic which is not read to its end, because what lies
// there is hidden behind a Kafka transaction that is not over.
const ReasonLettersHidden = "dead_letters_hidden"

// ReasonMetadataStale is that of a broker which does not know a topic that is there.
const ReasonMetadataStale = "metadata_stale"
