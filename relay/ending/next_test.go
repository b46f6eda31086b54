package ending

import (
	"errors"
	"testing"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay/rejected"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/sink"
)

// What follows from an error depends on whether a session streamed before, on relay.on_blocked, and
// on who has the slot.
func TestAfter_IsWhatHasToHappenNext(t *testing.T) {
	plain := errors.New("nobody knows it")
	server := func(kind fault.Kind, reason string, holder int) error {
		return &fault.Error{Kind: kind, Reason: reason, Op: "start", Holder: holder, Err: plain}
	}
	brokers := func(class sink.Class, reason string) error {
		return &sink.Error{Class: class, Reason: reason, Err: plain}
	}
	first, later, exits := Facts{}, Facts{Streamed: true, OwnProcess: 7}, Facts{Streamed: true, ExitWhenBlocked: true}
	var asRefused *RefusedError
	var asBlocked *BlockedError
	for name, c := range map[string]struct {
		facts  Facts
		err    error
		state  status.State
		reason string
		fatal  any // target of errors.As, or the error itself
	}{
		"a configuration that does not fit, at the start": {facts: first, err: &ConfigError{plain}, fatal: plain},
		"a configuration that does not fit any more":      {facts: later, err: &ConfigError{plain}, state: status.Blocked, reason: fault.ReasonSchema},
		"a row blocks":                                {facts: later, err: &rejected.BlockedAtRowError{Reason: "route", Err: plain}, state: status.Blocked, reason: "route"},
		"a row blocks, and that ends the relay":       {facts: exits, err: &rejected.BlockedAtRowError{Reason: "route", Err: plain}, fatal: &asBlocked},
		"no broker answers":                           {facts: later, err: brokers(sink.Retry, fault.ReasonNetwork), state: status.Reconnecting, reason: fault.ReasonKafkaUnreachable},
		"brokers are not ready":                       {facts: later, err: brokers(sink.Retry, "kafka_not_ready"), state: status.Reconnecting, reason: "kafka_not_ready"},
		"brokers refuse at the start":                 {facts: first, err: brokers(sink.Blocked, "kafka_auth"), fatal: &asRefused},
		"brokers refuse later":                        {facts: later, err: brokers(sink.Blocked, "kafka_auth"), state: status.Blocked, reason: "kafka_auth"},
		"another relay has the transactional id":      {facts: later, err: brokers(sink.Blocked, fault.ReasonFenced), reason: fault.ReasonFenced, fatal: plain},
		"a position that was not promised at the end": {facts: exits, err: ErrDrainCut, state: status.Reconnecting, reason: fault.ReasonKafkaUnreachable},
		"the sink was closed":                         {facts: later, err: sink.ErrClosed, state: status.Reconnecting, reason: fault.ReasonKafkaUnreachable},
		"another relay has the slot":                  {facts: later, err: server(fault.KindBusy, fault.ReasonSlotInUse, 8), state: status.Standby, reason: fault.ReasonSlotInUse},
		"our last connection has the slot":            {facts: later, err: server(fault.KindBusy, fault.ReasonSlotInUse, 7), state: status.Reconnecting, reason: fault.ReasonSlotInUse},
		"somebody unknown has the slot":               {facts: first, err: server(fault.KindBusy, fault.ReasonSlotInUse, 0), state: status.Standby, reason: fault.ReasonSlotInUse},
		"the server cannot be reached":                {facts: first, err: server(fault.KindRetry, fault.ReasonNetwork, 0), state: status.Reconnecting, reason: fault.ReasonNetwork},
		"the server refuses at the start":             {facts: first, err: server(fault.KindRefused, "auth", 0), fatal: &asRefused},
		"the slot is lost":                            {facts: later, err: server(fault.KindLost, "slot_lost", 0), state: status.Blocked, reason: "slot_lost"},
		"the slot is lost, and that ends a relay":     {facts: exits, err: server(fault.KindLost, "slot_lost", 0), fatal: &asBlocked},
		"a message that cannot be read":               {facts: later, err: server(fault.KindProtocol, "protocol", 0), state: status.Blocked, reason: "protocol"},
	} {
		got := c.facts.After(c.err)
		if got.State != c.state || c.reason != "" && got.Reason != c.reason || (got.Fatal == nil) != (c.fatal == nil) {
			t.Errorf("%s: %+v", name, got)
			continue
		}
		switch want := c.fatal.(type) {
		case nil:
		case error:
			if !errors.Is(got.Fatal, want) {
				t.Errorf("%s: ends with %v", name, got.Fatal)
			}
		default:
			if !errors.As(got.Fatal, want) {
				t.Errorf("%s: ends with %T", name, got.Fatal)
			}
		}
	}
	if n := later.After(plain); n.State != status.Blocked || n.Fatal != nil {
		t.Errorf("an unknown error: %+v", n)
	}
}
