package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	latencyRate    = 1000 // single-row transactions a second
	latencyWriters = 8
	warmUp         = 2 * time.Second
)

// latency measures from sending COMMIT to the record in a consumer's hands, and
// how long the slot's confirmed position stood still under that load.
func (b *bench) latency(ctx context.Context) error {
	fmt.Printf("latency: %d single-row transactions a second for %d s\n", latencyRate, b.seconds)
	conn, err := b.database(ctx, "latency", "bench_latency")
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return b.withBrokers(ctx, func() error {
		p, err := b.start(ctx, "latency", "bench_latency")
		if err != nil {
			return err
		}
		m := &meter{committed: map[int64]time.Time{}, began: time.Now()}
		consuming, endConsuming := context.WithCancel(ctx)
		var readers sync.WaitGroup
		readers.Go(func() { err = m.consume(consuming, b.brokers) })
		writing, endWriting := context.WithTimeout(ctx, warmUp+time.Duration(b.seconds)*time.Second)
		stall := make(chan time.Duration, 1)
		go func() { stall <- watchSlot(writing, conn) }()
		writeErr := m.write(writing, b.pg.URL("latency"))
		endWriting()
		longest := <-stall
		m.waitForAll(10 * time.Second)
		endConsuming()
		readers.Wait()
		use, stopErr := p.stop()
		for _, e := range []error{writeErr, err, stopErr} {
			if e != nil {
				return e
			}
		}
		m.report(longest, use)
		return nil
	})
}

// meter pairs commits and records by number.
type meter struct {
	mu        sync.Mutex
	began     time.Time
	next      int64
	written   int64
	committed map[int64]time.Time
	delays    []time.Duration
}

func (m *meter) write(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	var writers sync.WaitGroup
	errs := make(chan error, latencyWriters)
	for range latencyWriters {
		writers.Go(func() {
			tick := time.NewTicker(time.Second * latencyWriters / latencyRate)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				if err := m.writeOne(context.WithoutCancel(ctx), pool); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	writers.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

func (m *meter) writeOne(ctx context.Context, pool *pgxpool.Pool) error {
	m.mu.Lock()
	m.next++
	n := m.next
	m.mu.Unlock()
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, insertRows, n, n); err != nil {
			return err
		}
		m.mu.Lock()
		m.committed[n] = time.Now() // COMMIT is the next thing that is sent
		m.written++
		m.mu.Unlock()
		return nil
	})
}

func (m *meter) consume(ctx context.Context, brokers string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(brokers, ",")...),
		kgo.ConsumeTopics("order-events", "customer-events", "invoice-events", "shipment-events"),
		kgo.FetchMinBytes(1), kgo.FetchMaxWait(500*time.Millisecond))
	if err != nil {
		return err
	}
	defer client.Close()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		now := time.Now()
		m.mu.Lock()
		fetches.EachRecord(func(r *kgo.Record) {
			var event struct{ N int64 }
			if err := json.Unmarshal(r.Value, &event); err != nil {
				return
			}
			if at, ok := m.committed[event.N]; ok {
				if at.Sub(m.began) > warmUp {
					m.delays = append(m.delays, now.Sub(at))
				}
				delete(m.committed, event.N)
			}
		})
		m.mu.Unlock()
	}
	return nil
}

func (m *meter) waitForAll(limit time.Duration) {
	for end := time.Now().Add(limit); time.Now().Before(end); <-time.After(10 * time.Millisecond) {
		m.mu.Lock()
		left := len(m.committed)
		m.mu.Unlock()
		if left == 0 {
			return
		}
	}
}

// watchSlot says how long the confirmed position stood still at most.
func watchSlot(ctx context.Context, conn *pgx.Conn) time.Duration {
	var longest time.Duration
	var last string
	moved := time.Now().Add(warmUp)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return longest
		case now := <-tick.C:
			var position string
			err := conn.QueryRow(context.WithoutCancel(ctx), "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = 'bench_latency'").Scan(&position)
			if err != nil {
				return longest
			}
			if lsn(position) != lsn(last) {
				last, moved = position, later(moved, now)
			}
			longest = max(longest, now.Sub(moved))
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (m *meter) report(stall time.Duration, u usage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.delays) == 0 {
		fmt.Println("  nothing arrived")
		return
	}
	slices.Sort(m.delays)
	at := func(q float64) float64 {
		return float64(m.delays[int(q*float64(len(m.delays)-1))].Microseconds()) / 1000
	}
	fmt.Printf("  %d rows: p50 %.1f ms  p95 %.1f ms  p99 %.1f ms  max %.1f ms; missing %d\n", len(m.delays), at(0.5), at(0.95), at(0.99), at(1), len(m.committed))
	fmt.Printf("  confirmed position stood still for at most %.2f s; relay took %.1f %% of a core, peak %.1f MB\n",
		stall.Seconds(), 100*u.cpu.Seconds()/time.Since(m.began).Seconds(), float64(u.peak)/1e6)
}
