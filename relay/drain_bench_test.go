package relay

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/replication/pgoutput"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/cdc-relay/cdc-relay/sink/producer"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// drainTopics are what the rows are routed to.
const drainTopics = 4

// brokersVariable makes the test binary the brokers of a drain: a process of their own,
// so that what they allocate is not counted as the relay's. Its value is the numbers of
// topics and of their partitions.
const brokersVariable = "CDC_RELAY_DRAIN_BROKERS"

func TestMain(m *testing.M) {
	if counts := os.Getenv(brokersVariable); counts != "" {
		if err := drainBrokers(counts); err != nil {
			fmt.Fprintln(os.Stderr, "brokers:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// drainBrokers acknowledge records and forget them. `hold` and `release` on their input
// stop and go on with that; its end is theirs.
func drainBrokers(counts string) error {
	var named int
	var n int32
	if _, err := fmt.Sscan(counts, &named, &n); err != nil {
		return err
	}
	topics := map[string]int32{}
	for i := range named {
		topics[fmt.Sprintf("bench%d-events", i)] = n
	}
	k, err := sandbox.StartKafka(sandbox.KafkaOptions{Topics: topics, Discard: true})
	if err != nil {
		return err
	}
	defer k.Close()
	fmt.Println(strings.Join(k.Addrs(), ","))
	release := func() {}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); fmt.Println("done") {
		if in.Text() == "hold" {
			release = k.HoldProduce()
		} else {
			release()
		}
	}
	return nil
}

// benchDrain is a relay with a Kafka sink that reads a backlog as a decoder makes it of the
// server's messages.
type benchDrain struct {
	source   *drainSource
	relay    *Relay
	batches  atomic.Int64 // that the client wrote
	records  atomic.Int64
	requests atomic.Int64
	command  func(line string)
}

// OnProduceBatchWritten counts what the client writes.
func (d *benchDrain) OnProduceBatchWritten(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.ProduceBatchMetrics) {
	d.batches.Add(1)
	d.records.Add(int64(m.NumRecords))
}

// OnBrokerWrite counts produce requests.
func (d *benchDrain) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == int16(kmsg.Produce) {
		d.requests.Add(1)
	}
}

// startDrain starts brokers and a relay in front of them. Rows come when they are asked
// for.
func startDrain(tb testing.TB, partitions int, cfg Config) *benchDrain {
	tb.Helper()
	if testing.Short() {
		tb.Skip("a drain takes seconds, and shows what memory it takes")
	}
	percent := debug.SetGCPercent(20) // as the program does
	tb.Cleanup(func() { debug.SetGCPercent(percent) })
	d := &benchDrain{source: newDrainSource()}
	cfg = cfg.WithDefaults()
	cfg.Kafka.Brokers = d.startBrokers(tb, drainTopics, partitions)
	routes := outboxRoutes(tb)
	d.relay = New(cfg, Parts{
		Source: func(context.Context) (Source, error) { return d.source, nil },
		Router: routes,
		Sink:   func() (sink.Sink, error) { return kafka.New(cfg.Kafka, zerolog.Nop(), func() kgo.Hook { return d }) },
	}, Events{}, zerolog.Nop())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.relay.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Errorf("the relay ended with: %v", err)
		}
	})
	return d
}

func (d *benchDrain) startBrokers(tb testing.TB, topics, partitions int) []string {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d", brokersVariable, topics, partitions))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = in.Close() // ends them
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	line := func() string {
		if !lines.Scan() {
			tb.Fatalf("the brokers ended: %v", lines.Err())
		}
		return lines.Text()
	}
	d.command = func(what string) {
		tb.Helper()
		fmt.Fprintln(in, what)
		line()
	}
	return strings.Split(line(), ",")
}

// rows has so many come, and returns when all of them are confirmed.
func (d *benchDrain) rows(n int) {
	d.source.want <- n
	<-d.source.done
}

// drainSource decodes the messages of a backlog in transactions of ten rows of some 300
// bytes, and hands on what a piece of a socket's buffer holds.
type drainSource struct {
	decoder *pgoutput.Decoder
	want    chan int
	done    chan struct{}
	aborted chan struct{}
	abort   sync.Once
	batch   func()        // called behind each batch; may be nil
	every   time.Duration // between batches, as a server takes for them; zero: they are there at once
	single  bool          // each batch has one row, as each transaction brings it while the relay is caught up

	at            wal.LSN
	through       atomic.Uint64
	begin, commit []byte
	relation      []byte
	inserts       [][]byte
	next          int
	catalog       *wal.Relation
}

const (
	drainPerTxn = 10
	drainPiece  = 20 // transactions of a batch
	drainStart  = 1000
)

var drainColumns = []wal.Column{
	{Name: "id", Type: 2950}, {Name: "aggregate_type", Type: 1043}, {Name: "aggregate_id", Type: 2950}, {Name: "event_type", Type: 1043},
	{Name: "payload", Type: 3802}, {Name: "idempotency_key", Type: 1043}, {Name: "created_at", Type: 1184}, {Name: "published_at", Type: 1184},
	{Name: "retry_count", Type: 23}, {Name: "last_error", Type: 25},
}

func newDrainSource() *drainSource {
	const oid = 16400
	s := &drainSource{
		decoder: pgoutput.NewDecoder(pgoutput.Options{Tables: []wal.Table{{Schema: "public", Name: "outbox"}}}),
		want:    make(chan int), done: make(chan struct{}), aborted: make(chan struct{}), at: drainStart,
		begin:   append([]byte{'B'}, make([]byte, 20)...),
		commit:  append([]byte{'C'}, make([]byte, 25)...),
		catalog: &wal.Relation{OID: oid, Namespace: "public", Name: "outbox", Columns: drainColumns},
	}
	s.relation = append(binary.BigEndian.AppendUint32([]byte{'R'}, oid), "public\x00outbox\x00d"...)
	s.relation = binary.BigEndian.AppendUint16(s.relation, uint16(len(drainColumns)))
	for _, c := range drainColumns {
		s.relation = append(append(append(s.relation, 0), c.Name...), 0)
		s.relation = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(s.relation, c.Type), 0xffffffff)
	}
	for i := range 2000 {
		payload := fmt.Sprintf(`{"n": %d, "state": "placed", "customer": "c-%d", "note": "%0220x"}`, i, i%100, i*7919)
		s.inserts = append(s.inserts, drainInsert(oid, fmt.Sprintf("00000000-0000-7000-8000-%012x", i), fmt.Sprintf("bench%d", i%drainTopics),
			fmt.Sprintf("00000000-0000-4000-8000-%012x", i), "Changed", payload, "\x00", "2026-11-21 10:00:00+00", "\x00", "0", "\x00"))
	}
	return s
}

// drainInsert is a row; "\x00" is a null.
func drainInsert(oid uint32, values ...string) []byte {
	m := append(binary.BigEndian.AppendUint32([]byte{'I'}, oid), 'N')
	m = binary.BigEndian.AppendUint16(m, uint16(len(values)))
	for _, v := range values {
		if v == "\x00" {
			m = append(m, 'n')
			continue
		}
		m = append(binary.BigEndian.AppendUint32(append(m, 't'), uint32(len(v))), v...)
	}
	return m
}

func (s *drainSource) StartLSN() wal.LSN                    { return drainStart }
func (s *drainSource) Origin() wal.Origin                   { return wal.Origin{} }
func (s *drainSource) ServerProcess() int                   { return 0 }
func (s *drainSource) Tables() []*wal.Relation              { return []*wal.Relation{s.catalog} }
func (s *drainSource) Received() wal.LSN                    { return wal.LSN(s.through.Load()) }
func (s *drainSource) ServerEnd() wal.LSN                   { return s.Received() }
func (s *drainSource) Silent() time.Duration                { return 0 }
func (s *drainSource) Lost() <-chan struct{}                { return nil }
func (s *drainSource) Abort()                               { s.abort.Do(func() { close(s.aborted) }) }
func (s *drainSource) Close(context.Context, wal.LSN) error { return nil }

func (s *drainSource) Run(intake context.Context, out chan<- *wal.Batch, confirmed func() wal.LSN) error {
	for {
		select {
		case n := <-s.want:
			if err := s.emit(n, out); err != nil {
				return err
			}
			if !s.await(confirmed) {
				return nil
			}
			s.done <- struct{}{}
		case <-intake.Done():
			return nil
		case <-s.aborted:
			return nil
		}
	}
}

// emit hands on n rows.
func (s *drainSource) emit(n int, out chan<- *wal.Batch) error {
	due := time.Now()
	for txns := 1; n > 0; txns++ {
		rows, piece := min(n, drainPerTxn), drainPiece
		if s.single {
			rows, piece = 1, 1
		}
		if err := s.transaction(rows); err != nil {
			return err
		}
		n -= rows
		if txns%piece != 0 && n > 0 && !s.decoder.Full() {
			continue
		}
		b := s.decoder.Take()
		b.Backlog = !s.single
		s.through.Store(uint64(b.Through))
		select {
		case out <- b:
		case <-s.aborted:
			b.Release()
			return replication.ErrAborted
		}
		if s.batch != nil {
			s.batch()
		}
		if s.every > 0 {
			due = due.Add(s.every)
			time.Sleep(time.Until(due)) //nolint:forbidigo // the pace is the point
		}
	}
	return nil
}

func (s *drainSource) transaction(rows int) error {
	s.at += 0x1000
	binary.BigEndian.PutUint64(s.begin[1:], uint64(s.at))
	binary.BigEndian.PutUint64(s.commit[2:], uint64(s.at))
	binary.BigEndian.PutUint64(s.commit[10:], uint64(s.at+0x80))
	if err := s.decoder.Decode(s.begin, s.at); err != nil {
		return err
	}
	if s.relation != nil { // announced once
		if err := s.decoder.Decode(s.relation, s.at); err != nil {
			return err
		}
		s.relation = nil
	}
	for range rows {
		if err := s.decoder.Decode(s.inserts[s.next], s.at); err != nil {
			return err
		}
		s.next = (s.next + 1) % len(s.inserts)
	}
	return s.decoder.Decode(s.commit, s.at)
}

// await returns when everything is confirmed, or says that nobody waits any more.
func (s *drainSource) await(confirmed func() wal.LSN) bool {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for uint64(confirmed()) < s.through.Load() {
		select {
		case <-tick.C:
		case <-s.aborted:
			return false
		}
	}
	return true
}

// heapCounts are those of the runtime; objects are counted with the tiny ones.
func heapCounts() (objects, live uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/tiny/allocs:objects"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() + samples[1].Value.Uint64(), samples[2].Value.Uint64()
}

// BenchmarkDrain is the relay without its socket: decoder, session, router, tracker and
// Kafka sink, in front of brokers of another process. One operation is 50 000 rows. What
// it counts is all that the process allocates; the heap is what the last collection
// found alive, at the worst of all batches.
func BenchmarkDrain(b *testing.B) {
	for _, c := range []struct {
		partitions int
		every      time.Duration
	}{{4, 0}, {16, 0}, {4, 1500 * time.Microsecond}} {
		b.Run(fmt.Sprintf("partitions=%d/every=%s", c.partitions, c.every), func(b *testing.B) {
			const each = 50_000
			d := startDrain(b, c.partitions, Config{})
			d.source.every = c.every
			d.rows(2 * each) // connections, pools, the plan
			var peak uint64
			sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
			d.source.batch = func() {
				metrics.Read(sample)
				peak = max(peak, sample[0].Value.Uint64())
			}
			d.batches.Store(0)
			d.records.Store(0)
			before, _ := heapCounts()
			began := cpuTime(b)
			for b.Loop() {
				d.rows(each)
			}
			used := cpuTime(b) - began
			after, _ := heapCounts()
			rows := float64(b.N * each)
			b.ReportMetric(float64(used.Nanoseconds())/rows, "cpu-ns/row")
			b.ReportMetric(float64(after-before)/rows, "allocs/row")
			b.ReportMetric(float64(peak), "peak-live-B")
			b.ReportMetric(rows/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(float64(d.records.Load())/float64(max(1, d.batches.Load())), "records/batch")
		})
	}
}

// A drain allocates for batches and requests, not for rows. How many records a batch has
// is left to the size of the window and not to the speed of the machine, hence the linger;
// the least of three tries counts, because whatever else the process does only adds.
func TestDrain_AllocatesLessThanOnceInTenRows(t *testing.T) {
	d := startDrain(t, 4, Config{Kafka: producer.Config{Linger: 200 * time.Millisecond}})
	d.rows(drainRows / 4)
	best := 0.0
	for try := range 3 {
		before, _ := heapCounts()
		d.rows(drainRows)
		after, _ := heapCounts()
		if got := float64(after-before) / drainRows; try == 0 || got < best {
			best = got
		}
		if best <= drainAllocs {
			break
		}
	}
	t.Logf("%.4f allocations a row; %.0f records a batch", best, float64(d.records.Load())/float64(max(1, d.batches.Load())))
	if best > drainAllocs {
		t.Errorf("%.3f allocations a row over %d rows, want at most %.1f", best, drainRows, drainAllocs)
	}
}

// The window is the bound of the heap: brokers that answer nothing have it fill, and
// what is alive then, beyond what was before, is the window and at most half as much: the
// client's batches, and the requests that it has written. Rows that come one by one, as in
// an outage that begins while the relay is caught up, have a batch each, which takes more
// than a row of a large one.
func TestDrain_HoldsLittleMoreThanTheWindow(t *testing.T) {
	const window = 8 << 20
	t.Run("many rows a batch", func(t *testing.T) { holdsLittle(t, window, window*3/2, false) })
	t.Run("a row a batch", func(t *testing.T) { holdsLittle(t, window, window*5/2, true) })
}

func holdsLittle(t *testing.T, window int, most int64, single bool) {
	d := startDrain(t, 4, Config{MaxInFlightBytes: window})
	d.rows(20_000)
	d.source.single = single
	before := liveHeap()
	d.command("hold")
	passed := make(chan struct{})
	go func() {
		defer close(passed)
		d.rows(drainRows / 2)
	}()
	for !d.full() {
		select {
		case <-passed:
			t.Fatal("everything was confirmed by brokers that answer nothing")
		case <-time.After(time.Millisecond):
		}
	}
	held, status := int64(liveHeap())-int64(before), d.relay.Status()
	t.Logf("%d rows in flight are charged %d bytes and take %d", status.InFlightEvents, status.InFlightBytes, held)
	if held > most {
		t.Errorf("%d bytes are alive for %d rows in flight, want at most %d with a window of %d", held, status.InFlightEvents, most, window)
	}
	if charged := int64(status.InFlightBytes); charged > int64(window) || charged < int64(window)*3/4 || held < charged*3/4 {
		t.Errorf("%d bytes are charged to a full window of %d, and %d are alive", charged, window, held)
	}
	if least := int64(status.InFlightEvents) * 300; held < least || status.InFlightEvents < 1000 {
		t.Errorf("%d bytes are alive for %d rows in flight: this does not measure them", held, status.InFlightEvents)
	}
	d.command("release")
	<-passed
	after := int64(liveHeap()) - int64(before)
	for deadline := time.Now().Add(time.Minute); after > int64(window)/4 && time.Now().Before(deadline); { // the client may be at its last answers
		after = int64(liveHeap()) - int64(before)
	}
	if after > int64(window)/4 {
		t.Errorf("%d bytes are still alive once everything was confirmed", after)
	}
}

// full says that a batch waits for room in the window.
func (d *benchDrain) full() bool {
	s := d.relay.session.Load()
	if s == nil {
		return false
	}
	_, full := s.Full.Ago(time.Now())
	return full
}

// liveHeap collects twice: what lies in a pool outlives the first time.
func liveHeap() uint64 {
	runtime.GC()
	runtime.GC()
	_, live := heapCounts()
	return live
}
