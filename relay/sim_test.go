package relay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
	"github.com/rs/zerolog"
)

// simTxn is a committed transaction of the simulated server.
type simTxn struct {
	commit, end wal.LSN
	rows        []string  // type/key/payload
	time        time.Time // of the commit; zero: that of batch
}

// sim is a server with a slot, and brokers, in virtual time: whatever the seed
// makes happen between them, nothing may be confirmed that is not durable, and in
// the end everything is delivered in order.
type sim struct {
	fakeServer // for what of Source does not matter here

	mu        sync.Mutex
	random    *rand.Rand
	txns      []simTxn
	written   int     // transactions that have happened so far
	confirmed wal.LSN // the slot's
	stored    wal.LSN // what of it a crash leaves
	current   *simSource
	sinks     []*sinktest.Recorder
	faults    int // left until all is well
	calm      bool
	early     string // the first position that was told too early
	durable   map[string]bool
	looked    []int // of each sink's records, how many durable has
	trouble   map[string]int
}

const simStart = wal.LSN(1000)

func newSim(seed uint64) *sim {
	s := &sim{random: rand.New(rand.NewPCG(seed, 2)), confirmed: simStart, stored: simStart, trouble: map[string]int{}, durable: map[string]bool{}}
	s.faults = 3 + s.random.IntN(12)
	at := simStart
	for range 5 + s.random.IntN(40) {
		txn := simTxn{commit: at + wal.LSN(s.random.IntN(3)*17), rows: nil}
		txn.end = txn.commit + 10
		at = txn.end // the end of one may be where the next one's commit record starts
		for i := range 1 + s.random.IntN(9)*s.random.IntN(4) {
			txn.rows = append(txn.rows, fmt.Sprintf("order/k%d/%d.%d", s.random.IntN(4), txn.commit, i))
		}
		s.txns = append(s.txns, txn)
	}
	return s
}

func (s *sim) int(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.IntN(n)
}

// chance is one in n, never once all is to be well.
func (s *sim) chance(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calm || s.faults == 0 || s.random.IntN(n) > 0 {
		return false
	}
	s.faults--
	return true
}

// wal is the end of what has happened.
func (s *sim) wal() wal.LSN {
	if s.written == 0 {
		return simStart
	}
	return s.txns[s.written-1].end
}

// done says that everything is confirmed.
func (s *sim) done() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.confirmed >= s.wal()
}

// happen lets transactions commit over time.
func (s *sim) happen(done <-chan struct{}) {
	for {
		select {
		case <-time.After(time.Duration(1+s.int(200)) * time.Millisecond):
		case <-done:
			return
		}
		s.mu.Lock()
		if s.written < len(s.txns) {
			s.written++
		}
		s.mu.Unlock()
	}
}

// told takes a position, and holds it against what is durable.
func (s *sim) told(lsn wal.LSN) {
	s.look()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, txn := range s.txns[:s.written] {
		if txn.commit >= lsn {
			break
		}
		if txn.end <= s.confirmed {
			continue // looked at when it was told first
		}
		for _, row := range txn.rows {
			if payload := row[strings.LastIndexByte(row, '/')+1:]; !s.durable[payload] && s.early == "" {
				s.early = fmt.Sprintf("%s was confirmed before row %s of the transaction at %s was durable", lsn, payload, txn.commit)
			}
		}
	}
	if lsn > s.wal() && s.early == "" {
		s.early = fmt.Sprintf("%s was confirmed; the server is at %s", lsn, s.wal())
	}
	s.confirmed = max(s.confirmed, lsn)
	if s.random.IntN(4) == 0 {
		s.stored = s.confirmed
	}
}

// look brings durable up to date. It runs without the lock, which a sink's verdict
// takes under its own.
func (s *sim) look() {
	s.mu.Lock()
	sinks := append([]*sinktest.Recorder(nil), s.sinks...)
	s.mu.Unlock()
	for i, each := range sinks {
		s.mu.Lock()
		from := s.looked[i]
		s.mu.Unlock()
		if each.Counts().Delivered == from {
			continue
		}
		records := each.Delivered()
		s.mu.Lock()
		for _, d := range records[from:] {
			s.durable[string(d.Value)] = true
		}
		s.looked[i] = max(s.looked[i], len(records))
		s.mu.Unlock()
	}
}

func (s *sim) open(context.Context) (Source, error) {
	if s.chance(6) {
		s.count("refused")
		return nil, &fault.Error{Kind: fault.KindBusy, Op: "start", Err: errors.New("slot is in use")}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = &simSource{fakeSource: &fakeSource{server: &s.fakeServer}, sim: s, start: s.confirmed, received: s.confirmed, aborted: make(chan struct{}), fail: make(chan error, 1)}
	return s.current, nil
}

func (s *sim) count(what string) {
	s.mu.Lock()
	s.trouble[what]++
	s.mu.Unlock()
}

// disturb ends sessions, with a crash of the server now and then.
func (s *sim) disturb(done <-chan struct{}) {
	for {
		select {
		case <-time.After(time.Duration(50+s.int(2000)) * time.Millisecond):
		case <-done:
			return
		}
		if !s.chance(2) {
			continue
		}
		s.mu.Lock()
		current := s.current
		if s.random.IntN(2) == 0 {
			s.confirmed = s.stored
			s.trouble["crash"]++
		} else {
			s.trouble["cut"]++
		}
		s.mu.Unlock()
		if current != nil {
			select {
			case current.fail <- &fault.Error{Kind: fault.KindRetry, Op: "read stream", Err: errors.New("connection reset")}:
			default:
			}
		}
	}
}

// newSink makes brokers that fail records in every way, until all is to be well.
func (s *sim) newSink() (sink.Sink, error) {
	r := new(sinktest.Recorder)
	r.Scatter(s.int(2) == 0)
	if s.int(3) == 0 {
		r.Room(1 + s.int(20))
	}
	r.Delay(time.Duration(s.int(50)) * time.Millisecond)
	r.Decide(func(*record.Record) sinktest.Verdict {
		if !s.chance(25) {
			return sinktest.Verdict{}
		}
		class := []sink.Class{sink.Retry, sink.Retry, sink.Blocked, sink.Rejected}[s.int(4)]
		s.count("failed " + class.String())
		v := sinktest.Fail(class, "test", errors.New("refused"))
		if v.Durable = class == sink.Retry && s.int(3) == 0; v.Durable {
			s.count("lost acknowledgement")
		}
		return v
	})
	s.mu.Lock()
	s.sinks, s.looked = append(s.sinks, r), append(s.looked, 0)
	s.mu.Unlock()
	return r, nil
}

// simSource is one session.
type simSource struct {
	*fakeSource
	sim      *sim
	start    wal.LSN
	received wal.LSN
	mu       sync.Mutex
	aborted  chan struct{}
	once     sync.Once
	fail     chan error
	gone     atomic.Bool // the server has given the slot to somebody else, and hears nothing of this one
}

func (f *simSource) told(lsn wal.LSN) {
	if !f.gone.Load() {
		f.sim.told(lsn)
	}
}

func (f *simSource) StartLSN() wal.LSN { return f.start }
func (f *simSource) Abort()            { f.once.Do(func() { close(f.aborted) }) }

func (f *simSource) Received() wal.LSN {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.received
}

func (f *simSource) saw(lsn wal.LSN) {
	f.mu.Lock()
	f.received = max(f.received, lsn)
	f.mu.Unlock()
}

func (f *simSource) ServerEnd() wal.LSN {
	f.sim.mu.Lock()
	defer f.sim.mu.Unlock()
	return f.sim.wal()
}

func (f *simSource) Silent() time.Duration { return 0 }

func (f *simSource) Close(_ context.Context, confirmed wal.LSN) error {
	if f.sim.chance(8) {
		f.sim.count("close failed")
		return errors.New("connection reset")
	}
	f.told(confirmed)
	return nil
}

// Run sends what commits at or after the start, in batches that span and divide
// transactions, and keep-alives between them.
func (f *simSource) Run(intake context.Context, out chan<- *wal.Batch, confirmed func() wal.LSN) error {
	status := time.NewTicker(time.Duration(20+f.sim.int(200)) * time.Millisecond)
	defer status.Stop()
	offer := func(b *wal.Batch) error {
		for {
			select {
			case out <- b:
				return nil
			case <-status.C:
				f.told(confirmed())
			case err := <-f.fail:
				return err
			case <-f.aborted:
				return replication.ErrAborted
			}
		}
	}
	next, open := 0, false
	pending := &wal.Batch{}
	for {
		f.sim.mu.Lock()
		for next < f.sim.written && f.sim.txns[next].commit < f.start {
			next++
		}
		var txn *simTxn
		if next < f.sim.written {
			txn = &f.sim.txns[next]
			next++
		}
		end := f.sim.wal()
		f.sim.mu.Unlock()
		if txn == nil || intake.Err() != nil {
			if len(pending.Rows) > 0 {
				if err := offer(pending); err != nil {
					return err
				}
				pending = &wal.Batch{}
			}
			if intake.Err() != nil {
				return nil
			}
			if end > f.Received() || f.sim.int(3) == 0 {
				f.saw(end)
				if err := offer(&wal.Batch{Through: end}); err != nil {
					return err
				}
			}
			select {
			case <-time.After(time.Duration(1+f.sim.int(30)) * time.Millisecond):
			case <-status.C:
				f.told(confirmed())
			case err := <-f.fail:
				return err
			case <-f.aborted:
				return replication.ErrAborted
			case <-intake.Done():
			}
			continue
		}
		f.saw(txn.commit)
		for at := 0; at < len(txn.rows); {
			n := min(len(txn.rows)-at, 1+f.sim.int(8))
			part := batch(txn.commit, 0, at+1, txn.rows[at:at+n]...)
			if !txn.time.IsZero() {
				part.Rows[0].Txn.Time = txn.time // the rows share it
			}
			pending.Rows, pending.Bytes = append(pending.Rows, part.Rows...), pending.Bytes+part.Bytes
			if at += n; at == len(txn.rows) {
				pending.Through = txn.end
				if open {
					pending.Closes = txn.end
				}
				for i := range pending.Rows {
					if pending.Rows[i].Txn.Commit == txn.commit {
						pending.Rows[i].Txn.End = txn.end
					}
				}
				f.saw(txn.end)
			}
			if at < len(txn.rows) || f.sim.int(2) == 0 {
				open = at < len(txn.rows)
				pending.Open = open
				if err := offer(pending); err != nil {
					return err
				}
				pending = &wal.Batch{}
			}
		}
	}
}

// simSeeds is the number of schedules; the environment raises it.
func simSeeds(t *testing.T, usual uint64) (first, n uint64) {
	t.Helper()
	if testing.Short() {
		usual = min(usual, 60) // most that goes wrong shows in the first few
	}
	for name, to := range map[string]*uint64{"CDC_RELAY_TEST_SIM_SEEDS": &usual, "CDC_RELAY_TEST_SIM_FIRST": &first} {
		if text := os.Getenv(name); text != "" {
			value, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			*to = value
		}
	}
	return first, usual
}

func TestSim_NothingIsConfirmedEarlyAndAllArrivesInOrder(t *testing.T) {
	first, n := simSeeds(t, 300)
	trouble := map[string]int{}
	for seed := first; seed < first+n && !t.Failed(); seed++ {
		synctest.Test(t, func(t *testing.T) { simulate(t, seed, trouble) })
	}
	t.Logf("bar: simulation: %d seeds; trouble: %v", n, trouble)
	for _, what := range []string{"crash", "cut", "refused", "failed retry", "failed blocked", "failed rejected", "lost acknowledgement", "stop"} {
		if trouble[what] == 0 && n >= 100 {
			t.Errorf("no seed had any %q", what)
		}
	}
}

// simulate plays one seed. Its number is what a failure is replayed by:
// CDC_RELAY_TEST_SIM_FIRST=seed CDC_RELAY_TEST_SIM_SEEDS=1.
func simulate(t *testing.T, seed uint64, trouble map[string]int) {
	t.Helper()
	s := newSim(seed)
	done := make(chan struct{})
	defer close(done)
	go s.happen(done)
	go s.disturb(done)

	cfg := Config{MaxInFlightBytes: []int{125, 750, 256 << 10}[s.int(3)], RetryMin: 10 * time.Millisecond, RetryMax: 200 * time.Millisecond, DrainTimeout: time.Minute}
	start := func() (stop func()) {
		routes := outboxRoutes(t)
		r := New(cfg, Parts{Source: s.open, Router: routes, Sink: s.newSink}, Events{}, zerolog.Nop())
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { result <- r.Run(ctx) }()
		return func() {
			cancel()
			select {
			case err := <-result:
				if err != nil && !errors.Is(err, ErrDrainCut) {
					t.Errorf("seed %d: stop: %v", seed, err)
				}
			case <-time.After(10 * cfg.DrainTimeout): // time would go on for ever
				stacks := make([]byte, 1<<20)
				//nolint:forbidigo // a bubble with a goroutine left in it cannot fail, only hang
				panic(fmt.Sprintf("seed %d: a stop does not end\n%s", seed, stacks[:runtime.Stack(stacks, true)]))
			}
		}
	}
	stop := start()
	for range s.int(4) {
		pass(time.Duration(100+s.int(3000)) * time.Millisecond)
		s.count("stop")
		stop()
		stop = start()
	}
	pass(time.Duration(s.int(6000)) * time.Millisecond)
	s.mu.Lock()
	s.calm, s.written = true, len(s.txns)
	s.mu.Unlock()
	for began := time.Now(); time.Since(began) < 2*time.Minute && !s.done(); {
		pass(100 * time.Millisecond)
	}
	stop()

	s.mu.Lock()
	defer s.mu.Unlock()
	for what, n := range s.trouble {
		trouble[what] += n
	}
	if s.early != "" {
		t.Errorf("seed %d: %s", seed, s.early)
	}
	if s.confirmed != s.wal() {
		t.Errorf("seed %d: confirmed %s of %s two minutes after the last fault", seed, s.confirmed, s.wal())
	}
	checkSim(t, seed, s)
}

// checkSim holds what is durable against the transactions: each key's records may
// jump back and go on from there, and leave nothing out.
func checkSim(t *testing.T, seed uint64, s *sim) {
	t.Helper()
	place, next := map[string]int{}, map[string]int{}
	keys := map[string]string{}
	for _, txn := range s.txns {
		for _, row := range txn.rows {
			parts := strings.Split(row, "/")
			place[parts[2]], keys[parts[2]] = next[parts[1]], parts[1]
			next[parts[1]]++
		}
	}
	last := map[string]int{}
	for _, each := range s.sinks {
		for _, d := range each.Delivered() {
			value := string(d.Value)
			at, known := place[value]
			if !known || keys[value] != string(d.Key) {
				t.Errorf("seed %d: record %s of key %s was never written", seed, value, d.Key)
				continue
			}
			if at > last[keys[value]] {
				t.Errorf("seed %d: record %s of key %s leaves out what is before it", seed, value, d.Key)
			}
			last[keys[value]] = at + 1
		}
	}
	for key, n := range next {
		if last[key] != n {
			t.Errorf("seed %d: key %s ends at %d of %d", seed, key, last[key], n)
		}
	}
}
