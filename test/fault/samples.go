package main

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/sandbox"
)

// Sample is a look at the slot, and at the brokers right after it: whatever the
// slot says must be covered by what the brokers have.
type Sample struct {
	At        time.Time `json:"at"`
	Confirmed uint64    `json:"confirmed"`
	Restart   uint64    `json:"restart"`
	WAL       uint64    `json:"wal"`
	PID       int       `json:"pid"`            // of the walsender; 0: nobody streams
	Ends      []int64   `json:"ends,omitempty"` // by topic and partition; nil: the brokers did not answer
}

// period is how often the slot is looked at.
const period = 50 * time.Millisecond

type sampler struct {
	w    *world
	quit chan struct{}
	work sync.WaitGroup
	once sync.Once

	mu    sync.Mutex // held while a sample is taken, and while a topic is made anew
	taken []Sample
	base  []int64 // records of earlier lives of each partition
}

func startSampler(w *world) *sampler {
	s := &sampler{w: w, quit: make(chan struct{}), base: make([]int64, len(w.watched())*partitions)}
	s.work.Go(s.run)
	return s
}

func (s *sampler) end() {
	s.once.Do(func() { close(s.quit) })
	s.work.Wait()
}

func (s *sampler) run() {
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			_ = conn.Close(context.Background())
		}
	}()
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.quit:
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		var err error
		if conn == nil {
			conn, err = pgx.Connect(ctx, s.w.pg.URL(s.w.database))
		}
		if err == nil {
			if err = s.take(ctx, conn); err != nil {
				_ = conn.Close(ctx)
			}
		}
		if err != nil {
			conn = nil
		}
		cancel()
	}
}

func (s *sampler) take(ctx context.Context, conn *pgx.Conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var confirmed, restart, wal string
	sample := Sample{At: time.Now()}
	err := conn.QueryRow(ctx, `SELECT confirmed_flush_lsn::text, restart_lsn::text, pg_current_wal_insert_lsn()::text, coalesce(active_pid, 0)
		FROM pg_replication_slots WHERE slot_name = $1`, s.w.slot).Scan(&confirmed, &restart, &wal, &sample.PID)
	if err != nil {
		return err
	}
	for _, each := range []struct {
		to   *uint64
		text string
	}{{&sample.Confirmed, confirmed}, {&sample.Restart, restart}, {&sample.WAL, wal}} {
		if *each.to, err = parseLSN(each.text); err != nil {
			return err
		}
	}
	sample.Ends = s.ends()
	s.taken = append(s.taken, sample)
	return nil
}

// ends are the positions behind the last record of each partition, counted over
// all lives of its topic.
func (s *sampler) ends() []int64 {
	ends := make([]int64, 0, len(s.base))
	if fake, ok := s.w.kafka.(*sandbox.Kafka); ok {
		for _, topic := range s.w.watched() {
			for p := range int32(partitions) {
				info := fake.Cluster().PartitionInfo(topic, p)
				if info == nil {
					return nil
				}
				ends = append(ends, s.base[len(ends)]+info.HighWatermark)
			}
		}
		return ends
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	listed, err := s.w.admin.ListEndOffsets(ctx, s.w.watched()...)
	if err != nil {
		return nil
	}
	for _, topic := range s.w.watched() {
		for p := range int32(partitions) {
			offset, found := listed.Lookup(topic, p)
			if !found || offset.Err != nil {
				return nil
			}
			ends = append(ends, s.base[len(ends)]+offset.Offset)
		}
	}
	return ends
}

// latest is the last sample, if there is one.
func (s *sampler) latest() (Sample, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.taken) == 0 {
		return Sample{}, false
	}
	return s.taken[len(s.taken)-1], true
}

func (s *sampler) all() []Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Sample(nil), s.taken...)
}
