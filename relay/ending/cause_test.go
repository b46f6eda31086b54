package ending

import (
	"context"
	"net"
	"os"
	"testing"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/sink"
)

// A broker's network error is none of the server's: the slot is held as before.
func TestCause_TakesABrokersErrorForNoLossOfTheServer(t *testing.T) {
	timeout := &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	for name, c := range map[string]struct {
		err          error
		lost, silent bool
	}{
		"a broker does not answer": {err: &sink.Error{Class: sink.Retry, Reason: fault.ReasonNetwork, Err: timeout}},
		"a commit takes too long":  {err: &sink.Error{Class: sink.Retry, Reason: fault.ReasonTimeout, Err: context.DeadlineExceeded}},
		"the server is lost":       {err: postgres.Classify("read", timeout), lost: true, silent: true},
		"nothing":                  {},
	} {
		if lost, silent := LostConnection(c.err), ServerSilent(c.err); lost != c.lost || silent != c.silent {
			t.Errorf("%s: lost %t, silent %t, want %t, %t", name, lost, silent, c.lost, c.silent)
		}
	}
}
