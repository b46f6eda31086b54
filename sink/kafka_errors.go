package sink

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/router"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Error is a failure that concerns the brokers, with what has to happen next.
type Error struct {
	Class  Class
	Reason string // snake_case, as in Failure
	Err    error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

var errOvertaken = errors.New("became durable before a failed record of its partition; it is sent again behind it")

// noPartitionError is a record whose explicit partition the topic does not have.
type noPartitionError struct{ partition int32 }

func (e *noPartitionError) Error() string {
	return fmt.Sprintf("partition %d does not exist; add partitions to the topic or correct the row's partition column", e.partition)
}

// sizeError is a record that is over the limit of the configuration.
type sizeError struct{ size, limit int }

func (e *sizeError) Error() string {
	return fmt.Sprintf("record takes %d bytes in a batch, the limit is %d; raise kafka.max_message_bytes and restart the relay, and raise max.message.bytes of the topic, or store less in the row", e.size, e.limit)
}

// interruptedError is the end of the caller's patience.
type interruptedError struct{ err error }

func (e *interruptedError) Error() string { return fmt.Sprintf("wait for room in the sink: %v", e.err) }
func (e *interruptedError) Unwrap() error { return e.err }

func interrupted(ctx context.Context) error { return &interruptedError{context.Cause(ctx)} }

// advised is a failure with what to do about it.
type advised struct {
	err  error
	next string
}

// Error ends the cause where the advice begins: the brokers' texts end with a full stop.
func (e *advised) Error() string { return strings.TrimSuffix(e.err.Error(), ".") + "; " + e.next }
func (e *advised) Unwrap() error { return e.err }

func advise(err error, next string) error { return &advised{err, next} }

// innocent says that a record failed only because the sink halted or closed.
func innocent(err error) bool {
	return errors.Is(err, errAborted) || errors.Is(err, context.Canceled) ||
		errors.Is(err, kgo.ErrAborting) || errors.Is(err, kgo.ErrClientClosed)
}

// answer says what a broker's error code means for the record.
type answer struct {
	class  Class
	reason string
	next   string // what somebody has to do
}

// answers are the codes that mean something else than: send it again.
var answers = map[int16]answer{
	kerr.MessageTooLarge.Code:       {Rejected, "record_too_large", "raise max.message.bytes of the topic (or message.max.bytes of the brokers); a relay that is blocked by it then goes on by itself"},
	kerr.RecordListTooLarge.Code:    {Rejected, "record_too_large", "raise segment.bytes of the topic, or lower kafka.max_message_bytes"},
	kerr.InvalidRecord.Code:         {Rejected, "invalid_record", "a compacted topic takes no record without a key: map columns.key to a column that is NOT NULL; see the broker's log for what else it checks"},
	kerr.InvalidTimestamp.Code:      {Rejected, "invalid_timestamp", "the record's timestamp is outside message.timestamp.before.max.ms or .after.max.ms of the topic: raise them, or correct the column of columns.timestamp"},
	kerr.CorruptMessage.Code:        {Rejected, "corrupt_message", "the broker refuses the batch; a compacted topic takes no record without a key: map columns.key to a column that is NOT NULL"},
	kerr.InvalidTopicException.Code: {Rejected, "invalid_topic", "the broker refuses the topic's name: correct outbox[].topic"},

	kerr.TopicAuthorizationFailed.Code:           {Blocked, "topic_authorization_failed", "grant the relay's principal WRITE and DESCRIBE on the topic"},
	kerr.ClusterAuthorizationFailed.Code:         {Blocked, "cluster_authorization_failed", "grant the relay's principal WRITE on the topics it sends to; before Kafka 2.8 also IDEMPOTENT_WRITE on the cluster"},
	kerr.TransactionalIDAuthorizationFailed.Code: {Blocked, "transactional_id_authorization_failed", "grant the relay's principal WRITE and DESCRIBE on the transactional id"},
	kerr.UnknownTopicOrPartition.Code:            {Blocked, "unknown_topic", "create the topic, or set kafka.create_topics.enabled: true"},
	kerr.PolicyViolation.Code:                    {Blocked, "policy_violation", "a policy of the cluster refuses it; see the broker's log"},
	kerr.SaslAuthenticationFailed.Code:           {Blocked, "sasl_authentication_failed", "check user, secret and mechanism of kafka.sasl"},
	kerr.UnsupportedSaslMechanism.Code:           {Blocked, "sasl_mechanism_unsupported", "set kafka.sasl.mechanism to one that the broker offers"},
	kerr.IllegalSaslState.Code:                   {Blocked, "sasl_refused", "the broker does not expect SASL on this port; use its SASL listener, or remove kafka.sasl"},
	kerr.DelegationTokenAuthorizationFailed.Code: {Blocked, "sasl_authentication_failed", "check user, secret and mechanism of kafka.sasl"},
	kerr.UnsupportedForMessageFormat.Code:        {Blocked, "message_format_unsupported", "the topic's message format is too old for idempotent producers; raise message.format.version"},
	kerr.UnsupportedVersion.Code:                 {Blocked, "broker_too_old", "the relay needs Kafka 2.1 or later: update the brokers"},
	kerr.UnsupportedCompressionType.Code:         {Blocked, "compression_unsupported", "set kafka.compression to a codec that the broker takes"},
	kerr.InvalidRequiredAcks.Code:                {Blocked, "acks_refused", "the broker refuses acks=all, without which nothing is safe: see its log"},

	// The topic was deleted and made again. The sink repairs its client, so that
	// the next try finds the new topic, or none: then it is unknown_topic.
	kerr.UnknownTopicID.Code: {Retry, "topic_recreated", "the topic was deleted, and perhaps made again; the next try goes to the one there is now"},

	kerr.OutOfOrderSequenceNumber.Code: {Retry, "out_of_order_sequence_number", ""},
	kerr.UnknownProducerID.Code:        {Retry, "unknown_producer_id", ""},
	kerr.InvalidProducerEpoch.Code:     {Retry, "invalid_producer_epoch", ""},
	kerr.InvalidProducerIDMapping.Code: {Retry, "invalid_producer_id_mapping", ""},
	kerr.UnknownServerError.Code:       {Retry, "unknown_server_error", ""},
}

// classify names an error of the client or of the connection to a broker.
func classify(err error) *Error {
	var code *kerr.Error
	var size *sizeError
	var clock *timeError
	var partition *noPartitionError
	var handshake *tlsError
	var secret *secretError
	var patience *interruptedError
	switch {
	case errors.Is(err, ErrClosed), errors.Is(err, kgo.ErrClientClosed):
		return &Error{Retry, "closed", err}
	case errors.Is(err, ErrHalted):
		return &Error{Retry, "held_back", err}
	case errors.Is(err, errOvertaken):
		return &Error{Retry, "overtaken", err}
	case errors.As(err, &patience):
		return &Error{Retry, "interrupted", err}
	case errors.As(err, &size):
		return &Error{Rejected, "record_too_large", err}
	case errors.As(err, &clock):
		return &Error{Rejected, "invalid_timestamp", err}
	case errors.As(err, &partition):
		return &Error{Rejected, "invalid_partition", err}
	case errors.As(err, &handshake):
		return handshake.classify()
	case errors.As(err, &secret):
		return secret.classify()
	case errors.As(err, &code):
		return answered(code, err)
	}
	return classifyNetwork(err)
}

func answered(code *kerr.Error, err error) *Error {
	a, ok := answers[code.Code]
	switch {
	case ok && a.next != "":
		return &Error{a.class, a.reason, advise(err, a.next)}
	case ok:
		return &Error{a.class, a.reason, err}
	case code.Retriable:
		return &Error{Retry, strings.ToLower(code.Message), err}
	}
	return &Error{Blocked, "kafka_error", advise(err, "see the broker's log")}
}

func classifyNetwork(err error) *Error {
	var eof *kgo.ErrFirstReadEOF
	var refused *refusedError
	switch {
	case errors.As(err, &refused):
		return &Error{Retry, "sasl_interrupted", err}
	case strings.Contains(err.Error(), "tls alert record"): // the client's words, it has no type for it
		return &Error{Blocked, "tls", fmt.Errorf("%w; the broker speaks TLS on this port: set kafka.tls.enabled", err)}
	case strings.Contains(err.Error(), "invalid large response size"), strings.Contains(err.Error(), "invalid negative response size"): // nor for these
		return &Error{Blocked, "kafka_error", advise(err, "something other than Kafka answers there: correct kafka.brokers")}
	case errors.As(err, &eof): // brokers hang up on who does not authenticate, and when they stop
		return &Error{Retry, "network", advise(err, "if the brokers run, set kafka.sasl or kafka.tls as the listener needs it")}
	case kgo.IsRetryableBrokerErr(err), errors.Is(err, context.DeadlineExceeded), isNetwork(err):
		return &Error{Retry, "network", err}
	}
	return &Error{Blocked, "kafka_error", err}
}

func isNetwork(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) // every net.Error, dial errors and unknown hosts among them
}

// failure puts the cause of one record's failure into words.
func (k *Kafka) failure(topic string, err error) Failure {
	if errors.Is(err, ErrHalted) {
		return Failure{Class: Retry, Reason: "held_back", Err: ErrHalted}
	}
	if errors.Is(err, ErrClosed) {
		return Failure{Class: Retry, Reason: "closed", Err: ErrClosed}
	}
	e := classify(err)
	if e.Reason == "unknown_topic" && k.cfg.CreateTopics.Enabled {
		e = k.missing(topic, err)
	}
	return Failure{Class: e.Class, Reason: e.Reason, Err: fmt.Errorf("produce to topic %q: %w", topic, e.Err)}
}

// batchSize is the size of a batch that holds nothing but the record, as brokers
// hold it against max.message.bytes, before compression.
func batchSize(r *router.Record) int {
	const overhead = 61 // base offset to record count, magic 2
	n := 1 + 1 + 1      // attributes, timestamp delta, offset delta
	n += fieldSize(len(r.Key)) + fieldSize(len(r.Value)) + kbin.VarintLen(int32(len(r.Headers)))
	for i := range r.Headers {
		n += fieldSize(len(r.Headers[i].Key)) + fieldSize(len(r.Headers[i].Value))
	}
	return overhead + fieldSize(n)
}

func fieldSize(n int) int { return kbin.VarintLen(int32(n)) + n }
