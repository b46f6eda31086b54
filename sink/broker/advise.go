package broker

import (
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/sink"
)

// AdviseReachable adds the next step where brokers cannot be reached and the error has none.
func AdviseReachable(err error) error {
	e, ok := errors.AsType[*sink.Error](err)
	if !ok || e.Class != sink.Retry || e.Reason != fault.ReasonNetwork {
		return err
	}
	if _, next := advice.Split(err); next != "" {
		return err
	}
	return fmt.Errorf("%w; start the brokers, or correct kafka.brokers, and repeat it: `cdc-relay check` says which of them answer", err)
}
