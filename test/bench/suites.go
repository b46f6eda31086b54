package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// suite is one group of measurements.
type suite struct {
	name, about string
	always      bool // part of a run without -full
	run         func(context.Context, *bench) error
}

func everyone(c contestant) bool { return c.shards == 0 && !c.columns }

// quick are the contestants of suites that vary one dimension.
var quick = named(limit, relayDiscard, relayKafka)

func suites() []suite {
	return []suite{
		{"drain", "a backlog in transactions of 10 rows", true, func(ctx context.Context, b *bench) error {
			return b.compare(ctx, "drain", usual(b.rows), everyone)
		}},
		{"single", "a backlog in transactions of one row", true, func(ctx context.Context, b *bench) error {
			s := usual(max(b.rows*3/10, 1))
			s.perTxn = 1
			return b.compare(ctx, "single", s, quick)
		}},
		{"large", "one transaction", true, func(ctx context.Context, b *bench) error {
			s := usual(b.rows)
			s.perTxn = s.rows
			return b.once(ctx, "large", s, func(c contestant) bool { return c.large && (c.name != debezium || b.full) })
		}},
		{"outage", "the broker stops answering in the middle of a drain", true, outage},
		{"latency", "commit to consumer at a steady rate", true, latency},
		{"start", "start of the process to its first record", true, coldStart},
		{"idle", "attached to a slot of a quiet database", true, idle},
		{"thousand", "a backlog in transactions of 1000 rows", false, func(ctx context.Context, b *bench) error {
			s := usual(b.rows)
			s.perTxn = 1000
			return b.compare(ctx, "thousand", s, quick)
		}},
		{"payload", "payloads of 100 B, 1 KB, 10 KB and 200 KB", false, func(ctx context.Context, b *bench) error {
			var failed error
			for _, size := range []int{100, 1_000, 10_000, 200_000} {
				s := usual(min(b.rows, max(1000, b.rows*600/max(size, 600))))
				s.payload = size
				failed = errors.Join(failed, b.compare(ctx, fmt.Sprintf("payload_%d", size), s, quick))
			}
			return failed
		}},
		{"topics", "1, 100 and 1000 topics", false, func(ctx context.Context, b *bench) error {
			var failed error
			for _, n := range []int{1, 100, 1000} {
				s := usual(b.rows)
				s.topics = n
				failed = errors.Join(failed, b.compare(ctx, fmt.Sprintf("topics_%d", n), s, named(relayKafka)))
			}
			return failed
		}},
		{"shards", "a backlog through 1, 2 and 4 slots", false, func(ctx context.Context, b *bench) error {
			return b.compare(ctx, "shards", usual(b.rows), named(relayKafka, relayShards2, relayShards4))
		}},
		{"columns", "rows with a wide column that the mapping does not read, with and without a column list", false, func(ctx context.Context, b *bench) error {
			s := usual(b.rows)
			s.wide = 2048
			return b.compare(ctx, "columns", s, named(limit, relayKafka, relayColumns))
		}},
		{"backlog", "backlogs of a tenth to ten times the rows", false, func(ctx context.Context, b *bench) error {
			var failed error
			for _, n := range []int{b.rows / 10, b.rows, 10 * b.rows} {
				failed = errors.Join(failed, b.once(ctx, fmt.Sprintf("backlog_%d", n), usual(n), named(relayKafka)))
			}
			return failed
		}},
	}
}

func chooseSuites(o options) ([]suite, error) {
	asked := chosenNames(o.suites)
	usual := len(asked) == 0
	var chosen []suite
	for _, s := range suites() {
		if asked[s.name] || usual && (s.always || o.full) {
			chosen = append(chosen, s)
		}
		delete(asked, s.name)
	}
	for name := range asked {
		return nil, fmt.Errorf("there is no suite %q; -list shows them", name)
	}
	known := map[string]bool{}
	for _, c := range contestants() {
		known[c.name] = true
	}
	for name := range chosenNames(o.only + "," + o.without) {
		if !known[name] {
			return nil, fmt.Errorf("there is no contestant %q; -list shows them", name)
		}
	}
	return chosen, nil
}

func printList() {
	fmt.Println("suites (* without -full too):")
	for _, s := range suites() {
		mark := " "
		if s.always {
			mark = "*"
		}
		fmt.Printf(" %s %-10s %s\n", mark, s.name, s.about)
	}
	fmt.Println("contestants:")
	for _, c := range contestants() {
		fmt.Printf("   %-18s writes to %s\n", c.name, c.sink)
	}
	fmt.Println("   CONTESTANT_name=command in the environment adds one")
}

// once is compare with one run each.
func (b *bench) once(ctx context.Context, name string, s shape, keep func(contestant) bool) error {
	repeat := b.repeat
	b.repeat = 1
	defer func() { b.repeat = repeat }()
	return b.compare(ctx, name, s, keep)
}

// outage freezes the broker in the middle of a drain. What counts is memory, and
// that every row arrives once.
func outage(ctx context.Context, b *bench) error {
	if len(b.taking(ctx, named(relayKafka))) == 0 || b.apache == nil {
		return nil
	}
	c := b.taking(ctx, named(relayKafka))[0]
	w, err := b.fill(ctx, "outage", usual(b.rows))
	if err != nil {
		return err
	}
	defer w.close(ctx)
	peak := 0.0
	run, err := w.drain(ctx, c, func(ctx context.Context, r *running) error {
		if !pause(ctx, 1500*time.Millisecond) {
			return context.Cause(ctx)
		}
		if err := b.apache.Pause(); err != nil {
			return err
		}
		pause(ctx, b.outage)
		peak = float64(memory(r.pid, "VmHWM:")) / 1e6
		return b.apache.Continue()
	})
	if err != nil {
		return err
	}
	b.results.Outage = &Outage{Seconds: b.outage.Seconds(), Rows: w.rows, PeakMB: max(peak, run.PeakMB[groupContestant])}
	fmt.Printf("   broker away for %s: peak %.1f MB, every row once\n", b.outage, b.results.Outage.PeakMB)
	return nil
}

// standing is a contestant that follows an otherwise quiet database.
type standing struct {
	*running
	c        contestant
	w        *workload
	slot     string
	to       *cluster
	consumer *kgo.Client
}

// stand starts a contestant at the tip.
func (b *bench) stand(ctx context.Context, w *workload, c contestant) (*standing, error) {
	to, err := b.brokers(ctx, c.sink)
	if err != nil {
		return nil, err
	}
	if err := to.topics(ctx, w.topicNames(), 4); err != nil {
		return nil, err
	}
	slot, err := w.freshSlot(ctx)
	if err != nil {
		return nil, err
	}
	s := &standing{c: c, w: w, slot: slot, to: to}
	s.consumer, err = kgo.NewClient(kgo.SeedBrokers(to.addrs...), kgo.ConsumeTopics(w.topicNames()...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()), kgo.FetchMinBytes(1), kgo.FetchMaxWait(500*time.Millisecond),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return nil, err
	}
	if err := s.settleConsumer(ctx); err != nil {
		return nil, errors.Join(err, s.end(ctx))
	}
	s.running, err = c.start(ctx, b, job{w: w, slot: slot, topics: w.topicNames(), to: to, begin: func(context.Context) error { return nil }})
	if err != nil {
		return nil, errors.Join(err, s.end(ctx))
	}
	return s, nil
}

// settleConsumer returns once the consumer stands at the ends that are there.
func (s *standing) settleConsumer(ctx context.Context) error {
	_, err := s.to.admin.ListTopics(ctx)
	if err != nil {
		return err
	}
	brief, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	s.consumer.PollFetches(brief)
	return nil
}

// awaitRow writes rows until one of them comes through.
func (s *standing) awaitRow(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		s.w.probes++ // several contestants may follow one workload
		if _, err := s.w.conn.Exec(ctx, "SELECT bench_rows($1, $1, 285, $2)", 500_000_000+s.w.probes, s.w.topics); err != nil {
			return err
		}
		brief, done := context.WithTimeout(ctx, 500*time.Millisecond)
		got := s.consumer.PollFetches(brief)
		done()
		if got.NumRecords() > 0 {
			return nil
		}
		select {
		case <-s.exited:
			return fmt.Errorf("it ended: %s", s.log)
		case <-ctx.Done():
			return fmt.Errorf("no record came through: %s", s.log)
		default:
		}
	}
}

func (s *standing) end(ctx context.Context) error {
	var err error
	if s.running != nil && s.stop != nil {
		err = s.stop()
	}
	s.consumer.Close()
	return errors.Join(err, s.w.drop(ctx, s.slot))
}

// followers take part where the point is a steady stream.
var followers = func(c contestant) bool {
	return c.sink == toKafka && c.name != debeziumWarm && everyone(c)
}

// coldStart is from the start of the process to a waiting row in a consumer's
// hands.
func coldStart(ctx context.Context, b *bench) error {
	w, err := b.quiet(ctx, "cold")
	if err != nil {
		return err
	}
	defer w.close(ctx)
	for _, c := range b.taking(ctx, func(c contestant) bool { return followers(c) && c.name != polling }) {
		var all []float64
		for n := range 5 {
			if c.name == debezium && n > 1 {
				break
			}
			took, err := b.startOnce(ctx, w, c, n)
			if err != nil {
				fmt.Printf("   %-18s no figure: %v\n", c.name, err)
				all = nil
				break
			}
			all = append(all, took.Seconds())
		}
		if len(all) > 0 {
			slices.Sort(all)
			b.results.Starts = append(b.results.Starts, Start{Contestant: c.name, Seconds: all[len(all)/2], Runs: all})
			fmt.Printf("   %-18s %.3f s (%.3f to %.3f)\n", c.name, all[len(all)/2], all[0], all[len(all)-1])
		}
	}
	return nil
}

func (b *bench) startOnce(ctx context.Context, w *workload, c contestant, n int) (time.Duration, error) {
	waiting := contestant{name: c.name, sink: c.sink, start: func(context.Context, *bench, job) (*running, error) { return nil, nil }}
	s, err := b.stand(ctx, w, waiting)
	if err != nil {
		return 0, err
	}
	defer s.end(ctx)
	if _, err := w.conn.Exec(ctx, "SELECT bench_rows($1, $1, 285, $2)", 600_000_000+n+1000*len(b.results.Starts), w.topics); err != nil {
		return 0, err
	}
	began := time.Now()
	s.running, err = c.start(ctx, b, job{w: w, slot: s.slot, topics: w.topicNames(), to: s.to, begin: func(context.Context) error { return nil }})
	if err != nil {
		return 0, err
	}
	bounded, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for s.consumer.PollFetches(bounded).NumRecords() == 0 {
		select {
		case <-s.exited:
			return 0, fmt.Errorf("it ended: %s", s.log)
		case <-bounded.Done():
			return 0, fmt.Errorf("no record came: %s", s.log)
		default:
		}
	}
	return time.Since(began), nil
}

// quiet makes a database with the table and no rows.
func (b *bench) quiet(ctx context.Context, name string) (*workload, error) {
	w := &workload{shape: usual(0), b: b, database: name}
	if err := w.create(ctx); err != nil {
		return nil, err
	}
	_, err := w.conn.Exec(ctx, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", baseSlot+"_"+name)
	return w, err
}

// idle attaches and does nothing for a while.
func idle(ctx context.Context, b *bench) error {
	w, err := b.quiet(ctx, "idle")
	if err != nil {
		return err
	}
	defer w.close(ctx)
	for _, c := range b.taking(ctx, followers) {
		s, err := b.stand(ctx, w, c)
		if err == nil {
			err = s.awaitRow(ctx)
		}
		if err != nil {
			fmt.Printf("   %-18s no figure: %v\n", c.name, err)
			if s != nil {
				_ = s.end(ctx)
			}
			continue
		}
		pause(ctx, 2*time.Second)
		before, _ := cpuTime(s.pid)
		began := time.Now()
		pause(ctx, time.Duration(b.seconds)*time.Second)
		after, _ := cpuTime(s.pid)
		line := Idle{Contestant: c.name, CPUPercent: 100 * (after - before).Seconds() / time.Since(began).Seconds(), MB: float64(memory(s.pid, "VmRSS:")) / 1e6}
		if err := s.end(ctx); err != nil && !strings.Contains(err.Error(), "signal") {
			return err
		}
		b.results.Idles = append(b.results.Idles, line)
		fmt.Printf("   %-18s %.2f %% of a core, %.1f MB\n", line.Contestant, line.CPUPercent, line.MB)
	}
	return nil
}
