package integration

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// Rows too large for their topic among others of two keys, on real brokers: they go
// to the dead letters, what follows of their key too, also after a restart, and
// re-driven every key is complete and in order.
func TestRejected_RowsGoToTheDeadLettersAndBackInOrder(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *harness.Database, brokers *harness.Brokers) {
		t.Parallel()
		letters := harness.Unique(t, "letters")
		p := relaytest.New(t, db, brokers, []string{"{table: public.outbox}"},
			fmt.Sprintf("relay: {on_reject: dead_letter, park_key: true, dead_letter_topic: %s}", letters))
		p.Setup(t)
		if _, err := topics.EnsureTopic(t.Context(), p.Settings().Kafka.Connection, p.Settings().Kafka.CreateTopics, letters, false); err != nil {
			t.Fatal(err)
		}
		aggregate := harness.Unique(t, "order")
		topic := aggregate + "-events"
		brokers.CreateTopic(t, topic, 3, "max.message.bytes", "20000")
		keys := []uuid.UUID{uuid.New(), uuid.New(), uuid.New()}
		next := 0
		insert := func(key, size int) {
			db.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ($1, $2, 'x', jsonb_build_object('n', $3::int, 'fill', repeat('x', $4::int)))",
				aggregate, keys[key], next, size)
			next++
		}
		phase := func(rows ...[2]int) {
			t.Helper()
			for _, row := range rows {
				insert(row[0], row[1])
			}
			p.AwaitCaughtUp(t)
		}
		r := p.Start(t)
		r.AwaitStreaming(t)
		phase([2]int{0, 0}, [2]int{1, 0}, [2]int{0, 60_000}, [2]int{0, 0}, [2]int{1, 0}, [2]int{2, 50_000}, [2]int{0, 0})
		r.Stop(t)
		r = p.Start(t)
		r.AwaitStreaming(t)
		phase([2]int{0, 0}, [2]int{1, 0}, [2]int{2, 0})
		r.Await(t, "it streams with two keys parked", func(s status.Status) bool { return s.ParkedKeys == 2 && s.State == status.Streaming })
		if got := numbers(t, brokers, topic); got[keys[0]] != "0" || got[keys[1]] != "1 4 8" || got[keys[2]] != "" {
			t.Fatalf("before the redrive: %v", got)
		}

		setMaxMessageBytes(t, brokers, topic, "200000")
		redrive(t, p, letters)
		r.Await(t, "the keys are free", func(s status.Status) bool { return s.ParkedKeys == 0 })
		phase([2]int{0, 0}, [2]int{2, 0})
		r.Stop(t)
		got := numbers(t, brokers, topic)
		if got[keys[0]] != "0 2 3 6 7 10" || got[keys[1]] != "1 4 8" || got[keys[2]] != "5 9 11" {
			t.Fatalf("in the end: %v", got)
		}
	})
}

func redrive(t *testing.T, p *relaytest.Pipeline, letters string) {
	t.Helper()
	cfg := p.Settings().Kafka
	backlog, err := deadletter.ReadBacklog(t.Context(), cfg.Connection, letters, deadletter.Filter{}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	kafka, err := kafka.New(cfg, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = kafka.Close(t.Context()) }()
	driver := deadletter.Redriver{Topic: letters, Sink: kafka, ReadLetters: func(ctx context.Context, entries []*deadletter.Entry) (map[deadletter.Location]*deadletter.Letter, error) {
		return deadletter.ReadLetters(ctx, cfg.Connection, letters, entries)
	}}
	err = driver.Run(t.Context(), backlog.Whole(), func(out deadletter.Outcome) {
		if out.Err != nil {
			t.Error(out.Err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// numbers are the values of n in the payloads of a topic, by key.
func numbers(t *testing.T, brokers *harness.Brokers, topic string) map[uuid.UUID]string {
	t.Helper()
	found := map[uuid.UUID]string{}
	for _, r := range brokers.Read(t, topic) {
		key := uuid.MustParse(string(r.Key))
		_, text, _ := strings.Cut(string(r.Value), `"n": `)
		n := text[:strings.IndexAny(text, ",}")]
		found[key] = strings.TrimSpace(found[key] + " " + n)
	}
	return found
}

// The position headers name each row once, in the order of the stream, also those of
// a transaction that is larger than everything that may be in memory.
func TestPositionHeaders_NameEveryRowOfTheStream(t *testing.T) {
	t.Parallel()
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		brokers := harness.Kfake(t, kfakeDefault)
		p := relaytest.New(t, db, brokers, []string{"{table: public.outbox}"}, "relay: {position_headers: true, max_in_flight_bytes: 256KiB}")
		p.Setup(t)
		aggregate := harness.Unique(t, "order")
		brokers.CreateTopic(t, aggregate+"-events", 1)
		var ends []wal.LSN
		write := func(rows int) {
			db.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT $1, gen_random_uuid(), 'x', '{}' FROM generate_series(1, $2)", aggregate, rows)
			ends = append(ends, p.WALEnd(t))
		}
		r := p.Start(t)
		r.AwaitStreaming(t)
		sizes := []int{1, 3, 20_000, 2, 1500}
		for _, size := range sizes {
			write(size)
		}
		p.AwaitCaughtUp(t)
		r.Stop(t)
		records := brokers.Read(t, aggregate+"-events")
		at, last := 0, wal.LSN(0)
		for txn, size := range sizes {
			for seq := 1; seq <= size; seq, at = seq+1, at+1 {
				lsn, n := position(t, records[at])
				if seq == 1 && lsn <= last || seq > 1 && lsn != last || n != seq || lsn > ends[txn] {
					t.Fatalf("record %d: %s/%d, want row %d of a transaction that ends after %s and up to %s", at, lsn, n, seq, last, ends[txn])
				}
				last = lsn
			}
		}
		if at != len(records) {
			t.Fatalf("%d records, want %d", len(records), at)
		}
	})
}

func position(t *testing.T, r *kgo.Record) (wal.LSN, int) {
	t.Helper()
	found := map[string]string{}
	for _, h := range r.Headers {
		found[h.Key] = string(h.Value)
	}
	lsn, err := wal.ParseLSN(found["cdc-relay-lsn"])
	if err != nil {
		t.Fatalf("headers %v: %v", found, err)
	}
	seq, err := strconv.Atoi(found["cdc-relay-seq"])
	if err != nil || found["cdc-relay-commit-time"] == "" {
		t.Fatalf("headers %v: %v", found, err)
	}
	return lsn, seq
}
