package ending

import (
	"errors"
	"testing"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/sink"
)

// What a session ends with decides the exit code and what the next start may believe.
func TestEnd_TellsTheNextStartWhatItHasToKnow(t *testing.T) {
	other := errors.New("another one")
	drift := &fault.Error{Kind: fault.KindDrift, Op: "watch", Err: errors.New("the publication was changed")}
	for name, c := range map[string]struct {
		end  Session
		want []error
		not  []error
	}{
		"a clean end":                          {end: Session{Stopped: true}, not: []error{ErrDrainCut}},
		"a stop with rows in flight":           {end: Session{Stopped: true, Unanswered: true}, want: []error{ErrDrainCut}},
		"an end with rows in flight":           {end: Session{Unanswered: true}, want: []error{ErrDrainCut}},
		"an end that the server did not take":  {end: Session{LastUnknown: true, CloseFailed: other}, want: []error{ErrDrainCut, other}},
		"an error without a stop":              {end: Session{Cause: other, Unanswered: true}, want: []error{other}, not: []error{ErrDrainCut}},
		"an error at a stop, nothing left":     {end: Session{Cause: other, Stopped: true}, want: []error{other}, not: []error{ErrDrainCut}},
		"an error at a stop, rows in flight":   {end: Session{Cause: other, Stopped: true, Unanswered: true}, want: []error{ErrDrainCut}, not: []error{other}},
		"a lost connection, rows in flight":    {end: Session{Cause: ErrLost, Stopped: true, Unanswered: true, CloseFailed: other}, want: []error{ErrDrainCut, ErrLost, other}},
		"a drift without a stop":               {end: Session{Cause: drift, Unanswered: true}, want: []error{drift}, not: []error{ErrDrainCut, ErrUnseen}},
		"a drift at a stop, nothing in flight": {end: Session{Cause: drift, Stopped: true}, want: []error{ErrUnseen, drift}, not: []error{ErrDrainCut}},
		"a drift at a stop, rows in flight":    {end: Session{Cause: drift, Stopped: true, Unanswered: true}, want: []error{ErrDrainCut, drift}, not: []error{ErrUnseen}},
	} {
		err := c.end.Err()
		if (err == nil) != (len(c.want) == 0) {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range c.want {
			if !errors.Is(err, want) {
				t.Errorf("%s: %v is not %v", name, err, want)
			}
		}
		for _, not := range c.not {
			if errors.Is(err, not) {
				t.Errorf("%s: %v is %v", name, err, not)
			}
		}
	}
}

func TestEnd_SendsAgainWhatTheServerOrTheBrokersMayLack(t *testing.T) {
	network := &fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonNetwork, Op: "read", Err: errors.New("reset")}
	row := &fault.Error{Kind: fault.KindProtocol, Op: "decode", LSN: 100, Err: errors.New("a row")}
	brokers := &sink.Error{Class: sink.Retry, Reason: fault.ReasonNetwork, Err: errors.New("reset")}
	refused := errors.New("status refused")
	for name, c := range map[string]struct {
		end  Session
		want bool
	}{
		"everything is durable and confirmed":             {Session{}, false},
		"a record is not answered":                        {Session{Unanswered: true}, true},
		"the server gets an earlier position":             {Session{Withheld: true}, true},
		"the server may lack the last position":           {Session{LastUnknown: true, CloseFailed: refused}, true},
		"the last position was seen at the server":        {Session{CloseFailed: refused}, false},
		"the server acknowledged the last position":       {Session{LastUnknown: true}, false},
		"an error inside a transaction":                   {Session{Cause: refused, Open: true}, true},
		"an error behind a transaction":                   {Session{Cause: refused}, false},
		"a stream that ended inside a transaction":        {Session{Open: true}, false}, // Cause says so
		"a row that cannot be read, the others delivered": {Session{Cause: row, Open: true, Repeats: true}, false},
		"a row that cannot be read, others are not":       {Session{Cause: row, Open: true, Repeats: true, Rows: 1}, true},
		"a row that cannot be read, in transactions":      {Session{Cause: row, Open: true, Rows: 1}, false},
		"a lost connection, rows are not done":            {Session{Cause: network, Rows: 1}, true},
		"a lost connection, all rows are done":            {Session{Cause: network}, false},
		"an error of the brokers, rows are not done":      {Session{Cause: brokers, Rows: 1}, false}, // refused rows: none is in flight
	} {
		if got := c.end.sendsAgain(); got != c.want {
			t.Errorf("%s: sends again %t", name, got)
		}
	}
}
