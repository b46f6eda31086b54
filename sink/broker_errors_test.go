package sink

import (
	"errors"
	"testing"
)

func TestClassify_StopsAtWhatItDoesNotKnow(t *testing.T) {
	if e := classify(errors.New("something new")); e.Class != Blocked || e.Reason != "kafka_error" {
		t.Errorf("%s %s", e.Class, e.Reason)
	}
}
