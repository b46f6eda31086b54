package broker

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestReach_IsAnErrorOnlyWhenEveryBrokerFails(t *testing.T) {
	var r Reach
	if r.Err() != nil {
		t.Error("unreachable before anything was tried")
	}
	meta := func(id int32) kgo.BrokerMetadata { return kgo.BrokerMetadata{NodeID: id} }
	refused := errors.New("refused")
	answer := func(id int32) { r.OnBrokerE2E(meta(id), 3, kgo.BrokerE2E{}) }
	steps := []struct {
		do   func()
		want error
	}{
		{func() { r.OnBrokerConnect(meta(-1), 0, nil, refused) }, refused},
		{func() { r.OnBrokerE2E(meta(-1), 18, kgo.BrokerE2E{}) }, refused}, // api versions prove nothing
		{func() { answer(-1) }, nil},
		{func() { answer(1); answer(2) }, nil},
		{func() { r.OnBrokerE2E(meta(1), 0, kgo.BrokerE2E{ReadErr: refused}) }, nil},
		{func() { r.OnBrokerConnect(meta(2), 0, nil, refused) }, refused}, // the address that once answered is not asked
		{func() { answer(2) }, nil},
	}
	for i, step := range steps {
		step.do()
		if got := r.Err(); got != step.want { //nolint:errorlint // the very same value
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
}
