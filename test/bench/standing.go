package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// outage freezes the broker in the middle of a drain. What counts is memory, and
// that every row arrives once.
func outage(ctx context.Context, b *bench) error {
	taking := b.taking(ctx, named(relayKafka))
	if len(taking) == 0 {
		return nil
	}
	c := taking[0]
	w, err := b.fill(ctx, "outage", usual(b.rows))
	if err != nil {
		return err
	}
	defer w.close(ctx)
	to, err := b.brokers(ctx, toKafka)
	if err == nil {
		err = to.topics(ctx, w.topicNames(), 4)
	}
	if err != nil {
		return err
	}
	_, base, err := to.offsets(ctx, w.topicNames())
	if err != nil {
		return err
	}
	peak := 0.0
	run, err := w.drain(ctx, c, func(ctx context.Context, r *running) error {
		if err := w.midway(ctx, to, base); err != nil {
			return err
		}
		if err := b.apache.Pause(); err != nil {
			return err
		}
		whole := pause(ctx, b.outage)
		peak = float64(memory(r.pid, "VmHWM:")) / 1e6
		if err := b.apache.Continue(); err != nil {
			return err
		}
		if !whole {
			return context.Cause(ctx)
		}
		return nil
	})
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		b.refuse("outage", c, err)
		return fmt.Errorf("%s: %w", c.name, err)
	}
	b.results.Outage = &Outage{Seconds: b.outage.Seconds(), Rows: w.rows, PeakMB: max(peak, run.PeakMB[groupContestant])}
	fmt.Printf("   broker away for %s: peak %.1f MB, every row once\n", b.outage, b.results.Outage.PeakMB)
	return nil
}

// midway returns when a tenth of the rows has arrived, and refuses when most of them
// have: an outage after a drain costs no memory.
func (w *workload) midway(ctx context.Context, to *cluster, base int64) error {
	for pause(ctx, 5*time.Millisecond) {
		_, now, err := to.offsets(ctx, w.topicNames())
		if err != nil {
			return err
		}
		switch arrived := now - base; {
		case arrived > int64(w.rows)*3/4:
			return fmt.Errorf("%d of %d rows had arrived before the broker could be stopped: it takes more -rows", arrived, w.rows)
		case arrived >= int64(w.rows)/10:
			return nil
		}
	}
	return context.Cause(ctx)
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
	if s.consumer, err = to.follow(ctx, w.topicNames()); err != nil {
		return nil, errors.Join(err, w.drop(ctx, slot))
	}
	s.running, err = c.start(ctx, b, job{w: w, slot: slot, topics: w.topicNames(), to: to, begin: func(context.Context) error { return nil }})
	if err != nil {
		return nil, errors.Join(err, s.end(ctx))
	}
	return s, nil
}

// follow gives a consumer that stands at the ends of topics and is connected.
func (c *cluster) follow(ctx context.Context, topics []string) (*kgo.Client, error) {
	ends, _, err := c.offsets(ctx, topics)
	if err != nil {
		return nil, err
	}
	from := map[string]map[int32]kgo.Offset{}
	ends.Each(func(o kadm.ListedOffset) {
		if from[o.Topic] == nil {
			from[o.Topic] = map[int32]kgo.Offset{}
		}
		from[o.Topic][o.Partition] = kgo.NewOffset().At(o.Offset)
	})
	consumer, err := kgo.NewClient(kgo.SeedBrokers(c.addrs...), kgo.ConsumePartitions(from),
		kgo.FetchMinBytes(1), kgo.FetchMaxWait(500*time.Millisecond), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return nil, err
	}
	if err := settle(ctx, consumer, ends); err != nil {
		consumer.Close()
		return nil, fmt.Errorf("follow %d topics: %w", len(topics), err)
	}
	return consumer, nil
}

// settle has a mark come through every partition. A client's first fetch may have a part
// of them, and the others would wait with it for as long as the broker holds it.
func settle(ctx context.Context, consumer *kgo.Client, ends kadm.ListedOffsets) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	type place struct {
		topic     string
		partition int32
	}
	var marks []*kgo.Record
	missing := map[place]bool{}
	ends.Each(func(o kadm.ListedOffset) {
		marks = append(marks, &kgo.Record{Topic: o.Topic, Partition: o.Partition, Value: []byte(mark)})
		missing[place{o.Topic, o.Partition}] = true
	})
	if err := consumer.ProduceSync(ctx, marks...).FirstErr(); err != nil {
		return err
	}
	for len(missing) > 0 {
		got := consumer.PollFetches(ctx)
		if err := got.Err(); err != nil {
			return err
		}
		got.EachRecord(func(r *kgo.Record) {
			if string(r.Value) == mark { // and no record that an earlier contestant left
				delete(missing, place{r.Topic, r.Partition})
			}
		})
	}
	return nil
}

// mark is no row's payload.
const mark = "mark"

// awaitRow writes rows until one of them comes through.
func (s *standing) awaitRow(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if _, err := s.w.probe(ctx); err != nil {
			return err
		}
		brief, done := context.WithTimeout(ctx, 500*time.Millisecond)
		got := s.consumer.PollFetches(brief)
		done()
		if err := s.w.verifyProbes(got, firstProbe+1); err != nil {
			return err
		}
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

// firstProbe is where the numbers of probes begin, beyond those of all other rows.
const firstProbe = 500_000_000

// probe writes a row; several contestants may follow one workload.
func (w *workload) probe(ctx context.Context) (int, error) {
	w.probes++
	n := firstProbe + w.probes
	_, err := w.conn.Exec(ctx, "SELECT bench_rows($1, $1, 285, $2)", n, w.topics)
	return n, err
}

// verifyProbes refuses records that are none of the probes from one on.
func (w *workload) verifyProbes(got kgo.Fetches, from int) error {
	var err error
	got.EachRecord(func(r *kgo.Record) {
		if n, ok := number(r.Value); !ok || n < from || n > firstProbe+w.probes {
			err = fmt.Errorf("%w: a record is none of the rows that were written", errUnverified)
		}
	})
	return err
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
	return c.sink == toKafka && c.name != debeziumWarm && (c.follows || everyone(c) && !c.drains)
}

// coldStart is from the start of the process to a waiting row in a consumer's
// hands.
func coldStart(ctx context.Context, b *bench) error {
	w, err := b.quiet(ctx, "cold")
	if err != nil {
		return err
	}
	defer w.close(ctx)
	var failed error
	for _, c := range b.taking(ctx, func(c contestant) bool { return followers(c) && c.name != polling && c.name != debeziumSoon }) {
		var all []float64
		for n := range 5 {
			if c.name == debezium && n > 1 {
				break
			}
			took, err := b.startOnce(ctx, w, c)
			if err != nil {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				b.refuse("start", c, err)
				if c.name == relayKafka {
					failed = errors.Join(failed, fmt.Errorf("%s: %w", c.name, err))
				}
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
	return failed
}

func (b *bench) startOnce(ctx context.Context, w *workload, c contestant) (took time.Duration, err error) {
	waiting := contestant{name: c.name, sink: c.sink, start: func(context.Context, *bench, job) (*running, error) { return nil, nil }}
	s, err := b.stand(ctx, w, waiting)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.end(ctx)) }()
	row, err := w.probe(ctx)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	s.running, err = c.start(ctx, b, job{w: w, slot: s.slot, topics: w.topicNames(), to: s.to, begin: func(context.Context) error { return nil }})
	if err != nil {
		return 0, err
	}
	bounded, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		got := s.consumer.PollFetches(bounded)
		if took = time.Since(began); got.NumRecords() > 0 {
			return took, w.verifyProbes(got, row)
		}
		select {
		case <-s.exited:
			return 0, fmt.Errorf("it ended: %s", s.log)
		case <-bounded.Done():
			return 0, fmt.Errorf("no record came: %s", s.log)
		default:
		}
	}
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
	var failed error
	for _, c := range b.taking(ctx, followers) {
		line, err := b.idleOf(ctx, w, c)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			b.refuse("idle", c, err)
			if c.name == relayKafka {
				failed = errors.Join(failed, fmt.Errorf("%s: %w", c.name, err))
			}
			continue
		}
		b.results.Idles = append(b.results.Idles, line)
		fmt.Printf("   %-18s %.3f %% of a core, %.1f MB\n", line.Contestant, line.CPUPercent, line.MB)
	}
	return failed
}

// idleOf has a row come through before and after: who ended or hangs needs no CPU.
func (b *bench) idleOf(ctx context.Context, w *workload, c contestant) (line Idle, err error) {
	s, err := b.stand(ctx, w, c)
	if err != nil {
		return line, err
	}
	defer func() { err = errors.Join(err, s.end(ctx)) }()
	if err := s.awaitRow(ctx); err != nil {
		return line, err
	}
	if !pause(ctx, 2*time.Second) {
		return line, context.Cause(ctx)
	}
	before, began := cpuTimes(s.pid), time.Now()
	if !pause(ctx, time.Duration(b.seconds)*time.Second) {
		return line, context.Cause(ctx)
	}
	spent, took := cpuTimes(s.pid)-before, time.Since(began)
	line = Idle{Contestant: c.name, CPUPercent: 100 * spent.Seconds() / took.Seconds()}
	for _, pid := range family(s.pid) {
		line.MB += float64(memory(pid, "VmRSS:")) / 1e6
	}
	return line, s.awaitRow(ctx)
}
