package broker

import (
	"errors"
	"testing"

	"github.com/cdc-relay/cdc-relay/sink"
)

func TestClassify_StopsAtWhatItDoesNotKnow(t *testing.T) {
	if e := Classify(errors.New("something new")); e.Class != sink.Blocked || e.Reason != "kafka_error" {
		t.Errorf("%s %s", e.Class, e.Reason)
	}
}
