package ends

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
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
	var created kadm.CreateTopicResponse
	relaytest.Eventually(t, "the topic is deleted", func() (bool, string) {
		var err error
		if created, err = admin.CreateTopic(t.Context(), partitions, 1, nil, s.topic); err == nil {
			err = created.Err
		}
		return err == nil, fmt.Sprint(err)
	})
	// Until then records go to the former one, and are deleted with it.
	relaytest.Eventually(t, "brokers know the new topic", func() (bool, string) {
		topics, err := admin.ListTopics(t.Context(), s.topic)
		return err == nil && topics[s.topic].ID == created.ID, fmt.Sprint(err)
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

// beginAt runs what the page has for a partition that lost records, for that of the error.
func (s *shop) beginAt(t *testing.T, e *kafkainbox.LostError) {
	t.Helper()
	page, err := os.ReadFile("../../docs/consuming.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?m)^```sql\n(UPDATE inbox_progress SET next = 35, .*;)\n```$").FindStringSubmatch(string(page))
	if block == nil {
		t.Fatal("the page has no such statement")
	}
	s.db.Exec(t, strings.NewReplacer("next = 35", fmt.Sprint("next = ", e.Start), "order-events", e.Topic, "partition = 0", fmt.Sprint("partition = ", e.Partition)).Replace(block[1]))
}

// The topic is deleted and created again, and has more records than were handled of the former one.
// The consumer stops before it handles any of them. It handles all once a person has said that the
// topic is new.
func TestTopic_CreatedAgainIsNotReadOnInSilence(t *testing.T) {
	t.Parallel()
	harness.EachBroker(t, func(t *testing.T, brokers *harness.Brokers) {
		for i, way := range []string{"one at a time", "parallel", "offsets", "server-side balancer"} {
			for j, running := range []bool{false, true} {
				if left(brokers, i, j) {
					continue
				}
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
					s.finish(t, m)
				})
			}
		}
	})
}

// A topic of dead letters that is created again is written to without a restart.
func TestTopic_OfDeadLettersMayBeCreatedAgain(t *testing.T) {
	t.Parallel()
	harness.EachBroker(t, func(t *testing.T, brokers *harness.Brokers) {
		s, letters := newShop(t, harness.Postgres(t), brokers, 1), newShop(t, harness.Postgres(t), brokers, 1)
		cfg := s.config()
		cfg.DeadLetterTopic = letters.topic
		cfg.Handle = func(context.Context, pgx.Tx, *kgo.Record) error { return kafkainbox.Permanent(errors.New("no")) }
		sent := make(chan struct{}, 100)
		cfg.Events.DeadLetter = func(*kafkainbox.RecordError) { sent <- struct{}{} }
		m := s.start(t, cfg)
		s.produce(t, 5, 1)
		for range 5 {
			<-sent
		}
		letters.recreate(t, 1)
		s.produce(t, 5, 1)
		s.awaitCommitted(t)
		m.stop(t)
		if n := len(brokers.Read(t, letters.topic)); n != 5 {
			t.Errorf("%d dead letters", n)
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
			s.finish(t, m)
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
		for i, way := range []string{"one at a time", "offsets"} {
			if left(brokers, i) {
				continue
			}
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
				s.finish(t, m)
				if got := of(); got != "none" {
					t.Errorf("id %s", got)
				}
				for range 2 {
					s.produce(t, 20, 3)
					m = s.start(t, cfg)
					s.finish(t, m)
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
	s.finish(t, m)
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
	s.finish(t, m)
}

// expire deletes the records of the topic's only partition that are before an offset.
func (s *shop) expire(t *testing.T, before int64) {
	t.Helper()
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: s.topic, At: before, LeaderEpoch: -1})
	relaytest.Eventually(t, "records are deleted", func() (bool, string) {
		got, err := s.brokers.Admin(t).DeleteRecords(t.Context(), offsets)
		if err == nil {
			err = got.Error()
		}
		return err == nil, fmt.Sprint(err)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.past {
		if r.Offset < before {
			delete(s.ids, string(r.Headers[0].Value))
		}
	}
}

// Records that are deleted before they are read are not left out in silence: the consumer stops at
// each start, until a person has set next past them.
func TestRetention_OfUnreadRecordsStops(t *testing.T) {
	t.Parallel()
	harness.EachBroker(t, func(t *testing.T, brokers *harness.Brokers) {
		for i, way := range []string{"one at a time", "parallel", "offsets"} {
			if left(brokers, i) {
				continue
			}
			t.Run(way, func(t *testing.T) {
				t.Parallel()
				s := newShop(t, harness.Postgres(t), brokers, 1)
				cfg := s.config()
				ways[way](&cfg)
				s.unique = cfg.Offsets
				s.produce(t, 20, 3)
				m := s.start(t, cfg)
				s.finish(t, m)
				s.produce(t, 30, 3)
				done := map[string]bool{}
				for _, r := range s.past[:20] {
					done[string(r.Headers[0].Value)] = true
				}
				s.expire(t, 35)
				var e *kafkainbox.LostError
				for range 2 {
					m = s.start(t, cfg)
					if e = stopsBy[*kafkainbox.LostError](t, m); e.Topic != s.topic || e.Next != 20 || e.Start != 35 {
						t.Error(e)
					}
					if n := s.effects(t); n != 20 {
						t.Fatalf("%d effects", n)
					}
				}
				s.beginAt(t, e)
				m = s.start(t, cfg)
				for id := range done {
					s.ids[id] = true
				}
				s.finish(t, m)
			})
		}
	})
}

// So it is while the consumer runs and is slower than the retention.
func TestRetention_OvertakesAConsumerThatRuns(t *testing.T) {
	t.Parallel()
	harness.EachBroker(t, func(t *testing.T, brokers *harness.Brokers) {
		s := newShop(t, harness.Postgres(t), brokers, 1)
		cfg := s.config()
		cfg.RoundEvents = 1
		cfg.Kafka = append(cfg.Kafka, kgo.FetchMaxPartitionBytes(1)) // a batch at a time
		reached, on := make(chan struct{}, 1000), make(chan struct{})
		cfg.Handle = func(ctx context.Context, tx pgx.Tx, r *kgo.Record) error {
			reached <- struct{}{}
			<-on
			return journal(ctx, tx, r)
		}
		for range 10 {
			s.produce(t, 10, 3)
		}
		m := s.start(t, cfg)
		<-reached
		s.expire(t, 95)
		close(on)
		e := stopsBy[*kafkainbox.LostError](t, m)
		if e.Next < 10 || e.Next >= 95 || e.Start != 95 || s.effects(t) != int(e.Next) {
			t.Errorf("%v; %d effects", e, s.effects(t))
		}
	})
}

// A group from before the inbox has no progress, and tells by its offset what it has read. One that
// is set back before the oldest record has nothing unread there.
func TestRetention_GoesByWhatWasHandled(t *testing.T) {
	t.Parallel()
	s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 1)
	s.produce(t, 20, 3)
	s.expire(t, 10)
	s.rewind(t) // the group is at offset 0
	var e *kafkainbox.LostError
	for range 2 {
		m := s.start(t, s.config())
		if e = stopsBy[*kafkainbox.LostError](t, m); e.Next != 0 || e.Start != 10 {
			t.Error(e)
		}
	}
	s.beginAt(t, e)
	m := s.start(t, s.config())
	s.finish(t, m)
	s.rewind(t)
	s.produce(t, 10, 3)
	m = s.start(t, s.config())
	s.finish(t, m)
}

// transactions has each call send an event in a Kafka transaction, and end that.
func (s *shop) transactions(t *testing.T) func(end kgo.TransactionEndTry) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.brokers.Addrs...), kgo.DefaultProduceTopic(s.topic), kgo.TransactionalID(s.topic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	n := 0
	return func(end kgo.TransactionEndTry) {
		t.Helper()
		n++
		id := strconv.Itoa(n)
		err := client.BeginTransaction()
		if err == nil {
			err = client.ProduceSync(t.Context(), &kgo.Record{Key: []byte("k"), Value: []byte(id), Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(id)}}}).FirstErr()
		}
		if err == nil {
			err = client.EndTransaction(t.Context(), end)
		}
		if err != nil {
			t.Fatal(err)
		}
		if end == kgo.TryCommit {
			s.ids[id] = true
		}
	}
}

// What was deleted cannot be looked at: aborted transactions alone, of a time when no consumer ran,
// look as events do. The consumer stops and says so. What comes after them is not lost.
func TestRetention_OfAbortedTransactionsStopsAndLosesNothing(t *testing.T) {
	t.Parallel()
	brokers := harness.Kfake(t, sandbox.KafkaOptions{})
	for _, way := range []string{"one at a time", "offsets"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, harness.Postgres(t), brokers, 1)
			cfg := s.config()
			ways[way](&cfg)
			transaction := s.transactions(t)
			m := s.start(t, cfg)
			transaction(kgo.TryCommit)
			s.finish(t, m)
			transaction(kgo.TryAbort)
			s.expire(t, 4)
			transaction(kgo.TryCommit)
			e := stopsBy[*kafkainbox.LostError](t, s.start(t, cfg))
			if e.Next != 2 || e.Start != 4 || !strings.Contains(e.Error(), "aborted transactions") {
				t.Error(e)
			}
			s.beginAt(t, e)
			s.finish(t, s.start(t, cfg))
		})
	}
}

// So it is where a person has set the progress back to before the oldest record. What has its key
// is not handled again.
func TestRetention_OfProgressThatWasSetBackStopsAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 1)
	s.produce(t, 20, 3)
	s.finish(t, s.start(t, s.config()))
	ids := maps.Clone(s.ids)
	s.expire(t, 10)
	s.ids = ids // all have their effects
	s.progressOf(t, "next = 0")
	e := stopsBy[*kafkainbox.LostError](t, s.start(t, s.config()))
	if e.Next != 0 || e.Start != 10 || !strings.Contains(e.Error(), "set back") {
		t.Error(e)
	}
	s.beginAt(t, e)
	s.produce(t, 10, 3)
	s.finish(t, s.start(t, s.config()))
}

// Records that are deleted before this member reads them are not lost where they are handled: by
// another member while this one was frozen, or by itself, before the group was set back.
func TestRetention_OfWhatIsHandledIsNoLoss(t *testing.T) {
	t.Parallel()
	brokers := harness.Kfake(t, sandbox.KafkaOptions{})
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprint("again ", again), func(t *testing.T) {
			t.Parallel()
			s := newShop(t, harness.Postgres(t), brokers, 1)
			for range 10 {
				s.produce(t, 10, 3)
			}
			cfg := s.config()
			if again {
				s.finish(t, s.start(t, cfg))
				s.rewind(t)
			}
			cfg.Kafka = append(cfg.Kafka, kgo.FetchMaxPartitionBytes(1)) // a batch at a time
			cfg.RoundEvents = 1
			reached, on := make(chan struct{}, 1000), make(chan struct{})
			cfg.Events.Round = func(kafkainbox.Round) {
				reached <- struct{}{}
				<-on
			}
			m := s.start(t, cfg)
			<-reached
			s.expire(t, 95)
			if !again {
				s.progressOf(t, "next = 95") // as the other one does
			}
			close(on)
			s.awaitCommitted(t)
			m.stop(t)
			for _, r := range s.past[95:] {
				if n := harness.Query[int](t, s.db, "SELECT count(*)::int FROM journal WHERE event = $1", header(r, "id")); n != 1 {
					t.Errorf("offset %d: %d effects", r.Offset, n)
				}
			}
		})
	}
}

// With Offsets a log whose end was lost, and that has other records there, is refused, also where
// that came to pass while no consumer ran: the brokers are asked about the leader's epoch.
func TestOffsets_OfALogThatWasCutAreRefused(t *testing.T) {
	t.Parallel()
	s := newShop(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), 1)
	s.unique = true
	cfg := s.config()
	cfg.Offsets = true
	s.produce(t, 20, 3)
	s.finish(t, s.start(t, cfg))
	s.brokers.Fake.Cluster().ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(asked kmsg.Request) (kmsg.Response, error, bool) {
		s.brokers.Fake.Cluster().KeepControl()
		request := asked.(*kmsg.OffsetForLeaderEpochRequest)
		response := request.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		topic := kmsg.NewOffsetForLeaderEpochResponseTopic()
		topic.Topic = s.topic
		one := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
		one.EndOffset, one.LeaderEpoch = 15, request.Topics[0].Partitions[0].LeaderEpoch
		topic.Partitions = append(topic.Partitions, one)
		response.Topics = append(response.Topics, topic)
		return response, nil, true
	})
	blocked := make(chan *kafkainbox.RecordError, 10)
	cfg.Events.Blocked = func(e *kafkainbox.RecordError) { blocked <- e }
	m := s.start(t, cfg)
	select {
	case e := <-blocked:
		var rewind *kafkainbox.RewindError
		if e.Offset != 15 || !errors.As(e, &rewind) || rewind.Next != 20 {
			t.Error(e)
		}
	case <-time.After(relaytest.Patience):
		t.Fatal("it goes on")
	}
	m.stop(t)
}

// The end of a Kafka transaction is no record that was not read: when retention has taken it, a
// consumer that had handled everything goes on.
func TestRetention_OfTheEndOfATransactionIsNoLoss(t *testing.T) {
	t.Parallel()
	harness.EachBroker(t, func(t *testing.T, brokers *harness.Brokers) {
		for i, way := range []string{"one at a time", "offsets"} {
			if left(brokers, i) {
				continue
			}
			t.Run(way, func(t *testing.T) {
				t.Parallel()
				s := newShop(t, harness.Postgres(t), brokers, 1)
				cfg := s.config()
				ways[way](&cfg)
				transaction := s.transactions(t)
				m := s.start(t, cfg)
				transaction(kgo.TryCommit)
				transaction(kgo.TryAbort)
				s.finish(t, m)
				s.expire(t, 4)
				s.ids["1"] = true
				transaction(kgo.TryCommit)
				m = s.start(t, cfg)
				s.finish(t, m)
			})
		}
	})
}
