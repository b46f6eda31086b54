package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/cdc-relay/cdc-relay/sink/producer"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// counting opens a sink that gathers for so long in a backlog, and counts what it writes.
func counting(t testing.TB, gather time.Duration, change func(*producer.Config)) (*kafka.Sink, *atomic.Int64) {
	t.Helper()
	c := cluster(t, kfake.SeedTopics(1, "orders"))
	var requests atomic.Int64
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		requests.Add(1)
		return nil, nil, false
	})
	return openGathering(t, c, gather, change), &requests
}

func some(first, n int) []record.Record {
	records := make([]record.Record, n)
	for i := range records {
		records[i] = record.Record{Topic: "orders", Key: fmt.Append(nil, first+i), Value: fmt.Append(nil, "value ", first+i), Partition: record.AutoPartition}
	}
	return records
}

// send gives records to the sink and returns what happens to them.
func send(s sink.Sink, records []record.Record) <-chan error {
	done := make(chan error, 1)
	s.Send(context.Background(), records, func(err error) { done <- err })
	return done
}

func await(t testing.TB, outcomes ...<-chan error) {
	t.Helper()
	for _, outcome := range outcomes {
		select {
		case err := <-outcome:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(guardTime):
			t.Fatal("a record was neither delivered nor failed")
		}
	}
}

func TestBacklog_InOneSendsAreGathered(t *testing.T) {
	k, requests := counting(t, time.Hour, nil)
	await(t, send(k, some(0, 1))) // at the tip
	settled(t, k)
	k.SetBacklog(true)
	before := requests.Load()
	var outcomes []<-chan error
	for n := range 50 {
		outcomes = append(outcomes, send(k, some(10*n, 10)))
	}
	if n := requests.Load() - before; n != 0 || k.Outstanding() != 50 {
		t.Errorf("%d requests, and %d Sends without an outcome, while 50 are gathered", n, k.Outstanding())
	}
	k.SetBacklog(false) // caught up: nothing waits for its time any more
	await(t, outcomes...)
	await(t, send(k, some(0, 1)))
}

func TestBacklog_WhatIsGatheredLeavesInTime(t *testing.T) {
	k, _ := counting(t, 5*time.Millisecond, nil)
	k.SetBacklog(true)
	for n := range 3 {
		await(t, send(k, some(2*n, 1)), send(k, some(2*n+1, 1)))
	}
}

func TestBacklog_EnoughLeavesAtOnce(t *testing.T) {
	k, _ := counting(t, time.Hour, nil)
	k.SetBacklog(true)
	records := some(0, 30)
	for i := range records {
		records[i].Value = make([]byte, 30<<10)
	}
	await(t, send(k, records[:10]), send(k, records[10:20]), send(k, records))
}

// A Send behind a failure has its outcome without a wait, and so has what is gathered when
// nothing is written any more.
func TestBacklog_AHaltLeavesNothingWaiting(t *testing.T) {
	k, _ := counting(t, time.Hour, nil)
	k.SetBacklog(true)
	gathered := send(k, some(0, 1))
	k.Halt()
	behind := send(k, some(1, 1))
	for _, outcome := range []<-chan error{gathered, behind} {
		var failed *sink.FailedError
		if err := <-outcome; !errors.As(err, &failed) || !errors.Is(failed.Failures[0].Err, sink.ErrHalted) {
			t.Errorf("outcome %v, want that it was held back", err)
		}
	}
	k.Resume(t.Context())
	k.SetBacklog(false)
	await(t, send(k, some(0, 1)))
}

func TestBacklog_AbandonGivesUpWhatIsGathered(t *testing.T) {
	k, _ := counting(t, time.Hour, nil)
	k.SetBacklog(true)
	gathered := send(k, some(0, 1))
	ctx, cancel := context.WithTimeout(t.Context(), guardTime)
	defer cancel()
	if _, err := k.Abandon(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-gathered; err == nil {
		t.Error("a record that was never written counts as delivered")
	}
}

// settled waits until no Send is outstanding: one ends right after its done.
func settled(t testing.TB, k *kafka.Sink) {
	t.Helper()
	select {
	case <-k.Settled():
	case <-time.After(guardTime):
		t.Fatalf("%d Sends are still outstanding", k.Outstanding())
	}
}

// A linger that was asked for is the only one there is.
func TestBacklog_LeavesTheUsersLingerAlone(t *testing.T) {
	const linger = 50 * time.Millisecond
	k, _ := counting(t, time.Hour, func(cfg *producer.Config) { cfg.Linger = linger })
	for n, behind := range []bool{true, false} {
		k.SetBacklog(behind)
		began := time.Now()
		await(t, send(k, some(10*n, 10)))
		if took := time.Since(began); took < linger {
			t.Errorf("behind %t: it leaves after %s", behind, took)
		}
	}
}

func TestBacklog_CloseEndsTheWait(t *testing.T) {
	k, _ := counting(t, time.Minute, nil)
	k.SetBacklog(true)
	held := send(k, some(0, 1))
	ctx, cancel := context.WithTimeout(t.Context(), guardTime)
	defer cancel()
	if err := k.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-held; err == nil {
		t.Error("a record that was never written counts as delivered")
	}
}

// However Sends, answers and backlogs fall together, nothing is left gathered once the
// backlog is over.
func TestBacklog_NothingStaysBehind(t *testing.T) {
	const partitions = 4
	c := cluster(t, kfake.SeedTopics(partitions, "orders"))
	k := openGathering(t, c, time.Hour, nil)
	n := 0
	one := func(partition int32) <-chan error {
		n++
		records := some(n, 1)
		records[0].Partition = partition
		return send(k, records)
	}
	for p := range int32(partitions) { // each has its first answer
		await(t, one(p))
	}
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test's
	for range 200 {
		var outcomes []<-chan error
		for range 1 + r.IntN(20) {
			k.SetBacklog(r.IntN(10) == 0)
			outcomes = append(outcomes, one(int32(r.IntN(partitions))))
			if r.IntN(3) == 0 {
				runtime.Gosched()
			}
		}
		k.SetBacklog(false)
		await(t, outcomes...)
		settled(t, k)
	}
}

// Every way a Send ends is counted once.
func TestBacklog_CountsEveryOutcome(t *testing.T) {
	k, _ := counting(t, time.Minute, func(cfg *producer.Config) { cfg.MaxMessageBytes = 4 << 10 })
	large, nowhere, lost := some(0, 3), some(0, 2), some(0, 1)
	large[1].Value = make([]byte, 64<<10)
	nowhere[0].Topic = "nowhere"
	lost[0].Partition = 77
	for _, c := range []struct {
		name    string
		records []record.Record
		fails   bool
	}{
		{"nothing", nil, false},
		{"delivered", some(0, 3), false},
		{"too large", large, true},
		{"no such partition", lost, true},
		{"no such topic", nowhere, true},
	} {
		if err := <-send(k, c.records); (err != nil) != c.fails {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.fails {
			if err := <-send(k, some(0, 3)); err == nil {
				t.Errorf("%s: it is not halted", c.name)
			}
			k.Resume(t.Context())
		}
		settled(t, k)
	}
	k.SetBacklog(true)
	held := send(k, some(0, 1))
	ctx, cancel := context.WithTimeout(t.Context(), guardTime)
	defer cancel()
	if err := k.Close(ctx); err != nil {
		t.Fatal(err)
	}
	<-held
	if err := <-send(k, some(0, 1)); err == nil {
		t.Error("a closed sink delivered")
	}
	settled(t, k)
}

// BenchmarkKafka_Backlog sends what a reader of a backlog has, a piece of its socket's
// buffer at a time, with batches that fill and without. One operation is one record;
// what the broker in the same process allocates is included.
func BenchmarkKafka_Backlog(b *testing.B) {
	for _, fills := range []bool{true, false} {
		b.Run(fmt.Sprintf("fill=%t", fills), func(b *testing.B) {
			c := cluster(b, kfake.SeedTopics(16, "orders"), kfake.BlackholeProduce())
			var batches batchCount
			cfg := producer.Config{Connection: broker.Connection{Brokers: c.ListenAddrs()}}
			k, err := kafka.New(cfg, zerolog.Nop(), func() kgo.Hook { return &batches })
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = k.Close(context.Background()) }()
			k.SetBacklog(fills)
			const each, kept = 190, 64 // records of a piece; pieces on their way at most
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			pieces := make([][]record.Record, kept)
			for i := range pieces {
				pieces[i] = orders(i*each, each)
			}
			free := make(chan []record.Record, kept)
			for _, p := range pieces {
				free <- p
			}
			sendPiece := func() {
				p := <-free
				k.Send(context.Background(), p, func(err error) {
					if err != nil {
						b.Error(err)
					}
					free <- p
				})
			}
			settle := func() {
				for range kept {
					<-free
				}
				for _, p := range pieces {
					free <- p
				}
			}
			for range 4 * kept {
				sendPiece()
			}
			settle()
			batches.reset()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; n += each {
				<-tick.C // as fast as a server sends: the brokers are ready for each piece
				sendPiece()
			}
			settle()
			b.StopTimer()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(b.N), "allocs/record")
			b.ReportMetric(batches.perBatch(), "records/batch")
			b.ReportMetric(0, "ns/op") // it is the ticker's
		})
	}
}

// batchCount is how many records a written batch has.
type batchCount struct{ batches, records atomic.Int64 }

var _ kgo.HookProduceBatchWritten = (*batchCount)(nil)

func (c *batchCount) OnProduceBatchWritten(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.ProduceBatchMetrics) {
	c.batches.Add(1)
	c.records.Add(int64(m.NumRecords))
}

func (c *batchCount) reset() { c.batches.Store(0); c.records.Store(0) }

func (c *batchCount) perBatch() float64 {
	return float64(c.records.Load()) / float64(max(1, c.batches.Load()))
}

// orders are records of about 300 bytes.
func orders(first, n int) []record.Record {
	records := make([]record.Record, n)
	for i := range records {
		records[i] = record.Record{
			Topic: "orders", Key: fmt.Append(nil, "key-", first+i), Value: fmt.Appendf(nil, `{"n": %d, "pad": "%0280d"}`, i, i), Partition: record.AutoPartition,
			Headers: []record.Header{{Key: "id", Value: fmt.Append(nil, first+i)}, {Key: "eventType", Value: []byte("created")}},
		}
	}
	return records
}
