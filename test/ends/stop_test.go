package ends

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// A consumer that stops does not wait for the session of another one that was killed, even while
// the group does, and its client has asked to join anew. What it could not commit is handled once
// all the same. With -short the brokers are in-process ones.
func TestConsumer_StopsBesideAKilledMember(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		stopsBesideAKilledMember(t, harness.Kfake(t, sandbox.KafkaOptions{}))
		return
	}
	harness.EachBroker(t, stopsBesideAKilledMember)
}

func stopsBesideAKilledMember(t *testing.T, brokers *harness.Brokers) {
	s := newShop(t, harness.Postgres(t), brokers, 6)
	const session = time.Minute
	killed := s.child("", 0, 1)
	killed.Session = session
	asked := &joins{}
	cfg, other := s.config(), s.config()
	cfg.Kafka = append(cfg.Kafka, kgo.SessionTimeout(session), kgo.WithHooks(asked))
	other.Kafka = append(other.Kafka, kgo.SessionTimeout(session), kgo.ClientID("alive"))
	s.produce(t, 100, 30)
	process := killed.start(t)
	m := s.start(t, cfg)
	s.awaitAll(t)
	s.awaitCommitted(t)
	s.awaitGroup(t, "both are members", func(g kadm.DescribedGroup) bool { return g.State == "Stable" && len(g.Members) == 2 })
	_ = process.Process.Kill()
	_ = process.Wait()
	before := asked.n.Load()
	third := s.start(t, other)
	s.awaitGroup(t, "the group forms anew, and waits for the killed one", func(g kadm.DescribedGroup) bool { return g.State == "PreparingRebalance" })
	relaytest.Eventually(t, "the consumer has asked to join anew", func() (bool, string) { return asked.n.Load() > before, "" })
	s.produce(t, 50, 30)
	s.awaitEffects(t, 101) // which the consumer cannot commit now
	began := time.Now()
	err := m.end(t)
	if took := time.Since(began); took > session/2 {
		t.Errorf("it took %s to stop", took)
	}
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "commit offsets") {
		t.Errorf("the group did not wait: %v", err)
	}
	forget(t, brokers, s.group, "alive")
	s.awaitAll(t)
	s.awaitCommitted(t)
	third.stop(t)
	s.verify(t)
}

// joins counts the requests of a client to join its group.
type joins struct{ n atomic.Int64 }

func (j *joins) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if key == 11 && err == nil { // JoinGroup
		j.n.Add(1)
	}
}

// awaitGroup waits until the consumers' group is as it should be.
func (s *shop) awaitGroup(t testing.TB, what string, holds func(kadm.DescribedGroup) bool) {
	t.Helper()
	admin := s.brokers.Admin(t)
	relaytest.Eventually(t, what, func() (bool, string) {
		groups, err := admin.DescribeGroups(t.Context(), s.group)
		if err != nil {
			return false, err.Error()
		}
		g := groups[s.group]
		return holds(g), fmt.Sprintf("%s, %d members", g.State, len(g.Members))
	})
}
