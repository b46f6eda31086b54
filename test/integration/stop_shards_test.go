package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// A stop of two shards by SIGTERM confirms all that was sent, rows and their dead letters, so that
// the next start repeats none: neither a row, nor a letter, nor a row as a letter.
func TestStop_OfShardsThatParkKeysRepeatsNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *harness.Database, brokers *harness.Brokers) {
		random := rand.New(rand.NewPCG(relaytest.Seed(t), 11))
		letters, aggregate := harness.Unique(t, "letters"), harness.Unique(t, "order")
		topic := aggregate + "-events"
		p := relaytest.New(t, db, brokers, []string{"{table: public.outbox}"}, "  max_message_bytes: 60KiB",
			fmt.Sprintf("relay: {on_reject: dead_letter, park_key: true, dead_letter_topic: %s}", letters))
		s := &sharded{Pipeline: p, plain: p.YAML}
		s.divide(2, "")
		if setup := s.Exec(t, "setup", "--create-table"); setup.Wait(t) != 0 {
			t.Fatal(setup.Output())
		}
		brokers.CreateTopic(t, topic, 3, "max.message.bytes", "20000")
		seen := newSeen(t, brokers, topic, letters)

		var running *relaytest.Process
		stop := writeWithRejects(t, db, aggregate, random.Uint64())
		for n := range scale(t, "CDC_RELAY_TEST_STOPS", 6) {
			running = s.Exec(t, "run")
			before := s.confirmed(t)
			relaytest.Eventually(t, "every shard confirms", func() (bool, string) { return s.confirmed(t) > before, running.Output() })
			<-time.After(time.Duration(random.IntN(200)) * time.Millisecond) // the random point
			s.stop(t, running)
			seen.take(t, n, running)
			if t.Failed() {
				break
			}
		}
		stop()
		running = s.Exec(t, "run")
		s.awaitCaughtUp(t)
		s.stop(t, running)
		seen.take(t, -1, running)
		t.Logf("%d rows as records, %d as letters, %d repeated within a run", seen.rows, seen.letters, seen.within)
		if total := harness.Query[int](t, db, "SELECT count(*) FROM outbox"); seen.rows+seen.letters != total {
			t.Errorf("%d rows of %d arrived", seen.rows+seen.letters, total)
		}
	})
}

// writeWithRejects has writers write rows until stop, of which some are too large for the topic, for
// the relay, or have no possible topic.
func writeWithRejects(t *testing.T, db *harness.Database, aggregate string, seed uint64) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for n := range uint64(3) {
		random := rand.New(rand.NewPCG(seed, n))
		writers.Go(func() {
			if err := writeRejects(ctx, db, aggregate, random); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	return func() { cancel(); writers.Wait() }
}

func writeRejects(ctx context.Context, db *harness.Database, aggregate string, random *rand.Rand) error {
	conn, err := pgx.Connect(ctx, db.URL)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for ctx.Err() == nil {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		for range 1 + random.IntN(6) {
			kind, size, key := aggregate, random.IntN(300), uuid.UUID{13: byte(time.Now().Unix() / 3), 15: byte(random.IntN(256))} // others every three seconds, so that not all are parked in the end
			switch random.IntN(120) {
			case 0:
				size = 30_000 // the topic refuses it
			case 1:
				size = 70_000 // the relay does
			case 2:
				kind = "no topic!"
			}
			_, err = tx.Exec(ctx, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ($1, $2, 'x', jsonb_build_object('fill', repeat('x', $3::int)))", kind, key, size)
			if err != nil {
				return err
			}
		}
		if err := tx.Commit(ctx); err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(random.IntN(3000)) * time.Microsecond):
		}
	}
	return nil
}

// seen is in which run each row came to the brokers.
type seen struct {
	client                *kgo.Client
	brokers               *harness.Brokers
	topics                []string
	read                  map[string]map[int32]int64
	ids                   map[string]int
	rows, letters, within int
}

func newSeen(t *testing.T, brokers *harness.Brokers, topics ...string) *seen {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers.Addrs...), kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	s := &seen{client: client, brokers: brokers, topics: topics, read: make(map[string]map[int32]int64), ids: make(map[string]int)}
	for _, topic := range topics {
		s.read[topic] = make(map[int32]int64)
	}
	return s
}

// take reads what a run brought, and fails where it had come before.
func (s *seen) take(t *testing.T, run int, of *relaytest.Process) {
	t.Helper()
	ends, err := s.brokers.Admin(t).ListEndOffsets(t.Context(), s.topics...)
	if err != nil {
		t.Fatal(err)
	}
	behind := func() (n int64) {
		for topic, at := range s.read {
			for partition, end := range ends[topic] {
				n += max(0, end.Offset-at[partition])
			}
		}
		return n
	}
	ctx, cancel := context.WithTimeout(t.Context(), relaytest.Patience)
	defer cancel()
	for behind() > 0 {
		fetches := s.client.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%d records are still to be read: %v", behind(), fetches.Errors())
		}
		fetches.EachRecord(func(r *kgo.Record) {
			s.read[r.Topic][r.Partition] = r.Offset + 1
			at := slices.IndexFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == "id" })
			if at < 0 {
				t.Fatalf("topic %s, partition %d, offset %d: no id", r.Topic, r.Partition, r.Offset)
			}
			id := string(r.Headers[at].Value)
			before, twice := s.ids[id]
			switch {
			case twice && before != run:
				var headers []string
				for _, h := range r.Headers {
					headers = append(headers, h.Key+"="+string(h.Value))
				}
				t.Errorf("REPEAT: run %d repeats row %s of run %d in topic %s, partition %d, offset %d, %s (%s):\n%s", run, id, before, r.Topic, r.Partition, r.Offset, r.Timestamp, strings.Join(headers, " "), of.Output())
				return
			case twice:
				s.within++
				t.Logf("WITHIN: run %d repeats row %s in topic %s, partition %d, offset %d", run, id, r.Topic, r.Partition, r.Offset)
				return
			case r.Topic == s.topics[0]:
				s.rows++
			default:
				s.letters++
			}
			s.ids[id] = run
		})
	}
}
