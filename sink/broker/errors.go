package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// answer says what a broker's error code means for the record.
type answer struct {
	class  sink.Class
	reason string
	next   string // what somebody has to do
}

// answers are the codes whose class, reason or next step does not follow from kerr.Error alone
// (answered).
var answers = map[int16]answer{
	kerr.MessageTooLarge.Code:       {sink.Rejected, fault.ReasonRecordTooLarge, "raise max.message.bytes of the topic (or message.max.bytes of the brokers)"},
	kerr.RecordListTooLarge.Code:    {sink.Rejected, fault.ReasonRecordTooLarge, "raise segment.bytes of the topic, or lower kafka.max_message_bytes"},
	kerr.InvalidRecord.Code:         {sink.Rejected, fault.ReasonInvalidRecord, "a compacted topic takes no record without a key: map columns.key to a column that is NOT NULL; see the broker's log for what else it checks"},
	kerr.InvalidTimestamp.Code:      {sink.Rejected, fault.ReasonInvalidTimestamp, "the record's timestamp is outside message.timestamp.before.max.ms or .after.max.ms of the topic: raise them, or correct the column of columns.timestamp"},
	kerr.CorruptMessage.Code:        {sink.Rejected, fault.ReasonCorruptMessage, "the broker rejects the batch; a compacted topic takes no record without a key: map columns.key to a column that is NOT NULL"},
	kerr.InvalidTopicException.Code: {sink.Rejected, fault.ReasonInvalidTopic, "the broker rejects the topic's name: correct outbox[].topic"},

	kerr.TopicAuthorizationFailed.Code:           {sink.Blocked, fault.ReasonTopicAuthorizationFailed, "grant the relay's principal WRITE and DESCRIBE on the topic"},
	kerr.ClusterAuthorizationFailed.Code:         {sink.Blocked, fault.ReasonClusterAuthorizationFailed, "grant the relay's principal WRITE on the topics it sends to; before Kafka 2.8 also IDEMPOTENT_WRITE on the cluster"},
	kerr.TransactionalIDAuthorizationFailed.Code: {sink.Blocked, fault.ReasonTransactionalIDAuthorizationFailed, "grant the relay's principal WRITE and DESCRIBE on the transactional id"},
	kerr.UnknownTopicOrPartition.Code:            {sink.Blocked, fault.ReasonUnknownTopic, "create the topic, or set kafka.create_topics.enabled: true"},
	kerr.PolicyViolation.Code:                    {sink.Blocked, fault.ReasonPolicyViolation, "a policy of the cluster refuses it; see the broker's log"},
	kerr.SaslAuthenticationFailed.Code:           {sink.Blocked, fault.ReasonSASLAuthenticationFailed, "check user, secret and mechanism of kafka.sasl"},
	kerr.UnsupportedSaslMechanism.Code:           {sink.Blocked, fault.ReasonSASLMechanismUnsupported, "set kafka.sasl.mechanism to one that the broker offers"},
	kerr.IllegalSaslState.Code:                   {sink.Blocked, fault.ReasonSASLRefused, "the broker does not expect SASL on this port; use its SASL listener, or remove kafka.sasl"},
	kerr.DelegationTokenAuthorizationFailed.Code: {sink.Blocked, fault.ReasonSASLAuthenticationFailed, "check user, secret and mechanism of kafka.sasl"},
	kerr.UnsupportedForMessageFormat.Code:        {sink.Blocked, fault.ReasonMessageFormatUnsupported, "the topic's message format is too old for idempotent producers; raise message.format.version"},
	kerr.UnsupportedVersion.Code:                 {sink.Blocked, fault.ReasonBrokerTooOld, "the relay needs Kafka 2.1 or later: update the brokers"},
	kerr.UnsupportedCompressionType.Code:         {sink.Blocked, fault.ReasonCompressionUnsupported, "set kafka.compression to a codec that the broker takes"},
	kerr.InvalidRequiredAcks.Code:                {sink.Blocked, fault.ReasonAcksRefused, "the broker refuses acks=all, without which nothing is safe: see its log"},

	// The topic was deleted and recreated. The sink repairs its client, so that
	// the next try finds the new topic, or none: then it is unknown_topic.
	kerr.UnknownTopicID.Code: {sink.Retry, fault.ReasonTopicRecreated, "the topic was deleted, and perhaps recreated; the next try uses the current one"},

	kerr.OutOfOrderSequenceNumber.Code: {sink.Retry, fault.ReasonOutOfOrderSequenceNumber, ""},
	kerr.UnknownProducerID.Code:        {sink.Retry, fault.ReasonUnknownProducerID, ""},
	kerr.InvalidProducerEpoch.Code:     {sink.Retry, fault.ReasonInvalidProducerEpoch, ""},
	kerr.InvalidProducerIDMapping.Code: {sink.Retry, fault.ReasonInvalidProducerIDMapping, ""},
	kerr.UnknownServerError.Code:       {sink.Retry, fault.ReasonUnknownServerError, ""},
}

// Classify names an error of the client or of the connection to a broker.
func Classify(err error) *sink.Error {
	var code *kerr.Error
	var own sink.Classified
	switch {
	case errors.Is(err, sink.ErrClosed), errors.Is(err, kgo.ErrClientClosed):
		return &sink.Error{Class: sink.Retry, Reason: fault.ReasonClosed, Err: err}
	case errors.Is(err, sink.ErrHalted):
		return &sink.Error{Class: sink.Retry, Reason: fault.ReasonHeldBack, Err: err}
	case errors.As(err, &own):
		return own.WrappedBy(err)
	case errors.As(err, &code):
		return answered(code, err)
	}
	return classifyNetwork(err)
}

func answered(code *kerr.Error, err error) *sink.Error {
	a, ok := answers[code.Code]
	switch {
	case ok && a.next != "":
		return &sink.Error{Class: a.class, Reason: a.reason, Err: advice.Give(err, a.next)}
	case ok:
		return &sink.Error{Class: a.class, Reason: a.reason, Err: err}
	case code.Retriable:
		return &sink.Error{Class: sink.Retry, Reason: strings.ToLower(code.Message), Err: err}
	}
	return &sink.Error{Class: sink.Blocked, Reason: fault.ReasonKafkaError, Err: advice.Give(err, "see the broker's log")}
}

func classifyNetwork(err error) *sink.Error {
	var eof *kgo.ErrFirstReadEOF
	var refused *refusedError
	switch {
	case errors.As(err, &refused):
		return &sink.Error{Class: sink.Retry, Reason: fault.ReasonSASLInterrupted, Err: err}
	case strings.Contains(err.Error(), "tls alert record"): // the client's words, it has no type for it
		return &sink.Error{Class: sink.Blocked, Reason: fault.ReasonTLS, Err: fmt.Errorf("%w; the broker speaks TLS on this port: set kafka.tls.enabled", err)}
	case strings.Contains(err.Error(), "invalid large response size"), strings.Contains(err.Error(), "invalid negative response size"): // the client has no type for these either
		return &sink.Error{Class: sink.Blocked, Reason: fault.ReasonKafkaError, Err: advice.Give(err, "something other than Kafka answers there: correct kafka.brokers")}
	case strings.Contains(err.Error(), "broker is too old"): // nor for this one
		return &sink.Error{Class: sink.Blocked, Reason: fault.ReasonBrokerTooOld, Err: advice.Give(err, answers[kerr.UnsupportedVersion.Code].next)}
	case errors.As(err, &eof): // brokers hang up on whoever does not authenticate, and when they stop
		return &sink.Error{Class: sink.Retry, Reason: fault.ReasonNetwork, Err: advice.Give(err, "if the brokers run, set kafka.sasl or kafka.tls as the listener needs it")}
	case kgo.IsRetryableBrokerErr(err), errors.Is(err, context.DeadlineExceeded), isNetwork(err):
		return &sink.Error{Class: sink.Retry, Reason: fault.ReasonNetwork, Err: err}
	}
	return &sink.Error{Class: sink.Blocked, Reason: fault.ReasonKafkaError, Err: err}
}

func isNetwork(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) // every net.Error, dial errors and unknown hosts among them
}
