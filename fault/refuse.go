package fault

import (
	"errors"

	"github.com/cdc-relay/cdc-relay/advice"
)

// Refuse sorts what a server answered to a command other than run: a configuration that cannot
// be used is the caller's, all else a person's who looks after the server.
func Refuse(err error) error {
	if e, ok := errors.AsType[*Error](err); ok && e.Reason == ReasonConfiguration {
		return &advice.Usage{Err: err}
	}
	return &advice.Refused{Err: err}
}
