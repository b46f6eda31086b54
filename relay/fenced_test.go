package relay

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/sink"
)

// A relay that another one fenced ends with an error after a while. A stop before that is a clean one:
// what it had in flight is the other's.
func TestRelay_FencedIsStoppedCleanly(t *testing.T) {
	for _, stopped := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			server := newServer()
			server.openErr = func(int64) error {
				return &sink.Error{Class: sink.Blocked, Reason: fault.ReasonFenced, Err: errors.New("there is a newer producer")}
			}
			b := start(t, Config{RetryMax: time.Minute}, server)
			pass(time.Second)
			if st := b.relay.Status(); st.State != status.Blocked || st.Reason != fault.ReasonFenced {
				t.Errorf("state %s %s", st.State, st.Reason)
			}
			if stopped {
				b.cancel()
			}
			err := <-b.result
			if failed, is := errors.AsType[*sink.Error](err); stopped && err != nil || !stopped && (!is || failed.Reason != fault.ReasonFenced) {
				t.Errorf("stopped %t: ended with %v", stopped, err)
			}
			b.cancel()
		})
	}
}
