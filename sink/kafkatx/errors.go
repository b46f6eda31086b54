package kafkatx

import (
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// commitError is a commit that was not confirmed.
type commitError struct{ err error }

func (e *commitError) Error() string { return fmt.Sprintf("commit transaction: %v", e.err) }
func (e *commitError) Unwrap() error { return e.err }

// checkpointError is a checkpoint record that was not taken.
type checkpointError struct {
	topic string
	err   error
}

func (e *checkpointError) Error() string {
	return fmt.Sprintf("write checkpoint to topic %q: %v", e.topic, e.err)
}
func (e *checkpointError) Unwrap() error { return e.err }

// notAttempted reports whether the brokers were not asked to commit, or refused to.
func notAttempted(err error) bool {
	return errors.Is(err, kerr.OperationNotAttempted) || errors.Is(err, kerr.TransactionAbortable)
}

// fencing are the answers to a producer whose epoch is over. Whoever opened the same
// transactional id ended it, or the coordinator when the transaction timed out.
var fencing = []error{kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.TransactionCoordinatorFenced}

// ended are the answers to a producer whose transaction the coordinator gave up.
var ended = []error{
	kerr.InvalidTxnState, kerr.TransactionAbortable, kerr.InvalidProducerIDMapping, kerr.UnknownProducerID,
	kerr.OperationNotAttempted, kerr.OutOfOrderSequenceNumber, kerr.ConcurrentTransactions,
}

func isAny(err error, of []error) bool {
	for _, each := range of {
		if errors.Is(err, each) {
			return true
		}
	}
	return false
}

// classify sorts an error of a transaction, which was open for age.
func (t *Sink) classify(err error, age time.Duration) *sink.Error {
	switch {
	case isAny(err, fencing) && age < t.cfg.Timeout:
		return &sink.Error{Class: sink.Blocked, Reason: fault.ReasonFenced, Err: advice.Give(err, "another relay streams from a slot of the same name and cluster: stop one of them, or give them slots of their own")}
	case isAny(err, fencing), isAny(err, ended):
		return &sink.Error{Class: sink.Retry, Reason: fault.ReasonTransactionEnded, Err: fmt.Errorf("the brokers gave the transaction up: %w", err)}
	}
	if errors.Is(err, errNotSealed) {
		return &sink.Error{Class: sink.Retry, Reason: fault.ReasonHeldBack, Err: err}
	}
	if _, ok := errors.AsType[*commitError](err); ok {
		if e := broker.Classify(errors.Unwrap(err)); e.Class == sink.Blocked && e.Reason != fault.ReasonKafkaError {
			return e
		}
		return &sink.Error{Class: sink.Retry, Reason: fault.ReasonCommitUnknown, Err: fmt.Errorf("the brokers did not say how the transaction ended; the next start reads it from the checkpoint topic: %w", err)}
	}
	if own, ok := errors.AsType[*checkpointError](err); ok {
		e := broker.Classify(own.err)
		switch {
		case errors.Is(own.err, kerr.TopicAuthorizationFailed):
			return &sink.Error{Class: sink.Blocked, Reason: e.Reason, Err: advice.Give(err, "grant the relay's principal READ, WRITE and DESCRIBE on the checkpoint topic: "+topics.GrantCheckpoints(own.topic))}
		case errors.Is(own.err, kerr.UnknownTopicOrPartition):
			return &sink.Error{Class: sink.Blocked, Reason: fault.ReasonCheckpointTopic, Err: advice.Give(err, "run `cdc-relay setup`")}
		case e.Class == sink.Rejected:
			return &sink.Error{Class: sink.Blocked, Reason: fault.ReasonCheckpointRefused, Err: advice.Give(err, "the topic has to take records of 1 KiB")}
		}
		return &sink.Error{Class: e.Class, Reason: e.Reason, Err: err}
	}
	return broker.Classify(err)
}

// failure describes the failure of a record.
func (t *Sink) failure(topic string, err error, age time.Duration) sink.Failure {
	if errors.Is(err, sink.ErrHalted) || errors.Is(err, sink.ErrClosed) {
		return t.Failure(topic, err)
	}
	_, commit := errors.AsType[*commitError](err)
	_, own := errors.AsType[*checkpointError](err)
	if commit || own || errors.Is(err, errNotSealed) || isAny(err, fencing) || isAny(err, ended) {
		e := t.classify(err, age)
		return sink.Failure{Class: e.Class, Reason: e.Reason, Err: e.Err}
	}
	return t.Failure(topic, err)
}

// explain names why a transaction was not committed.
func (t *Sink) explain(cause error, failed map[*kgo.Record]error, age time.Duration) *sink.Error {
	if errors.Is(cause, sink.ErrHalted) {
		for _, err := range failed {
			if !errors.Is(err, sink.ErrHalted) {
				cause = err
			}
		}
	}
	return t.classify(cause, age)
}
