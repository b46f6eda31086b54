package relay

import (
	"errors"
	"testing"

	"github.com/cdc-relay/cdc-relay/fault"
)

// What a session ends with decides the exit code and what the next start may believe.
func TestSession_EndsWithWhatTheNextStartHasToKnow(t *testing.T) {
	other := errors.New("another one")
	drift := &fault.Error{Kind: fault.KindDrift, Op: "watch", Err: errors.New("the publication was changed")}
	for name, c := range map[string]struct {
		cause        error
		stopped, cut bool
		want         []error
		not          []error
	}{
		"a clean end":                          {stopped: true, not: []error{ErrDrainCut}},
		"a stop with rows in flight":           {stopped: true, cut: true, want: []error{ErrDrainCut}},
		"an error without a stop":              {cause: other, cut: true, want: []error{other}, not: []error{ErrDrainCut}},
		"an error at a stop, nothing left":     {cause: other, stopped: true, want: []error{other}, not: []error{ErrDrainCut}},
		"an error at a stop, rows in flight":   {cause: other, stopped: true, cut: true, want: []error{ErrDrainCut}, not: []error{other}},
		"a lost connection, rows in flight":    {cause: errLost, stopped: true, cut: true, want: []error{ErrDrainCut, errLost}},
		"a drift without a stop":               {cause: drift, cut: true, want: []error{drift}, not: []error{ErrDrainCut, errUnseen}},
		"a drift at a stop, nothing in flight": {cause: drift, stopped: true, want: []error{errUnseen, drift}, not: []error{ErrDrainCut}},
		"a drift at a stop, rows in flight":    {cause: drift, stopped: true, cut: true, want: []error{ErrDrainCut, drift}, not: []error{errUnseen}},
	} {
		err := verdict(c.cause, c.stopped, c.cut)
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
