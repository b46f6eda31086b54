package ends

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A consumer that stops does not wait for the session of another one that was killed, even while
// the group does. What it could not commit is handled once all the same.
func TestConsumer_StopsBesideAKilledMember(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for a session to end")
	}
	harness.EachBroker(t, func(t *testing.T, brokers *harness.Brokers) {
		s := newShop(t, harness.Postgres(t), brokers, 6)
		const session = 30 * time.Second
		killed := s.child("", 0, 1)
		killed.Session = session
		cfg := s.config()
		cfg.Kafka = append(cfg.Kafka, kgo.SessionTimeout(session))
		s.produce(t, 100, 30)
		process := killed.start(t)
		m := s.start(t, cfg)
		s.awaitAll(t)
		s.awaitCommitted(t)
		<-time.After(4 * time.Second) // both are members
		_ = process.Process.Kill()
		_ = process.Wait()
		third := s.start(t, cfg) // the group forms anew, and waits for the killed one
		<-time.After(1500 * time.Millisecond)
		s.produce(t, 50, 30)
		<-time.After(500 * time.Millisecond)
		began := time.Now()
		err := m.end(t)
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("it took %s to stop", took)
		}
		t.Logf("stopped after %s: %v", time.Since(began).Round(time.Millisecond), err)
		s.awaitAll(t)
		s.awaitCommitted(t)
		third.stop(t)
		s.verify(t)
	})
}
