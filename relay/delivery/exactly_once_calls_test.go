package delivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/relay/ending"
	"github.com/cdc-relay/cdc-relay/relay/resume"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
)

// noting is a sink that notes what it is given, and answers nothing.
type noting struct {
	sink.Transactional
	calls []string
	lasts []wal.LSN // the last transactions of the positions
}

func (n *noting) Send(_ context.Context, records []record.Record, _ func(error)) {
	text := "send"
	for _, r := range records {
		text += " " + string(r.Value)
	}
	n.calls = append(n.calls, text)
}

func (n *noting) SetPosition(m sink.Position) {
	at, err := stored.ParsePosition(m.Value)
	text := fmt.Sprintf("position %d", at.End)
	if err != nil {
		text = err.Error()
	}
	if at.Part.Commit != 0 {
		text += fmt.Sprintf(" and %d of %d", at.Part.Rows, at.Part.Commit)
	}
	n.calls, n.lasts = append(n.calls, text), append(n.lasts, at.Last.Commit)
}

// calm is a session that nothing ends.
type calm struct{ Session }

func (calm) TakeEnd() error             { return nil }
func (calm) DrainTimeout() error        { return ending.ErrDrainCut }
func (calm) Sending() context.Context   { return context.Background() }
func (calm) Searching() context.Context { return context.Background() }

// noted is a delivery from a position on, and what its sink was given.
func noted(end wal.LSN) (*exactlyOnce, *noting) {
	to := new(noting)
	d := opened(Config{Guarantee: ExactlyOnce, Resume: &resume.Config{Shape: "this"}})
	d.sink, d.session, d.sends.wake = to, calm{}, make(chan struct{}, 1)
	x := &exactlyOnce{delivery: d, sink: to, sentTo: stored.Position{System: "7", Slot: "orders", Timeline: 1, End: end}, lost: make(chan error, 1)}
	d.guarantee = x
	return x, to
}

// While nothing is written to the tables the position has to follow the server's, or the slot
// holds the WAL. A position that does not move costs no transaction.
func TestExactly_KeepAlivesMoveThePositionForwards(t *testing.T) {
	x, to := noted(300)
	for _, through := range []wal.LSN{330, 330, 320, 340} {
		x.Pass(through)
	}
	if want := []string{"position 330", "position 340"}; !slices.Equal(to.calls, want) {
		t.Errorf("the sink got %q, want %q", to.calls, want)
	}
}

// A position lies after a whole transaction wherever the batch has its end.
func TestExactly_SendsTransactionsWhole(t *testing.T) {
	rows := func(txns ...*wal.Txn) (rows []wal.Row) {
		for i, txn := range txns {
			rows = append(rows, wal.Row{Relation: outbox, Txn: txn, Ordinal: uint64(1 + i)})
		}
		return rows
	}
	at := func(commit, end wal.LSN) *wal.Txn {
		return &wal.Txn{Commit: commit, End: end, Time: time.Unix(1000, 0)}
	}
	first, second, open := at(310, 320), at(330, 340), at(350, 0)
	for _, c := range []struct {
		name    string
		batch   *wal.Batch
		blocked wal.LSN
		want    []string
		lasts   []wal.LSN
	}{
		{"one that ends where the batch does", &wal.Batch{Rows: rows(first, second), Through: 340}, 0, []string{"send r1 r2", "position 340"}, []wal.LSN{330}},
		{"one that goes on after it", &wal.Batch{Rows: rows(first, open, open), Through: 320, Open: true}, 0,
			[]string{"send r1", "position 320", "send r2 r3", "position 320 and 3 of 350"}, []wal.LSN{310, 350}},
		{"one that goes on and is alone", &wal.Batch{Rows: rows(open, open), Through: 320, Open: true}, 0, []string{"send r1 r2", "position 320 and 2 of 350"}, []wal.LSN{350}},
		{"one that was isolated", &wal.Batch{Rows: rows(first, second), Through: 340}, 330, []string{"send r1", "position 320", "send r2", "position 340"}, []wal.LSN{310, 330}},
	} {
		x, to := noted(300)
		x.delivery.shared.isolated = c.blocked
		f := &InFlight{delivery: x.delivery, batch: c.batch, buf: new(record.Buffer)}
		for i := range c.batch.Rows {
			f.buf.Records = append(f.buf.Records, record.Record{Topic: "orders", Key: []byte("k"), Value: fmt.Appendf(nil, "r%d", i+1), Row: &c.batch.Rows[i]})
		}
		x.send(f)
		if !slices.Equal(to.calls, c.want) {
			t.Errorf("%s: the sink got %q, want %q", c.name, to.calls, c.want)
		}
		if !slices.Equal(to.lasts, c.lasts) {
			t.Errorf("%s: the last transactions are at %d, want %d", c.name, to.lasts, c.lasts)
		}
	}
}

// Rows that became no records have a position all the same, and an empty Send is none.
func TestExactly_CutSendsNothingWhereThereIsNothing(t *testing.T) {
	x, to := noted(300)
	f := &InFlight{delivery: x.delivery, batch: &wal.Batch{Rows: []wal.Row{
		{Relation: outbox, Txn: &wal.Txn{Commit: 310, End: 320, Time: time.Unix(1000, 0)}}, {Relation: outbox, Txn: &wal.Txn{Commit: 330, End: 340, Time: time.Unix(1000, 0)}},
	}}, buf: new(record.Buffer)}
	if rest := x.sendRowsBefore(f, nil, 1, true); len(rest) > 0 || !slices.Equal(to.calls, []string{"position 320"}) {
		t.Errorf("the sink got %q", to.calls)
	}
}

// A failure that passes by itself is no more than a drain cut short where the relay stops: the
// next start sends the rows. One that does not pass is told.
func TestExactly_AStopCutsWhatWouldBeTriedAgain(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for _, c := range []struct {
		name  string
		ctx   context.Context
		class sink.Class
		cut   bool
	}{
		{"unreachable brokers, at a stop", stopped, sink.Retry, true},
		{"unreachable brokers", t.Context(), sink.Retry, false},
		{"a fence, at a stop", stopped, sink.Blocked, false},
	} {
		x, _ := noted(300)
		x.lost <- &sink.Error{Class: c.class, Reason: "some", Err: errors.New("cause")}
		err := x.Recover(c.ctx, t.Context())
		own, ok := errors.AsType[*sink.Error](err)
		if errors.Is(err, ending.ErrDrainCut) != c.cut || !ok || own.Reason != "some" {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// What aborted a transaction is the first failure that has a cause of its own.
func TestExactly_TellsTheFirstCauseOfAnAbort(t *testing.T) {
	failed := func(reason string, err error) sink.Failure {
		return sink.Failure{Class: sink.Retry, Reason: reason, Err: err}
	}
	own := errors.New("refused")
	for want, failures := range map[string][]sink.Failure{
		"one":   {failed("one", own), failed("two", own)},
		"two":   {failed("one", sink.ErrHalted), failed("two", own), failed("three", own)},
		"cause": {failed("one", sink.ErrHalted)},
	} {
		x, _ := noted(300)
		row := wal.Row{Relation: outbox, Txn: &wal.Txn{Commit: 310, End: 320}}
		records := slices.Repeat([]record.Record{{Row: &row}}, len(failures))
		err := x.afterAbort(t.Context(), records, failures, &sink.Error{Reason: "cause", Err: own})
		if got, ok := errors.AsType[*sink.Error](err); !ok || got.Reason != want {
			t.Errorf("%v is told, want %s", err, want)
		}
	}
}

// A transaction that cannot be delivered is isolated, once, where rows before it were aborted
// with its beginning: to give it up moves the slot over them.
func TestExactly_IsolatesATransactionFromRowsBeforeIt(t *testing.T) {
	for name, c := range map[string]struct {
		aborted []wal.LSN // commits
		want    bool
	}{
		"rows before it":       {[]wal.LSN{310, 330}, true},
		"rows before it alone": {[]wal.LSN{310}, true},
		"its own beginning":    {[]wal.LSN{330, 330}, false},
		"nothing":              {nil, false},
	} {
		x, _ := noted(300)
		var p send
		for _, commit := range c.aborted {
			p.records = append(p.records, record.Record{Topic: "orders", Row: &wal.Row{Relation: outbox, Txn: &wal.Txn{Commit: commit, Time: time.Unix(1000, 0)}}})
		}
		x.delivery.sends.failed = []failedSend{{send: &p}}
		if got := x.isolate(330); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
		if x.isolate(330) {
			t.Errorf("%s: it is isolated for a second time", name)
		}
	}
}
