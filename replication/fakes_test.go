package replication

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/replication/pgoutput/pgoutputtest"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/rs/zerolog"
)

const testStart = wal.LSN(0x100)

// said is one status message as the server got it.
type said struct {
	at                  time.Duration
	write, flush, apply wal.LSN
	ask                 bool
}

// fakeServer is the other end of a stream, in a synctest bubble.
type fakeServer struct {
	t         *testing.T
	conn      net.Conn
	begun     time.Time
	confirmed atomic.Uint64
	mu        sync.Mutex
	statuses  []said
	queries   []string
	copyDone  chan struct{}
	hungUp    chan struct{}

	stream *Stream
	out    chan *wal.Batch
	stop   context.CancelFunc
	ended  chan error
}

var testTables = []wal.Table{{Schema: "public", Name: "outbox"}, {Schema: "Odd", Name: "Out\"Box"}}

// serve starts a stream against a scripted server.
func serve(t *testing.T, opt Options) *fakeServer {
	t.Helper()
	ours, theirs := net.Pipe()
	cfg := postgres.Config{Slot: "slot", Publication: "pub", Tables: testTables}
	f := &fakeServer{
		t: t, conn: theirs, begun: time.Now(), out: make(chan *wal.Batch),
		ended: make(chan error, 1), copyDone: make(chan struct{}), hungUp: make(chan struct{}),
	}
	f.confirmed.Store(uint64(testStart))
	f.stream = newStream(cfg, opt, zerolog.New(zerolog.NewTestWriter(t)), ours, &catalog.Catalog{
		Server: postgres.Server{ServerVersion: 150000, SenderTimeout: 15 * time.Second}, Confirmed: testStart,
	})
	go f.listen()
	intake, stop := context.WithCancel(t.Context())
	f.stop = stop
	over := make(chan struct{})
	go func() {
		defer close(over)
		f.ended <- f.stream.Run(intake, f.out, func() wal.LSN { return wal.LSN(f.confirmed.Load()) })
	}()
	t.Cleanup(func() {
		stop()
		f.stream.Abort()
		<-over
		_ = theirs.Close()
		_ = f.stream.Close(context.Background(), 0)
	})
	return f
}

func (f *fakeServer) listen() {
	defer close(f.hungUp)
	var last said
	for {
		var head [frameHeader]byte
		if _, err := io.ReadFull(f.conn, head[:]); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(f.conn, body); err != nil {
			return
		}
		switch {
		case head[0] == 'c':
			close(f.copyDone)
		case head[0] == 'd' && len(body) == 34 && body[0] == 'r':
			s := said{
				at: time.Since(f.begun), write: lsnAt(body, 1), flush: lsnAt(body, 9), apply: lsnAt(body, 17), ask: body[33] == 1,
			}
			f.judge(last, s)
			last = s
			f.mu.Lock()
			f.statuses = append(f.statuses, s)
			f.mu.Unlock()
		case head[0] == 'Q':
			f.mu.Lock()
			f.queries = append(f.queries, string(body[:len(body)-1]))
			f.mu.Unlock()
		case head[0] != 'X':
			f.t.Errorf("client sent %q with %d bytes", head[0], len(body))
		}
	}
}

// judge holds for every status of every test.
func (f *fakeServer) judge(last, s said) {
	if s.flush > wal.LSN(f.confirmed.Load()) {
		f.t.Errorf("told %s, confirmed %x", s.flush, f.confirmed.Load())
	}
	if s.flush == 0 || s.apply != s.flush || s.write < s.flush {
		f.t.Errorf("positions not explicit: %+v", s)
	}
	if s.flush < last.flush || s.write < last.write {
		f.t.Errorf("went back from %+v to %+v", last, s)
	}
}

func lsnAt(b []byte, at int) wal.LSN { return wal.LSN(binary.BigEndian.Uint64(b[at:])) }

// wal sends messages as the server does; the write returns when they were read.
func (f *fakeServer) wal(messages ...pgoutputtest.Message) {
	f.t.Helper()
	for _, m := range messages {
		start := wal.LSN(0)
		if m[0] == 'I' || m[0] == 'C' {
			start = 0x200
		}
		f.send(pgoutputtest.Frame('d', pgoutputtest.InWAL(start, pgoutputtest.Micros, m)))
	}
}

func (f *fakeServer) keepAlive(end wal.LSN, ask bool) {
	f.send(pgoutputtest.Frame('d', pgoutputtest.KeepAlive(end, ask)))
}

func (f *fakeServer) send(b []byte) {
	f.t.Helper()
	if _, err := f.conn.Write(b); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		f.t.Errorf("server write: %v", err)
	}
}

// take receives a batch; nil when none is there once everything is at rest.
func (f *fakeServer) take() *wal.Batch {
	synctest.Wait()
	select {
	case b := <-f.out:
		synctest.Wait()
		return b
	default:
		return nil
	}
}

// readToTheStop has the stream read one transaction, and then be stopped.
func (f *fakeServer) readToTheStop() {
	f.t.Helper()
	go f.wal(txn(0x200, 7, "1")...)
	for whole := false; !whole; {
		b := f.take()
		whole = b.Through != 0
		b.Release()
	}
	f.stop()
	if err := <-f.ended; err != nil {
		f.t.Fatal(err)
	}
}

func (f *fakeServer) confirm(l wal.LSN) { f.confirmed.Store(uint64(l)) }

// told gives every status so far.
func (f *fakeServer) told() []said {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.statuses)
}

func (f *fakeServer) lastSaid() said {
	all := f.told()
	if len(all) == 0 {
		return said{}
	}
	return all[len(all)-1]
}

func txn(at wal.LSN, xid uint32, values ...string) []pgoutputtest.Message {
	messages := []pgoutputtest.Message{pgoutputtest.Begin(at, xid), pgoutputtest.Relation(pgoutputtest.OutboxOID, "public", "outbox", pgoutputtest.OutboxColumns...)}
	for _, v := range values {
		messages = append(messages, pgoutputtest.Insert(pgoutputtest.OutboxOID, v, "payload"))
	}
	return append(messages, pgoutputtest.Commit(at, at+0x30))
}

// pass lets d pass by the bubble's clock.
func pass(d time.Duration) { <-time.After(d) }

func bubble(t *testing.T, opt Options, test func(t *testing.T, f *fakeServer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, serve(t, opt)) })
}

// closeOK closes the stream against a server that answers CopyDone.
func (f *fakeServer) closeOK(confirmed wal.LSN) {
	f.t.Helper()
	go func() {
		<-f.copyDone
		f.send(pgoutputtest.Frame('d', pgoutputtest.KeepAlive(0x9999, false)))
		f.send(pgoutputtest.Frame('c', nil))
	}()
	if err := f.stream.Close(f.t.Context(), confirmed); err != nil {
		f.t.Errorf("close: %v", err)
	}
	<-f.hungUp
}
