package relay

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

// slice is a part of a stream as the decoder cuts it: rows of transactions, each with
// its commit and, where the batch has it, its end.
type slice struct {
	closes wal.LSN
	open   bool
	parts  []part
}

type part struct {
	commit, end wal.LSN // end 0: not in this batch
	first       int
	rows        []string
}

func (s slice) fresh() *wal.Batch {
	b := &wal.Batch{Closes: s.closes, Open: s.open, Through: s.closes}
	for _, p := range s.parts {
		rows := batch(p.commit, p.end, p.first, p.rows...)
		rows.Rows[0].Txn.End = p.end
		b.Rows = append(b.Rows, rows.Rows...)
		b.Bytes += rows.Bytes
		b.Through = max(b.Through, p.end)
	}
	return b
}

// positions describes what was delivered: value@lsn/seq.
func (b *bench) positions(t *testing.T) string {
	t.Helper()
	var out []string
	for _, d := range b.sink.Delivered() {
		found := map[string]string{}
		for _, h := range d.Headers {
			found[h.Key] = string(h.Value)
		}
		if found[record.HeaderCommitTime] != "1970-01-01T00:16:40Z" {
			t.Errorf("commit time %q", found[record.HeaderCommitTime])
		}
		out = append(out, fmt.Sprintf("%s@%s/%s", d.Value, found[record.HeaderLSN], found[record.HeaderSeq]))
	}
	return strings.Join(out, " ")
}

func newPositions(server *fakeServer) *bench {
	return &bench{server: server, sink: new(sinktest.Recorder), result: make(chan error, 1)}
}

func TestPositionHeaders_RowsWaitForTheirCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newPositions(newServer(
			slice{open: true, parts: []part{{0x110, 0x120, 1, []string{"order/a/1"}}, {0x130, 0, 1, []string{"order/a/2", "order/a/3"}}}}.fresh,
			slice{open: true, parts: []part{{0x130, 0, 3, []string{"order/b/4"}}}}.fresh,
		))
		b.start(t, Config{Router: router.Config{PositionHeaders: true}})
		pass(time.Second)
		if got := b.positions(t); got != "1@0/120/1" {
			t.Fatalf("before the commit: %q", got)
		}
		b.server.more <- slice{closes: 0x140, open: true, parts: []part{{0x150, 0, 1, []string{"order/a/5"}}}}.fresh
		pass(time.Second)
		if got := b.positions(t); got != "1@0/120/1 2@0/140/1 3@0/140/2 4@0/140/3" || b.server.position() != 0x140 {
			t.Fatalf("after the commit: %q, confirmed %s", got, b.server.position())
		}
		b.server.more <- slice{closes: 0x160}.fresh
		pass(time.Second)
		if got := b.positions(t); !strings.HasSuffix(got, " 5@0/160/1") || b.server.position() != 0x160 {
			t.Fatalf("at the end: %q, confirmed %s", got, b.server.position())
		}
		b.stop(t)
	})
}

// A transaction larger than the window is read twice and delivered once.
func TestPositionHeaders_TransactionLargerThanTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		batches := []func() *wal.Batch{slice{open: true, parts: []part{{0x110, 0x120, 1, []string{"order/a/first"}}, {0x130, 0, 1, []string{"order/a/1"}}}}.fresh}
		want := []string{"first@0/120/1", "1@0/900/1"}
		const rows = 400
		for i := 2; i <= rows; i++ {
			batches = append(batches, slice{open: true, parts: []part{{0x130, 0, i, []string{fmt.Sprintf("order/a/%d", i)}}}}.fresh)
			want = append(want, fmt.Sprintf("%d@0/900/%d", i, i))
		}
		batches = append(batches, slice{closes: 0x900, parts: []part{{0x910, 0x920, 1, []string{"order/a/last"}}}}.fresh)
		want = append(want, "last@0/920/1")
		b := newPositions(newServer(batches...))
		b.server.skipConfirmed = true
		b.start(t, Config{Router: router.Config{PositionHeaders: true}, MaxInFlightBytes: 10 << 10})
		pass(5 * time.Second)
		if got := b.positions(t); got != strings.Join(want, " ") {
			t.Fatalf("delivered %q", got)
		}
		if opens, st := b.server.opens.Load(), b.relay.Status(); opens != 2 || st.Reconnects != 0 || st.State != status.Streaming || b.server.position() != 0x920 {
			t.Fatalf("%d sessions, confirmed %s, status %+v", opens, b.server.position(), st)
		}
		b.stop(t)
	})
}

func TestPositionHeaders_StopWhileATransactionIsReadThroughIsACutDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var batches []func() *wal.Batch
		for i := 1; i <= 400; i++ {
			batches = append(batches, slice{open: true, parts: []part{{0x130, 0, i, []string{fmt.Sprintf("order/a/%d", i)}}}}.fresh)
		}
		b := newPositions(newServer(batches...))
		b.start(t, Config{Router: router.Config{PositionHeaders: true}, MaxInFlightBytes: 10 << 10})
		pass(time.Second)
		if st := b.relay.Status(); st.State != status.Streaming || st.Reason != "" {
			t.Fatalf("status while it is read through: %+v", st)
		}
		b.cancel()
		if err := <-b.result; !errors.Is(err, ErrDrainCut) || b.server.position() != 100 || len(b.sink.Delivered()) != 0 {
			t.Fatalf("run: %v, confirmed %s, %d delivered", err, b.server.position(), len(b.sink.Delivered()))
		}
	})
}

// However the stream is cut into batches, whatever fails: every row once in order
// with its own commit's end.
func TestPositionHeaders_UnderRandomCutsAndFailures(t *testing.T) {
	for seed := range uint64(25) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomCuts(t, rand.New(rand.NewPCG(seed, 2))) })
		})
	}
}

func randomCuts(t *testing.T, random *rand.Rand) {
	var batches []func() *wal.Batch
	var want []string
	current := slice{}
	next, last := wal.LSN(0x110), wal.LSN(0)
	take := func(open bool) {
		current.open = open
		batches = append(batches, current.fresh)
		current = slice{}
	}
	for range 20 {
		commit, end, carried := next, next+0x10, false
		p := part{commit: commit, first: 1}
		rows := 1 + random.IntN(8)
		for i := 1; i <= rows; i++ {
			value := fmt.Sprintf("%s-%d", commit, i)
			want = append(want, fmt.Sprintf("%s@%s/%d", value, end, i))
			p.rows = append(p.rows, "order/a/"+value)
			if random.IntN(3) == 0 {
				current.parts = append(current.parts, p)
				take(true)
				p, carried = part{commit: commit, first: i + 1}, true
			}
		}
		if carried {
			current.closes = end
		}
		if len(p.rows) > 0 {
			p.end = end
			current.parts = append(current.parts, p)
		}
		next, last = end+0x10, end
		if random.IntN(2) == 0 {
			take(false)
		}
	}
	take(false)
	b := newPositions(newServer(batches...))
	b.server.skipConfirmed = true
	b.sink.Delay(time.Duration(1+random.IntN(30)) * time.Millisecond)
	tries := 0
	b.sink.Decide(func(*record.Record) sinktest.Verdict {
		if tries++; tries%7 == 0 {
			return sinktest.Fail(sink.Retry, "not_leader", errors.New("not leader"))
		}
		return sinktest.Verdict{}
	})
	b.start(t, Config{Router: router.Config{PositionHeaders: true}, RetryMin: 10 * time.Millisecond, MaxInFlightBytes: 2560 + random.IntN(10<<10)})
	pass(time.Minute)
	if got := b.positions(t); got != strings.Join(want, " ") {
		t.Fatalf("delivered\n%s\nwant\n%s", got, strings.Join(want, " "))
	}
	if b.server.position() != last {
		t.Fatalf("confirmed %s, want %s", b.server.position(), last)
	}
	b.stop(t)
}
