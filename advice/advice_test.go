package advice

import (
	"errors"
	"fmt"
	"testing"
)

func TestSplit_TakesTheAdviceOffAnError(t *testing.T) {
	for _, tt := range []struct {
		err        error
		seen, next string
	}{
		{errors.New("it does not answer"), "it does not answer", ""},
		{errors.New("it does not exist; run setup"), "it does not exist", "run setup"},
		{Give(errors.New("it says: no; never."), "ask; then go"), "it says: no; never", "ask; then go"},
		{fmt.Errorf("read topic: %w", Give(errors.New("a; b"), "c")), "read topic: a; b", "c"},
		{fmt.Errorf("%w (a)", Give(errors.New("b"), "c")), "b", "c (a)"},
	} {
		if seen, next := Split(tt.err); seen != tt.seen || next != tt.next {
			t.Errorf("%v: saw %q and is to do %q, want %q and %q", tt.err, seen, next, tt.seen, tt.next)
		}
	}
}
