package ends

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox/kafkainbox"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// effect is what each way does for an event: one row of a table is changed.
const effect = `INSERT INTO totals (key, n, last) VALUES ($1, 1, $2) ON CONFLICT (key) DO UPDATE SET n = totals.n + 1, last = $2`

// naive is the loop that is written by hand: a transaction for each record, then its offset.
func (s *shop) naive(b *testing.B, n int) time.Duration {
	client, err := kgo.NewClient(kgo.SeedBrokers(s.brokers.Addrs...), kgo.ConsumerGroup(s.group+"-naive"), kgo.ConsumeTopics(s.topic), kgo.DisableAutoCommit())
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	began := time.Now()
	for n > 0 {
		fetches := client.PollRecords(b.Context(), n)
		if err := fetches.Err(); err != nil {
			b.Fatal(err)
		}
		for _, r := range fetches.Records() {
			n--
			err := pgx.BeginFunc(b.Context(), s.pool, func(tx pgx.Tx) error {
				tag, err := tx.Exec(b.Context(), "INSERT INTO inbox (consumer, key, at) VALUES ('naive', $1, now()) ON CONFLICT DO NOTHING", header(r, "id"))
				if err != nil || tag.RowsAffected() == 0 {
					return err
				}
				_, err = tx.Exec(b.Context(), effect, string(r.Key), number(r))
				return err
			})
			if err != nil {
				b.Fatal(err)
			}
		}
		if err := client.CommitUncommittedOffsets(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(began)
}

// timed is how long a consumer takes for n records, from its first round on.
func (s *shop) timed(b *testing.B, n int, cfg kafkainbox.Config) time.Duration {
	var mu sync.Mutex
	var began, ended time.Time
	done := make(chan struct{})
	left := n
	cfg.Events.Round = func(r kafkainbox.Round) {
		mu.Lock()
		defer mu.Unlock()
		if began.IsZero() {
			began = time.Now().Add(-r.Took)
		}
		if left -= r.Handled + r.Duplicates; left == 0 {
			ended = time.Now()
			close(done)
		}
	}
	m := s.start(b, cfg)
	<-done
	m.stop(b)
	return ended.Sub(began)
}

// BenchmarkConsumers prints the ways to consume side by side: PostgreSQL with fsync, brokers in the
// process, four partitions, an effect for each event.
func BenchmarkConsumers(b *testing.B) {
	s := newShop(b, harness.Postgres(b), harness.Kfake(b, sandbox.KafkaOptions{}), 4)
	s.db.Exec(b, "CREATE TABLE totals (key text PRIMARY KEY, n bigint, last bigint)")
	const events = 60_000
	const few = 3_000
	s.produce(b, events, 5000)
	single := func(ctx context.Context, tx pgx.Tx, r *kgo.Record) error {
		_, err := tx.Exec(ctx, effect, string(r.Key), number(r))
		return err
	}
	pipelined := func(ctx context.Context, tx pgx.Tx, records []*kgo.Record) error {
		batch := &pgx.Batch{}
		for _, r := range records {
			batch.Queue(effect, string(r.Key), number(r))
		}
		return tx.SendBatch(ctx, batch).Close()
	}
	bulk := func(ctx context.Context, tx pgx.Tx, records []*kgo.Record) error {
		keys, counts, lasts := make([]string, 0, len(records)), make([]int64, 0, len(records)), make([]int64, 0, len(records))
		at := map[string]int{}
		for _, r := range records {
			i, known := at[string(r.Key)]
			if !known {
				i = len(keys)
				at[string(r.Key)] = i
				keys, counts, lasts = append(keys, string(r.Key)), append(counts, 0), append(lasts, 0)
			}
			counts[i]++
			lasts[i] = number(r)
		}
		_, err := tx.Exec(ctx, `INSERT INTO totals SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[]) ORDER BY 1 ON CONFLICT (key) DO UPDATE SET n = totals.n + excluded.n, last = excluded.last`, keys, counts, lasts)
		return err
	}
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "way\tevents\tevents/s\tµs an event\t")
	line := func(name string, n int, took time.Duration) {
		fmt.Fprintf(table, "%s\t%d\t%.0f\t%.1f\t\n", name, n, float64(n)/took.Seconds(), took.Seconds()/float64(n)*1e6)
	}
	consumer := 0
	config := func() kafkainbox.Config {
		consumer++
		cfg := s.config()
		cfg.Consumer, cfg.Group, cfg.RoundEvents = fmt.Sprint("c", consumer), fmt.Sprint(s.group, consumer), 0
		return cfg
	}
	check := func() {
		b.Helper()
		if n := harness.Query[int](b, s.db, "SELECT sum(n)::int FROM totals"); n%events != 0 && n != few {
			b.Errorf("%d effects", n)
		}
		s.db.Exec(b, "TRUNCATE totals")
	}
	for b.Loop() {
		line("a loop by hand", few, s.naive(b, few))
		check()
		line("Watermill with SQL", few, s.watermill(b, few))
		check()
		if took, is := s.copied(b, few); is {
			line("the copied Python, repaired", few, took)
			check()
		}
		cfg := config()
		cfg.Handle = single
		line("Handle", events, s.timed(b, events, cfg))
		check()
		again := cfg
		again.Group += "-again"
		s.db.Exec(b, "DELETE FROM inbox_progress WHERE consumer = $1", cfg.Consumer) // else it goes on where it was
		line("Handle, all duplicates", events, s.timed(b, events, again))
		cfg = config()
		cfg.Handle, cfg.HandleRound = nil, pipelined
		line("HandleRound, pipelined", events, s.timed(b, events, cfg))
		check()
		cfg = config()
		cfg.Handle, cfg.HandleRound = nil, bulk
		line("HandleRound, one statement", events, s.timed(b, events, cfg))
		check()
		cfg = config()
		cfg.Handle, cfg.Offsets = single, true
		line("Handle, Offsets", events, s.timed(b, events, cfg))
		check()
		cfg = config()
		cfg.Handle, cfg.HandleRound, cfg.Offsets = nil, pipelined, true
		line("HandleRound, pipelined, Offsets", events, s.timed(b, events, cfg))
		check()
	}
	s.latencies(b, table, config())
	if err := table.Flush(); err != nil {
		b.Fatal(err)
	}
	fmt.Fprintf(os.Stderr, "\n%s", &text)
}

// latencies are from the record's timestamp to the commit of its effect, at 1 000 events a second.
func (s *shop) latencies(b *testing.B, table *tabwriter.Writer, cfg kafkainbox.Config) {
	topic := s.topic + "-paced"
	s.brokers.CreateTopic(b, topic, 4)
	cfg.Topics = []string{topic}
	cfg.Handle = func(ctx context.Context, tx pgx.Tx, r *kgo.Record) error {
		_, err := tx.Exec(ctx, effect, string(r.Key), number(r))
		return err
	}
	var mu sync.Mutex
	var took []time.Duration
	cfg.Events.Round = func(r kafkainbox.Round) {
		mu.Lock()
		defer mu.Unlock()
		took = append(took, time.Since(r.LastTimestamp))
	}
	m := s.start(b, cfg)
	const n = 5000
	for i := range n + 500 {
		<-time.After(time.Millisecond)
		if i == 500 { // the group has formed
			mu.Lock()
			took = nil
			mu.Unlock()
		}
		s.sent.Produce(b.Context(), &kgo.Record{Topic: topic, Key: fmt.Append(nil, i%100), Value: []byte("1"), Timestamp: time.Now(), Headers: []kgo.RecordHeader{{Key: "id", Value: fmt.Append(nil, i)}}}, nil)
	}
	if err := s.sent.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	m.stop(b)
	slices.Sort(took)
	fmt.Fprintf(table, "from record to effect at 1 000/s: p50 %s, p99 %s\t\t\t\t\n", took[len(took)/2].Round(10*time.Microsecond), took[len(took)*99/100].Round(10*time.Microsecond))
}
