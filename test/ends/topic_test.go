package ends

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/cdc-relay/cdc-relay/inbox/kafkainbox"
	"github.com/cdc-relay/cdc-relay/migrations"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// recreate deletes the topic with its records, and creates it again.
func (s *shop) recreate(t *testing.T, partitions int32) {
	t.Helper()
	admin := s.brokers.Admin(t)
	if deleted, err := admin.DeleteTopic(t.Context(), s.topic); err != nil || deleted.Err != nil {
		t.Fatal(err, deleted.Err)
	}
	relaytest.Eventually(t, "the topic is deleted", func() (bool, string) {
		created, err := admin.CreateTopic(t.Context(), partitions, 1, nil, s.topic)
		if err == nil {
			err = created.Err
		}
		return err == nil, fmt.Sprint(err)
	})
	s.sent.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.brokers.Addrs...), kgo.DefaultProduceTopic(s.topic), kgo.ProducerLinger(0)) // one has the topic's id for good
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	s.sent = client
}

// stopsBy returns when the consumer has ended with such an error.
func stopsBy[E error](t *testing.T, m *member) E {
	t.Helper()
	var want E
	select {
	case err := <-m.done:
		if !errors.As(err, &want) {
			t.Fatalf("it ended with %v", err)
		}
	case <-time.After(relaytest.Patience):
		t.Fatalf("it goes on, without %T", want)
	}
	return want
}

// progressOf has what a person sets in the rows of the topic.
func (s *shop) progressOf(t *testing.T, set string) {
	t.Helper()
	s.db.Exec(t, "UPDATE inbox_progress SET "+set+" WHERE consumer = 'billing' AND topic = '"+s.topic+"'")
}

// newTopic runs what the page has for a topic that is new.
func (s *shop) newTopic(t *testing.T) {
	t.Helper()
	page, err := os.ReadFile("../../docs/consuming.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?ms)^```sql\n(BEGIN;\n.*?)^```$").FindStringSubmatch(string(page))
	if block == nil {
		t.Fatal("the page has no such statements")
	}
	s.db.Exec(t, strings.ReplaceAll(block[1], "order-events", s.topic))
}

// The topic is deleted and created again, and has more records than were handled of the former one.
// None of them counts as handled: the consumer stops, and does what it is told then.
func TestTopic_CreatedAgainIsNotReadOnInSilence(t *testing.T) {
	t.Parallel()
	harness.EachBroker(t, func(t *testing.T, brokers *harness.Brokers) {
		for _, way := range []string{"one at a time", "parallel", "offsets", "server-side balancer"} {
			for _, running := range []bool{false, true} {
				t.Run(fmt.Sprint(way, " running ", running), func(t *testing.T) {
					t.Parallel()
					s := newShop(t, harness.Postgres(t), brokers, 1)
					cfg := s.config()
					ways[way](&cfg)
					s.produce(t, 50, 5)
					m := s.start(t, cfg)
					s.awaitEffects(t, 50)
					s.awaitCommitted(t)
					if !running {
						m.stop(t)
					}
					s.recreate(t, 1)
					s.produce(t, 80, 5)
					for range 2 { // a start alone changes nothing
						if !running {
							m = s.start(t, cfg)
						}
						running = false
						if e := stopsBy[*kafkainbox.TopicError](t, m); e.Topic != s.topic || e.Was == e.Is {
							t.Error(e)
						}
						if n := s.effects(t); n != 50 {
							t.Fatalf("%d effects", n)
						}
					}
					s.newTopic(t)
					m = s.start(t, cfg)
					s.awaitAll(t)
					s.awaitCommitted(t)
					m.stop(t)
					s.verify(t)
				})
			}
		}
	})
}

// A copy of the topic in another cluster, with the same offsets, is read on where the former one
// was read to, when a person has said that it is a copy.
func TestTopic_CopyIsReadOnWhenAPersonSaysSo(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"one at a time", "offsets"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 2)
			cfg := s.config()
			ways[way](&cfg)
			s.unique = cfg.Offsets
			s.produce(t, 50, 9)
			m := s.start(t, cfg)
			s.awaitEffects(t, 50)
			s.awaitCommitted(t)
			m.stop(t)
			s.progressOf(t, "topic_id = gen_random_uuid()") // as if all so far had been in another one
			s.produce(t, 30, 9)
			m = s.start(t, cfg)
			stopsBy[*kafkainbox.TopicError](t, m)
			if n := s.effects(t); n != 50 {
				t.Fatalf("%d effects", n)
			}
			s.progressOf(t, "topic_id = NULL")
			m = s.start(t, cfg)
			s.awaitAll(t)
			s.awaitCommitted(t)
			m.stop(t)
			s.verify(t)
		})
	}
}

// A member that still has records of the former topic moves nothing in the progress of the one that
// another member has begun with.
func TestTopic_MemberOfTheFormerOneMovesNothing(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"one at a time", "offsets"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 1)
			cfg := s.config()
			ways[way](&cfg)
			cfg.RoundEvents = 1
			reached, on := make(chan struct{}, 10), make(chan struct{})
			cfg.Events.Round = func(kafkainbox.Round) {
				reached <- struct{}{}
				<-on
			}
			s.produce(t, 2, 1)
			m := s.start(t, cfg)
			<-reached
			s.progressOf(t, "next = 1, topic_id = gen_random_uuid()")
			close(on)
			stopsBy[*kafkainbox.TopicError](t, m)
			if next := harness.Query[int64](t, s.db, "SELECT next FROM inbox_progress"); next != 1 {
				t.Errorf("next is %d", next)
			}
			if n := s.effects(t); n != 1 && cfg.Offsets {
				t.Errorf("%d effects", n)
			}
		})
	}
}

// The id of the topic gets into a row that has none, and that of the topic at hand is in it.
func TestTopic_IDGetsIntoTheProgress(t *testing.T) {
	t.Parallel()
	harness.EachBroker(t, func(t *testing.T, brokers *harness.Brokers) {
		for _, way := range []string{"one at a time", "offsets"} {
			t.Run(way, func(t *testing.T) {
				t.Parallel()
				s := newShop(t, harness.Postgres(t), brokers, 1)
				cfg := s.config()
				ways[way](&cfg)
				s.unique = cfg.Offsets
				of := func() string {
					return harness.Query[string](t, s.db, "SELECT coalesce(topic_id::text, 'none') FROM inbox_progress WHERE topic = $1", s.topic)
				}
				// Brokers of old tell no id: all is as if there were none.
				old := cfg
				old.Kafka = append(old.Kafka[:len(old.Kafka):len(old.Kafka)], kgo.MaxVersions(kversion.V3_0_0()))
				s.produce(t, 20, 3)
				m := s.start(t, old)
				s.awaitAll(t)
				s.awaitCommitted(t)
				m.stop(t)
				if got := of(); got != "none" {
					t.Errorf("id %s", got)
				}
				for range 2 {
					s.produce(t, 20, 3)
					m = s.start(t, cfg)
					s.awaitAll(t)
					s.awaitCommitted(t)
					m.stop(t)
					topics, err := s.brokers.Admin(t).ListTopics(t.Context(), s.topic)
					if err != nil {
						t.Fatal(err)
					}
					if got, want := strings.ReplaceAll(of(), "-", ""), fmt.Sprintf("%x", [16]byte(topics[s.topic].ID)); got != want {
						t.Errorf("id %s, want %s", got, want)
					}
				}
				s.verify(t)
			})
		}
	})
}

// A table that is older than the id is refused with what to run, and keeps its progress then.
func TestTopic_TableWithoutTheColumnIsRefusedWithWhatToRun(t *testing.T) {
	t.Parallel()
	s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 1)
	s.produce(t, 20, 3)
	m := s.start(t, s.config())
	s.awaitAll(t)
	s.awaitCommitted(t)
	m.stop(t)
	s.db.Exec(t, "ALTER TABLE inbox_progress DROP COLUMN topic_id")
	c, err := kafkainbox.New(s.config())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "42703") || !strings.Contains(err.Error(), "run again what `cdc-relay sql --inbox` prints") {
		t.Error(err)
	}
	parts, err := migrations.Inbox("public", "")
	if err != nil {
		t.Fatal(err)
	}
	s.db.Exec(t, parts[0].Up)
	s.produce(t, 20, 3)
	m = s.start(t, s.config())
	s.awaitAll(t)
	s.awaitCommitted(t)
	m.stop(t)
	s.verify(t)
}
