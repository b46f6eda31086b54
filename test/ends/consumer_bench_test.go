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
			if err := s.byHand(b.Context(), r); err != nil {
				b.Fatal(err)
			}
		}
		if err := client.CommitUncommittedOffsets(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(began)
}

// byHand is how the loop handles a record.
func (s *shop) byHand(ctx context.Context, r *kgo.Record) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "INSERT INTO inbox (consumer, key, at) VALUES ('naive', $1, now()) ON CONFLICT DO NOTHING", header(r, "id"))
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		_, err = tx.Exec(ctx, effect, string(r.Key), number(r))
		return err
	})
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
	pipelined := kafkainbox.Pipelined(func(batch *pgx.Batch, r *kgo.Record) error {
		batch.Queue(effect, string(r.Key), number(r))
		return nil
	})
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
	fmt.Fprintln(table, "way\tevents\tevents/s\tµs an event\tbeside by hand\t")
	byHand := 0.0
	line := func(name string, n int, took time.Duration) {
		each := took.Seconds() / float64(n)
		if byHand == 0 {
			byHand = each
		}
		fmt.Fprintf(table, "%s\t%d\t%.0f\t%.1f\t%.1f times\t\n", name, n, 1/each, each*1e6, byHand/each)
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
	s.latencies(b, table, "a loop by hand", 200, s.naivePaced(b))
	for _, rate := range []int{200, 1000} {
		cfg := config()
		cfg.Handle = single
		s.latencies(b, table, "Handle", rate, s.paced(b, cfg))
	}
	if err := table.Flush(); err != nil {
		b.Fatal(err)
	}
	fmt.Fprintf(os.Stderr, "\n%s", &text)
}

// latency collects times from records' timestamps to the commit of their effects.
type latency struct {
	topic string
	stop  func()

	mu   sync.Mutex
	took []time.Duration
}

func (l *latency) add(since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = append(l.took, time.Since(since))
}

var pacedTopics int

func (s *shop) pacedTopic(b *testing.B) string {
	pacedTopics++
	topic := fmt.Sprint(s.topic, "-paced-", pacedTopics)
	s.brokers.CreateTopic(b, topic, 4)
	return topic
}

// paced is a consumer of a topic of its own.
func (s *shop) paced(b *testing.B, cfg kafkainbox.Config) *latency {
	l := &latency{topic: s.pacedTopic(b)}
	cfg.Topics = []string{l.topic}
	cfg.Events.Round = func(r kafkainbox.Round) { l.add(r.LastTimestamp) }
	m := s.start(b, cfg)
	l.stop = func() { m.stop(b) }
	return l
}

// naivePaced is the loop by hand on a topic of its own.
func (s *shop) naivePaced(b *testing.B) *latency {
	l := &latency{topic: s.pacedTopic(b)}
	client, err := kgo.NewClient(kgo.SeedBrokers(s.brokers.Addrs...), kgo.ConsumerGroup(l.topic), kgo.ConsumeTopics(l.topic), kgo.DisableAutoCommit(), kgo.FetchMaxWait(200*time.Millisecond))
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			for _, r := range client.PollRecords(ctx, 100).Records() {
				if err := s.byHand(b.Context(), r); err != nil {
					b.Error(err)
				}
				l.add(r.Timestamp)
			}
			_ = client.CommitUncommittedOffsets(ctx) // ended with ctx
		}
	})
	l.stop = func() {
		cancel()
		done.Wait()
		client.Close()
	}
	return l
}

// latencies prints them for a rate of events a second.
func (s *shop) latencies(b *testing.B, table *tabwriter.Writer, name string, rate int, l *latency) {
	n := 4 * rate
	pace := time.NewTicker(time.Second / time.Duration(rate))
	defer pace.Stop()
	for i := range n + rate {
		<-pace.C
		if i == rate { // the group has formed
			l.mu.Lock()
			l.took = nil
			l.mu.Unlock()
		}
		s.sent.Produce(b.Context(), &kgo.Record{Topic: l.topic, Key: fmt.Append(nil, i%100), Value: []byte("1"), Timestamp: time.Now(), Headers: []kgo.RecordHeader{{Key: "id", Value: fmt.Append(nil, l.topic, i)}}}, nil)
	}
	if err := s.sent.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	<-time.After(time.Second)
	l.stop()
	slices.Sort(l.took)
	fmt.Fprintf(table, "%s, from record to effect at %d/s: p50 %s, p99 %s\t\t\t\t\t\n", name, rate, l.took[len(l.took)/2].Round(10*time.Microsecond), l.took[len(l.took)*99/100].Round(10*time.Microsecond))
}
