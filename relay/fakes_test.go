package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/relay/delivery"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
	"github.com/rs/zerolog"
)

var outbox = &wal.Relation{OID: 1, Namespace: "public", Name: "outbox", Columns: []wal.Column{
	{Name: "id", Type: 25}, {Name: "aggregate_type", Type: 25}, {Name: "aggregate_id", Type: 25}, {Name: "event_type", Type: 25}, {Name: "payload", Type: 25},
}}

// row is written as "type/key/payload"; an empty type cannot be routed.
func batch(commit, through wal.LSN, firstOrdinal int, rows ...string) *wal.Batch {
	b := &wal.Batch{Through: through, Bytes: 100 * len(rows)}
	txn := &wal.Txn{XID: 7, Commit: commit, Time: time.Unix(1000, 0)}
	for i, spec := range rows {
		parts := strings.SplitN(spec, "/", 3)
		route := wal.Value{Kind: wal.Text, Data: []byte(parts[0])}
		if parts[0] == "" {
			route = wal.Value{Kind: wal.Null}
		}
		text := func(s string) wal.Value { return wal.Value{Kind: wal.Text, Data: []byte(s)} }
		b.Rows = append(b.Rows, wal.Row{
			Txn: txn, LSN: commit - 1, Ordinal: uint64(firstOrdinal + i), Relation: outbox,
			Values: []wal.Value{text(fmt.Sprintf("%s-%d", commit, firstOrdinal+i)), route, text(parts[1]), text("t"), text(parts[2])},
		})
	}
	return b
}

// fakeSource replays batches as a slot would: what was not confirmed comes again
// in the next session.
type fakeSource struct {
	server  *fakeServer
	aborted chan struct{}
	once    sync.Once
	fail    chan error
	process int
}

type fakeServer struct {
	mu        sync.Mutex
	batches   []func() *wal.Batch // fresh for every session
	confirmed wal.LSN
	reports   []wal.LSN
	opens     atomic.Int64
	silent    atomic.Int64
	lost      chan struct{} // closed by a test whose connection goes during the drain
	closeErr  error
	openErr   func(n int64) error
	wrap      func(*fakeSource) Source // has sessions end otherwise; nil: they do not
	current   *fakeSource
	more      chan func() *wal.Batch
	origin    wal.Origin
	status    time.Duration // how often it is told a position; zero: ten times a second

	// skipConfirmed has a session begin, as a server does, with the first transaction
	// that is not confirmed, whatever its batches say.
	skipConfirmed bool
}

func newServer(batches ...func() *wal.Batch) *fakeServer {
	return &fakeServer{batches: batches, confirmed: 100, more: make(chan func() *wal.Batch)}
}

func (s *fakeServer) open(context.Context) (Source, error) {
	n := s.opens.Add(1)
	if s.openErr != nil {
		if err := s.openErr(n); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = &fakeSource{server: s, aborted: make(chan struct{}), fail: make(chan error, 1), process: int(n)}
	if s.wrap != nil {
		return s.wrap(s.current), nil
	}
	return s.current, nil
}

func (s *fakeServer) report(lsn wal.LSN) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.confirmed = max(s.confirmed, lsn)
	s.reports = append(s.reports, lsn)
}

// cut ends the current session with a connection error.
func (s *fakeServer) cut() {
	s.mu.Lock()
	current := s.current
	s.mu.Unlock()
	current.fail <- &fault.Error{Kind: fault.KindRetry, Op: "read stream", Err: errors.New("connection reset")}
}

func (s *fakeServer) position() wal.LSN {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.confirmed
}

func (f *fakeSource) StartLSN() wal.LSN { return f.server.position() }
func (f *fakeSource) Origin() wal.Origin {
	f.server.mu.Lock()
	defer f.server.mu.Unlock()
	origin := f.server.origin
	origin.Database = "16384" // what is tested is another cluster or history of the same
	return origin
}
func (f *fakeSource) ServerProcess() int      { return f.process }
func (f *fakeSource) Tables() []*wal.Relation { return []*wal.Relation{outbox} }
func (f *fakeSource) Received() wal.LSN       { return 1000 }
func (f *fakeSource) ServerEnd() wal.LSN      { return 1000 }
func (f *fakeSource) Silent() time.Duration   { return time.Duration(f.server.silent.Load()) }
func (f *fakeSource) Lost() <-chan struct{}   { return f.server.lost }
func (f *fakeSource) Abort()                  { f.once.Do(func() { close(f.aborted) }) }

func (f *fakeSource) Close(_ context.Context, confirmed wal.LSN) error {
	if f.server.closeErr != nil {
		return f.server.closeErr
	}
	f.server.report(confirmed)
	return nil
}

func (f *fakeSource) Run(intake context.Context, out chan<- *wal.Batch, confirmed func() wal.LSN) error {
	status := time.NewTicker(cmp.Or(f.server.status, 100*time.Millisecond))
	defer status.Stop()
	offer := func(b *wal.Batch) error {
		for {
			select {
			case out <- b:
				return nil
			case <-status.C:
				f.server.report(confirmed())
			case err := <-f.fail:
				return err
			case <-f.aborted:
				return nil
			}
		}
	}
	start := f.StartLSN()
	for _, fresh := range f.server.batches {
		b := fresh()
		if f.server.skipConfirmed {
			b.Rows = slices.DeleteFunc(b.Rows, func(r wal.Row) bool { return r.Txn.Commit < start })
		}
		if b.Through == 0 || b.Through > start || f.server.skipConfirmed && len(b.Rows) > 0 {
			if err := offer(b); err != nil {
				return err
			}
		}
	}
	for {
		select {
		case fresh := <-f.server.more:
			if err := offer(fresh()); err != nil {
				return err
			}
		case <-status.C:
			f.server.report(confirmed())
		case err := <-f.fail:
			return err
		case <-intake.Done():
			return nil
		case <-f.aborted:
			return nil
		}
	}
}

// pass lets virtual time go by, and with it whatever is due.
func pass(d time.Duration) { <-time.After(d) }

// outboxRoutes routes one table. cfg is optional, and names none.
func outboxRoutes(tb testing.TB, cfg ...router.Config) *router.Router {
	tb.Helper()
	of := router.Config{}
	if len(cfg) > 0 {
		of = cfg[0]
	}
	of.Mappings = []router.Mapping{{Table: "public.outbox", Preset: "outbox"}}
	routes, err := router.New(of)
	if err != nil {
		tb.Fatal(err)
	}
	return routes
}

// runFor runs a relay for some time, and stops it, which has to be clean.
func runFor(t *testing.T, relay *Relay, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- relay.Run(ctx) }()
	pass(d)
	cancel()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
}

type bench struct {
	server *fakeServer
	sink   *sinktest.Recorder
	relay  *Relay
	cancel context.CancelFunc
	result chan error
	probe  Prober
	ledger *fakeLedger
	log    io.Writer                          // nil: nobody reads it
	wrap   func(*sinktest.Recorder) sink.Sink // nil: the recorder is the sink
	counts struct{ rejected, retried, delivered atomic.Int64 }
}

func start(t *testing.T, cfg Config, server *fakeServer) *bench {
	t.Helper()
	b := &bench{server: server, sink: new(sinktest.Recorder), result: make(chan error, 1)}
	return b.start(t, cfg)
}

func (b *bench) start(t *testing.T, cfg Config) *bench {
	t.Helper()
	routes := outboxRoutes(t, cfg.Router)
	ev := Events{Events: delivery.Events{
		RowRejected:    func(string, error) { b.counts.rejected.Add(1) },
		ProduceRetried: func(string) { b.counts.retried.Add(1) },
		BatchDelivered: func(_ *wal.Batch, r []record.Record, _ time.Duration) { b.counts.delivered.Add(int64(len(r))) },
	}}
	cfg.RetryMax = max(cfg.RetryMax, time.Second)
	if b.wrap == nil {
		b.wrap = func(r *sinktest.Recorder) sink.Sink { return r }
	}
	parts := Parts{Source: b.server.open, Router: routes, Probe: b.probe, Sink: func() (sink.Sink, error) { return b.wrap(b.sink), nil }}
	if b.ledger != nil {
		parts.Ledger = b.ledger
	}
	b.relay = New(cfg, parts, ev, zerolog.New(b.log))
	ctx, cancel := context.WithCancel(t.Context())
	b.cancel = cancel
	go func() { b.result <- b.relay.Run(ctx) }()
	return b
}

func (b *bench) stop(t *testing.T) {
	t.Helper()
	b.cancel()
	if err := <-b.result; err != nil {
		t.Fatalf("clean stop: %v", err)
	}
}

func (b *bench) values() string {
	var out []string
	for _, d := range b.sink.Delivered() {
		out = append(out, string(d.Value))
	}
	return strings.Join(out, " ")
}

func fixed(commit, through wal.LSN, first int, rows ...string) func() *wal.Batch {
	return func() *wal.Batch { return batch(commit, through, first, rows...) }
}
