package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	latencyWriters = 8
	warmUp         = 2 * time.Second
	brokerWarmUp   = 40 * time.Second
	maxLatencyRows = 1 << 22 // of one measurement; 119 of them stay below firstProbe
)

var latencyRates = []int{100, 1000, 5000}

// latency measures from sending the INSERT of a single-row transaction to its
// record in a consumer's hands: the time of INSERT and COMMIT themselves is
// inside. It also measures how long the slot's confirmed position stood still.
// Contestants take turns, as in a drain.
//
// The harness is the writers and the consumer, on the same cores as everybody else: it
// keeps to one processor, where its goroutines do not wake each other's threads.
func latency(ctx context.Context, b *bench) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	taking := b.taking(ctx, followers)
	runs := map[string][][]Latency{}
	var failed error
	for round := range latencyRounds(b.repeat) {
		for _, c := range taking {
			if c.runs > 0 && round >= c.runs || b.missing[c.name] != "" {
				continue
			}
			lines, err := b.latencyOf(ctx, c)
			if err != nil {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				b.refuse("latency", c, err)
				delete(runs, c.name)
				if c.name == relayKafka {
					failed = errors.Join(failed, fmt.Errorf("%s: %w", c.name, err))
				}
				continue
			}
			runs[c.name] = append(runs[c.name], lines)
		}
	}
	for _, c := range taking {
		b.results.Latencies = append(b.results.Latencies, typical(runs[c.name])...)
	}
	return failed
}

// latencyRounds is half of what a drain takes: each run lasts three quarters of a
// minute, however quick its contestant is.
func latencyRounds(repeat int) int { return (repeat + 1) / 2 }

// typical is for each rate the run whose p50 is the median, the worse one of two, with
// the longest standstill of all runs.
func typical(runs [][]Latency) []Latency {
	if len(runs) == 0 {
		return nil
	}
	lines := make([]Latency, len(runs[0]))
	for i := range lines {
		var same []Latency
		var p50s []float64
		still := 0.0
		for _, run := range runs {
			same, p50s = append(same, run[i]), append(p50s, run[i].P50)
			still = max(still, run[i].ConfirmedAge)
		}
		slices.SortStableFunc(same, func(a, b Latency) int { return cmp.Compare(a.P50, b.P50) })
		lines[i] = same[len(same)/2]
		lines[i].P50s, lines[i].ConfirmedAge = p50s, still
	}
	return lines
}

// latencyOf is one run of a contestant at every rate.
func (b *bench) latencyOf(ctx context.Context, c contestant) (lines []Latency, err error) {
	w, err := b.quiet(ctx, "latency")
	if err != nil {
		return nil, err
	}
	defer w.close(ctx)
	s, err := b.stand(ctx, w, c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.end(ctx)) }()
	if err := s.awaitRow(ctx); err != nil {
		return nil, err
	}
	// Code that a JVM has not compiled yet is slow: Debezium's, and the broker's for
	// small requests, which whoever comes first would pay for.
	if c.name == debezium || c.name == debeziumSoon || !b.followed {
		m := newMeter()
		if err := m.measure(ctx, s, 1000, brokerWarmUp); err != nil {
			return nil, fmt.Errorf("warm up: %w", err)
		}
		b.followed = true
	}
	for _, rate := range latencyRates {
		m := newMeter()
		if err := m.measure(ctx, s, rate, time.Duration(b.seconds)*time.Second); err != nil {
			return nil, fmt.Errorf("%d/s: %w", rate, err)
		}
		line, err := m.line(c.name, rate)
		if err != nil {
			return nil, fmt.Errorf("%d/s: %w", rate, err)
		}
		fmt.Printf("   %-18s %s\n", c.name, line)
		lines = append(lines, line)
	}
	return lines, nil
}

// meter pairs the sending of an INSERT with the arrival of its record. A row's
// number is its index; numbers of later meters go on from there. Each writer has
// its own numbers, and with them its own keys: only the rows of one writer have an
// order.
type meter struct {
	base    int64
	written atomic.Int64
	sent    []atomic.Int64 // unix nanoseconds, by number; 0: not written
	arrived []int64        // by number; the consumer's alone, as all that it counts
	got     atomic.Int64
	last    [keys]int64 // number by key
	probes  int         // that awaitRow wrote before

	twice, disordered, strange int

	from, to time.Time // what counts
	stall    time.Duration
	cpu      time.Duration
	took     time.Duration
}

var meters atomic.Int64

func newMeter() *meter {
	return &meter{base: meters.Add(1) * maxLatencyRows, sent: make([]atomic.Int64, maxLatencyRows), arrived: make([]int64, maxLatencyRows)}
}

func (m *meter) measure(ctx context.Context, s *standing, rate int, length time.Duration) error {
	consuming, endConsuming := context.WithCancel(ctx)
	defer endConsuming()
	var reader sync.WaitGroup
	m.probes = s.w.probes
	reader.Go(func() { m.consume(consuming, s.consumer) })
	writing, endWriting := context.WithTimeout(ctx, warmUp+length)
	defer endWriting()
	began := time.Now()
	m.from = began.Add(warmUp)
	stalled := make(chan error, 1)
	go func() {
		var err error
		m.stall, err = watchSlot(writing, s.w.conn, s.slot)
		stalled <- err
	}()
	before := cpuTimes(s.pid)
	err := m.write(writing, s.w, rate)
	after := cpuTimes(s.pid)
	m.cpu, m.took, m.to = after-before, time.Since(began), time.Now()
	endWriting()
	if unseen := <-stalled; err == nil {
		err = unseen
	}
	for end := time.Now().Add(20 * time.Second); m.got.Load() < m.written.Load() && time.Now().Before(end); {
		if !pause(ctx, 10*time.Millisecond) {
			break
		}
	}
	endConsuming()
	reader.Wait()
	if ctx.Err() != nil { // less was written than was asked for
		return context.Cause(ctx)
	}
	return err
}

// write keeps to a schedule: a writer that is late does not wait for the next
// tick, so that the rate is what was asked for as long as the server can.
func (m *meter) write(ctx context.Context, w *workload, rate int) error {
	errs := make(chan error, latencyWriters)
	began := time.Now()
	interval := time.Second * latencyWriters / time.Duration(rate)
	for i := range latencyWriters {
		go func() {
			errs <- m.writer(ctx, w, int64(i), began.Add(interval*time.Duration(i)/latencyWriters), interval)
		}()
	}
	var first error
	for range latencyWriters {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (m *meter) writer(ctx context.Context, w *workload, i int64, next time.Time, interval time.Duration) error {
	lasting := context.WithoutCancel(ctx)
	settings, err := pgx.ParseConfig(w.url())
	if err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(lasting, settings)
	if err != nil {
		return err
	}
	defer conn.Close(lasting)
	const insert = "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ($1, $2, 'Changed', $3)"
	if _, err := conn.Prepare(lasting, "write", insert); err != nil {
		return err
	}
	for n := 1 + i; ; n += latencyWriters {
		if wait := time.Until(next); wait > 0 && !pause(ctx, wait) || ctx.Err() != nil {
			return nil
		}
		next = next.Add(interval)
		if n >= maxLatencyRows {
			return fmt.Errorf("more than %d rows", maxLatencyRows)
		}
		topic, key, payload := fmt.Sprintf("bench%d", n%4), aggregate(n), order(m.base+n)
		m.written.Add(1)
		m.sent[n].Store(time.Now().UnixNano())
		if _, err := conn.Exec(lasting, "write", topic, key, payload); err != nil {
			return err
		}
	}
}

func (m *meter) consume(ctx context.Context, client *kgo.Client) {
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		now := time.Now().UnixNano()
		fetches.EachRecord(func(r *kgo.Record) { m.take(r.Value, now) })
	}
}

// take passes over the rows of earlier measurements and of awaitRow.
func (m *meter) take(value []byte, now int64) {
	n, ok := number(value)
	at := int64(n) - m.base
	switch {
	case !ok:
		m.strange++
	case at < 0 && n > maxLatencyRows, n > firstProbe && n <= firstProbe+m.probes:
	case at < 1 || at >= maxLatencyRows || m.sent[at].Load() == 0:
		m.strange++
	case m.arrived[at] != 0:
		m.twice++
	default:
		m.arrived[at] = now
		if key := at % keys; at < m.last[key] {
			m.disordered++
		} else {
			m.last[key] = at
		}
		m.got.Add(1)
	}
}

// line is the figure, unless a row is missing, came twice or out of its key's order, or a
// record is none of the rows.
func (m *meter) line(name string, rate int) (Latency, error) {
	rows := m.written.Load()
	if lost := rows - m.got.Load(); lost > 0 || m.twice > 0 || m.disordered > 0 || m.strange > 0 {
		return Latency{}, fmt.Errorf("%w: of %d rows %d are missing, %d came twice and %d out of their key's order; %d records are none of ours",
			errUnverified, rows, lost, m.twice, m.disordered, m.strange)
	}
	var delays []float64
	for n := range m.sent {
		if at := m.sent[n].Load(); at > 0 && at >= m.from.UnixNano() {
			delays = append(delays, float64(m.arrived[n]-at)/1e6)
		}
	}
	if len(delays) == 0 {
		return Latency{}, fmt.Errorf("%w: nothing was written", errUnverified)
	}
	slices.Sort(delays)
	at := func(q float64) float64 { return delays[int(q*float64(len(delays)-1))] }
	return Latency{
		Contestant: name, Rate: rate, Reached: float64(len(delays)) / m.to.Sub(m.from).Seconds(), Rows: len(delays),
		P50: at(0.5), P95: at(0.95), P99: at(0.99), Max: at(1),
		ConfirmedAge: m.stall.Seconds(), CPUPercent: 100 * m.cpu.Seconds() / m.took.Seconds(),
	}, nil
}
