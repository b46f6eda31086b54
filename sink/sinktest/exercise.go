package sinktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Subject is a sink under test and the hands that reach behind it. Nil hands
// leave out the tests that need them.
type Subject struct {
	Sink  sink.Sink
	Topic string // exists, with one partition

	// Delivered reads what is durable in Topic, in order.
	Delivered func(t *testing.T) []Delivered

	// Refuse makes the other side refuse, with the class given, what contains a
	// newRecord with this value, until heal.
	Refuse func(t *testing.T, value string, class sink.Class) (heal func())

	// Stall keeps acknowledgements back until release.
	Stall func(t *testing.T) (release func())

	// LoseAck loses the acknowledgement of the next records that become durable.
	LoseAck func(t *testing.T)

	// Room is how many records of 1 KiB fit before Send has to wait.
	Room int
}

// guardTime only ends tests that hang.
const guardTime = 30 * time.Second

// exercise is one test of the suite; needs reports whether a subject has the hands for it.
type exercise struct {
	name  string
	test  func(*testing.T, Subject)
	needs func(Subject) bool // nil: nothing
}

func delivered(s Subject) bool { return s.Delivered != nil }
func refuses(s Subject) bool   { return s.Refuse != nil }
func stalls(s Subject) bool    { return s.Stall != nil }

var exercises = []exercise{
	{"DeliversRecordsAsTheyAre", deliversRecordsAsTheyAre, delivered},
	{"AcknowledgesAnEmptySend", acknowledgesAnEmptySend, nil},
	{"KeepsOrderOverManySends", keepsOrderOverManySends, nil},
	{"NamesExactlyWhatIsNotDurable", namesExactlyWhatIsNotDurable, func(s Subject) bool { return refuses(s) && delivered(s) }},
	{"HaltsUntilResume", haltsUntilResume, refuses},
	{"NothingOvertakesARefusedRecord", nothingOvertakesARefusedRecord, func(s Subject) bool { return refuses(s) && delivered(s) }},
	{"EndsTheWaitForRoomWithTheContext", endsTheWaitForRoomWithTheContext, func(s Subject) bool { return stalls(s) && s.Room > 0 }},
	{"KeepsRecordsWhoseSenderGaveUp", keepsRecordsWhoseSenderGaveUp, stalls},
	{"SurvivesALostAcknowledgement", survivesALostAcknowledgement, func(s Subject) bool { return s.LoseAck != nil && delivered(s) }},
	{"FailsWhatItHoldsWhenClosed", failsWhatItHoldsWhenClosed, stalls},
	{"RefusesRecordsOnceClosed", refusesRecordsOnceClosed, nil},
	{"IsReadyAndReachable", isReadyAndReachable, nil},
}

// Exercise is what every sink has to pass. open makes a fresh subject, each time with the
// same hands. Tests for which the subject lacks a hand are left out and named in the log.
func Exercise(t *testing.T, open func(t *testing.T) Subject) {
	hands := open(t)
	closeSubject(t, hands)
	for _, e := range exercises {
		if e.needs != nil && !e.needs(hands) {
			t.Logf("%s is left out: the subject lacks a hand for it", e.name)
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			s := open(t)
			e.test(t, s)
			closeSubject(t, s)
		})
	}
}

func closeSubject(t *testing.T, s Subject) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), guardTime)
	defer cancel()
	if err := s.Sink.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

// Outcome is what happened to one Send.
type Outcome struct {
	err  error
	done chan struct{}
	runs chan struct{}
}

// Deliver sends the records and returns at once; Wait returns the outcome.
func Deliver(ctx context.Context, s sink.Sink, records []record.Record) *Outcome {
	o := &Outcome{done: make(chan struct{}), runs: make(chan struct{}, 1)}
	s.Send(ctx, records, func(err error) {
		select {
		case o.runs <- struct{}{}:
			o.err = err
			close(o.done)
		default:
			panic("sinktest: done was called twice") //nolint:forbidigo // the sink under test broke the contract
		}
	})
	return o
}

// Wait returns what done was given.
func (o *Outcome) Wait(t *testing.T) error {
	t.Helper()
	select {
	case <-o.done:
		return o.err
	case <-time.After(guardTime):
		t.Fatal("done was not called")
		return nil
	}
}

// Failures is what Wait returned, taken apart.
func Failures(t *testing.T, err error) []sink.Failure {
	t.Helper()
	if err == nil {
		return nil
	}
	var failed *sink.FailedError
	if !errors.As(err, &failed) {
		t.Fatalf("done was given %T (%v), want *sink.FailedError", err, err)
	}
	last := -1
	for _, f := range failed.Failures {
		if f.Index <= last {
			t.Errorf("failures are not by ascending index: %d after %d", f.Index, last)
		}
		if f.Err == nil || f.Reason == "" {
			t.Errorf("failure %+v says too little", f)
		}
		last = f.Index
	}
	return failed.Failures
}

func newRecord(topic, key, value string) record.Record {
	return record.Record{Topic: topic, Key: []byte(key), Value: []byte(value), Partition: record.AutoPartition}
}

func numbered(topic string, from, to int) []record.Record {
	var records []record.Record
	for i := from; i < to; i++ {
		records = append(records, newRecord(topic, "k"+fmt.Sprint(i%3), fmt.Sprintf("v%05d", i)))
	}
	return records
}

func values(delivered []Delivered) []string {
	var all []string
	for _, d := range delivered {
		all = append(all, string(d.Value))
	}
	return all
}

func deliversRecordsAsTheyAre(t *testing.T, s Subject) {
	when := time.UnixMilli(1_700_000_000_123)
	records := []record.Record{
		{Topic: s.Topic, Key: []byte("k"), Value: []byte(`{"a": 1.0}`), Timestamp: when, Partition: record.AutoPartition,
			Headers: []record.Header{{Key: "id", Value: []byte("1")}, {Key: "null"}, {Key: "id", Value: []byte{}}}},
		{Topic: s.Topic, Key: nil, Value: []byte("no key"), Timestamp: when, Partition: record.AutoPartition},
		{Topic: s.Topic, Key: []byte{}, Value: nil, Timestamp: when, Partition: 0},
	}
	for i := range records { // one by one: a record without a key has no order
		if err := Deliver(context.Background(), s.Sink, records[i:i+1]).Wait(t); err != nil {
			t.Fatal(err)
		}
	}
	got := s.Delivered(t)
	if len(got) != len(records) {
		t.Fatalf("delivered %d records, want %d", len(got), len(records))
	}
	for i, want := range records {
		same := bytes.Equal(got[i].Key, want.Key) && (got[i].Key == nil) == (want.Key == nil) &&
			bytes.Equal(got[i].Value, want.Value) && (got[i].Value == nil) == (want.Value == nil) &&
			got[i].Timestamp.Equal(when) && len(got[i].Headers) == len(want.Headers)
		for j := range want.Headers {
			same = same && got[i].Headers[j].Key == want.Headers[j].Key &&
				bytes.Equal(got[i].Headers[j].Value, want.Headers[j].Value) &&
				(got[i].Headers[j].Value == nil) == (want.Headers[j].Value == nil)
		}
		if !same {
			t.Errorf("record %d arrived as %+v, want %+v", i, got[i], want)
		}
	}
}

func acknowledgesAnEmptySend(t *testing.T, s Subject) {
	if err := Deliver(context.Background(), s.Sink, nil).Wait(t); err != nil {
		t.Error(err)
	}
}

func keepsOrderOverManySends(t *testing.T, s Subject) {
	const sends, each = 200, 50
	var outcomes []*Outcome
	for i := range sends {
		outcomes = append(outcomes, Deliver(context.Background(), s.Sink, numbered(s.Topic, i*each, (i+1)*each)))
	}
	for _, o := range outcomes {
		if err := o.Wait(t); err != nil {
			t.Fatal(err)
		}
	}
	if s.Delivered == nil {
		return
	}
	got := values(s.Delivered(t))
	if len(got) != sends*each || !slices.IsSorted(got) {
		t.Errorf("delivered %d records, in order: %t; want %d", len(got), slices.IsSorted(got), sends*each)
	}
}

func namesExactlyWhatIsNotDurable(t *testing.T, s Subject) {
	for _, class := range []sink.Class{sink.Rejected, sink.Blocked} {
		before := len(s.Delivered(t))
		heal := s.Refuse(t, "v00007", class)
		records := numbered(s.Topic, 0, 20)
		failures := Failures(t, Deliver(context.Background(), s.Sink, records).Wait(t))
		heal()
		got := values(s.Delivered(t))[before:]
		failed := map[int]bool{}
		var named bool
		for _, f := range failures {
			failed[f.Index] = true
			named = named || f.Index == 7 && f.Class == class
		}
		if !named {
			t.Errorf("%s: record 7 is not among the failures with its class: %+v", class, failures)
		}
		for i, r := range records {
			if durable := slices.Contains(got, string(r.Value)); durable == failed[i] {
				t.Errorf("%s: record %d: durable %t, reported as failed %t", class, i, durable, failed[i])
			}
		}
		s.Sink.Resume(context.Background())
	}
}

func haltsUntilResume(t *testing.T, s Subject) {
	heal := s.Refuse(t, "v00000", sink.Blocked)
	if err := Deliver(context.Background(), s.Sink, numbered(s.Topic, 0, 1)).Wait(t); err == nil {
		t.Fatal("a refused record was acknowledged")
	}
	heal()
	failures := Failures(t, Deliver(context.Background(), s.Sink, numbered(s.Topic, 1, 3)).Wait(t))
	if len(failures) != 2 || !errors.Is(failures[0].Err, sink.ErrHalted) || failures[0].Class != sink.Retry {
		t.Errorf("a halted sink answered %+v, want two records held back", failures)
	}
	s.Sink.Resume(context.Background())
	if err := Deliver(context.Background(), s.Sink, numbered(s.Topic, 0, 3)).Wait(t); err != nil {
		t.Errorf("after Resume: %v", err)
	}
	if s.Delivered != nil {
		if got := values(s.Delivered(t)); !slices.Equal(got, []string{"v00000", "v00001", "v00002"}) {
			t.Errorf("delivered %q", got)
		}
	}
}

// Nothing after the refused record may become durable before it, however many
// Sends are under way. The caller does what the contract asks for.
func nothingOvertakesARefusedRecord(t *testing.T, s Subject) {
	const sends, each = 40, 25
	for round := range 5 {
		from := round * sends * each
		heal := s.Refuse(t, fmt.Sprintf("v%05d", from+300), sink.Blocked)
		todo := numbered(s.Topic, from, from+sends*each)
		for try := 0; len(todo) > 0; try++ {
			if try == 2 {
				heal()
			}
			if try > 20 {
				t.Fatalf("round %d: %d records are still not durable", round, len(todo))
			}
			todo = sendAll(t, s.Sink, todo, each)
			s.Sink.Resume(context.Background())
		}
	}
	got := values(s.Delivered(t))
	if len(got) != 5*sends*each || !slices.IsSorted(got) {
		for i := 1; i < len(got); i++ {
			if got[i] <= got[i-1] {
				t.Errorf("%s follows %s", got[i], got[i-1])
			}
		}
		t.Errorf("delivered %d records, in order: %t; want %d", len(got), slices.IsSorted(got), 5*sends*each)
	}
}

// sendAll sends the records in slices and returns those that failed, in order.
func sendAll(t *testing.T, s sink.Sink, records []record.Record, each int) (failed []record.Record) {
	t.Helper()
	var outcomes []*Outcome
	var slicesSent [][]record.Record
	for part := range slices.Chunk(records, each) {
		slicesSent = append(slicesSent, part)
		outcomes = append(outcomes, Deliver(context.Background(), s, part))
	}
	for i, o := range outcomes {
		for _, f := range Failures(t, o.Wait(t)) {
			failed = append(failed, slicesSent[i][f.Index])
		}
	}
	return failed
}

func endsTheWaitForRoomWithTheContext(t *testing.T, s Subject) {
	release := s.Stall(t)
	defer release()
	big := func(n int) []record.Record {
		var records []record.Record
		for i := range n {
			records = append(records, newRecord(s.Topic, "k", fmt.Sprintf("%d%01024d", i, i)))
		}
		return records
	}
	first := Deliver(context.Background(), s.Sink, big(s.Room))
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	blocked := make(chan *Outcome)
	go func() { blocked <- Deliver(ctx, s.Sink, big(s.Room)) }()
	select {
	case <-blocked:
		t.Fatal("Send did not wait for room")
	case <-time.After(50 * time.Millisecond): // proves nothing when it passes, fails now and then when Send is wrong
	}
	cancel(cause)
	select {
	case second := <-blocked:
		failures := Failures(t, second.Wait(t))
		if len(failures) != s.Room || !errors.Is(failures[0].Err, cause) {
			t.Errorf("the interrupted Send answered %d failures, first %+v", len(failures), failures[0])
		}
	case <-time.After(guardTime):
		t.Fatal("Send did not return when its context ended")
	}
	release()
	_ = first.Wait(t)
}

// The context bounds the wait, not the record's life.
func keepsRecordsWhoseSenderGaveUp(t *testing.T, s Subject) {
	if err := Deliver(context.Background(), s.Sink, numbered(s.Topic, 0, 1)).Wait(t); err != nil {
		t.Fatal(err) // connected, topic known
	}
	release := s.Stall(t)
	ctx, cancel := context.WithCancel(context.Background())
	o := Deliver(ctx, s.Sink, numbered(s.Topic, 1, 3))
	cancel()
	release()
	if err := o.Wait(t); err != nil {
		t.Errorf("records that were handed over failed with their sender's context: %v", err)
	}
}

func survivesALostAcknowledgement(t *testing.T, s Subject) {
	if err := Deliver(context.Background(), s.Sink, numbered(s.Topic, 0, 1)).Wait(t); err != nil {
		t.Fatal(err)
	}
	s.LoseAck(t)
	if err := Deliver(context.Background(), s.Sink, numbered(s.Topic, 1, 10)).Wait(t); err != nil {
		t.Fatal(err)
	}
	if got := values(s.Delivered(t)); len(got) != 10 || !slices.IsSorted(got) {
		t.Errorf("delivered %q, want each of ten records once, in order", got)
	}
}

func failsWhatItHoldsWhenClosed(t *testing.T, s Subject) {
	release := s.Stall(t)
	defer release()
	var outcomes []*Outcome
	for i := range 5 {
		outcomes = append(outcomes, Deliver(context.Background(), s.Sink, numbered(s.Topic, i, i+1)))
	}
	ctx, cancel := context.WithTimeout(context.Background(), guardTime)
	defer cancel()
	if err := s.Sink.Close(ctx); err != nil {
		t.Fatal(err)
	}
	for _, o := range outcomes {
		select {
		case <-o.done:
		default:
			t.Fatal("Close returned before done was called")
		}
		failures := Failures(t, o.err)
		if len(failures) != 1 || !errors.Is(failures[0].Err, sink.ErrClosed) {
			t.Errorf("closed with %+v", failures)
		}
	}
}

func refusesRecordsOnceClosed(t *testing.T, s Subject) {
	if err := s.Sink.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	failures := Failures(t, Deliver(context.Background(), s.Sink, numbered(s.Topic, 0, 2)).Wait(t))
	if len(failures) != 2 || !errors.Is(failures[1].Err, sink.ErrClosed) {
		t.Errorf("a closed sink answered %+v", failures)
	}
}

func isReadyAndReachable(t *testing.T, s Subject) {
	ctx, cancel := context.WithTimeout(context.Background(), guardTime)
	defer cancel()
	if err := s.Sink.Ready(ctx); err != nil {
		t.Error(err)
	}
	if err := s.Sink.Reachable(); err != nil {
		t.Error(err)
	}
}
