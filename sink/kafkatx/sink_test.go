package kafkatx_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/kafkatx"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestTransactional_CommitsRecordsWithTheirPosition(t *testing.T) {
	t.Parallel()
	c := eosCluster(t)
	x := transactional(t, c, nil)
	if got := x.open(); got != "" {
		t.Errorf("the first checkpoint is %q", got)
	}
	for i := 1; i <= 5; i++ {
		if err := awaitDone(t, x.send(i, true, fmt.Sprint("a", i), fmt.Sprint("b", i))); err != nil {
			t.Fatal(err)
		}
		if got := x.committed.Load(); got != int64(i) {
			t.Errorf("position %d is committed when record %d is", got, i)
		}
	}
	if got := committed(t, c, "orders"); !slices.Equal(got, []string{"a1", "b1", "a2", "b2", "a3", "b3", "a4", "b4", "a5", "b5"}) {
		t.Errorf("delivered %q", got)
	}
	if got := transactional(t, c, nil).open(); got != "5" {
		t.Errorf("the next holder reads %q, want 5", got)
	}
}

func TestTransactional_NeverDividesASourceTransactionByItself(t *testing.T) {
	t.Parallel()
	c := eosCluster(t)
	x := transactional(t, c, func(cfg *kafkatx.Config) { cfg.Interval, cfg.MaxBytes = time.Millisecond, 1 })
	x.open()
	first := x.send(1, false, "a")
	second := x.send(2, false, "b")
	select {
	case err := <-first:
		t.Fatalf("ended inside a source transaction: %v", err)
	case <-time.After(100 * time.Millisecond): // many intervals
	}
	third := x.send(3, true, "c")
	for _, done := range []chan error{first, second, third} {
		if err := awaitDone(t, done); err != nil {
			t.Fatal(err)
		}
	}
	if got := x.endings(); !slices.Equal(got, []sink.Ending{sink.Committed}) {
		t.Errorf("ended as %v", got)
	}
}

func TestTransactional_DividesOneWhenItsOwnerCannotGoOn(t *testing.T) {
	t.Parallel()
	c := eosCluster(t)
	x := transactional(t, c, nil)
	x.open()
	first := x.send(1, false, "a")
	x.Seal()
	if err := awaitDone(t, first); err != nil {
		t.Fatal(err)
	}
	open := x.send(2, false, "b") // and is never ended
	next := transactional(t, c, nil)
	if got := next.open(); got != "1" {
		t.Errorf("checkpoint %q, want 1", got)
	}
	if got := committed(t, c, "orders"); !slices.Equal(got, []string{"a"}) {
		t.Errorf("delivered %q", got)
	}
	select {
	case err := <-open: // it may have been on its way still, and was refused then
		wantFailure(t, &failures(t, err)[0], sink.Blocked, fault.ReasonFenced)
	default:
	}
}

// Who was let go on by the first record of a commit may press while its others are still
// being answered. Then the commit was what it waited for.
func TestTransactional_APressDuringACommitDividesNothing(t *testing.T) {
	t.Parallel()
	c := eosCluster(t)
	x := transactional(t, c, nil)
	x.open()
	part := make(chan error, 1)
	x.Send(t.Context(), []record.Record{newRecord("orders", "k", "a")}, func(error) {
		x.Seal()
		x.Send(context.Background(), []record.Record{newRecord("orders", "k", "c")}, func(err error) { part <- err })
		x.setPosition(3, false, false)
	})
	x.Send(t.Context(), []record.Record{newRecord("orders", "k", "b")}, func(error) {})
	x.setPosition(2, true, true)
	select {
	case err := <-part:
		t.Fatalf("ended inside a source transaction: %v", err)
	case <-time.After(100 * time.Millisecond): // many intervals
	}
	if err := awaitDone(t, x.send(4, true, "d")); err != nil {
		t.Fatal(err)
	}
	if got := x.endings(); len(got) != 2 || x.committed.Load() != 4 {
		t.Errorf("ended as %v, the last position is %d", got, x.committed.Load())
	}
}

// Only what the open source transaction itself takes counts.
func TestTransactional_DividesALargeOne(t *testing.T) {
	t.Parallel()
	c := eosCluster(t)
	x := transactional(t, c, func(cfg *kafkatx.Config) { cfg.Interval, cfg.DivideBytes = time.Minute/10, 3000 })
	x.open()
	if err := awaitDone(t, x.send(1, true, "a")); err != nil { // an interval has begun
		t.Fatal(err)
	}
	large := strings.Repeat("x", 2000)
	var waiting []chan error
	for i, whole := range []bool{true, true, false} {
		waiting = append(waiting, x.send(2+i, whole, large))
	}
	select {
	case err := <-waiting[2]:
		t.Fatalf("a small source transaction was divided: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	waiting = append(waiting, x.send(5, false, large))
	for _, done := range waiting {
		if err := awaitDone(t, done); err != nil {
			t.Fatal(err)
		}
	}
	if got := x.committed.Load(); got != 5 {
		t.Errorf("position %d is committed, want 5", got)
	}
}

func TestTransactional_CommitsAnIdlePosition(t *testing.T) {
	t.Parallel()
	c := eosCluster(t)
	x := transactional(t, c, nil)
	x.open()
	x.setPosition(7, true, false)
	done := make(chan error, 1)
	x.Finish(func(err error) { done <- err })
	if err := awaitDone(t, done); err != nil {
		t.Fatal(err)
	}
	if got := transactional(t, c, nil).open(); got != "7" {
		t.Errorf("checkpoint %q, want 7", got)
	}
}

func TestTransactional_FinishFailsWhatIsOpen(t *testing.T) {
	t.Parallel()
	x := transactional(t, eosCluster(t), nil)
	x.open()
	open := x.send(1, false, "a")
	done := make(chan error, 1)
	x.Finish(func(err error) { done <- err })
	if err := awaitDone(t, done); err == nil {
		t.Error("Finish says that an open source transaction was committed")
	}
	wantFailure(t, &failures(t, awaitDone(t, open))[0], sink.Retry, "held_back")
}

// One record that fails takes its whole transaction with it: committing what did
// succeed would lose it.
func TestTransactional_AFailedRecordCommitsNothing(t *testing.T) {
	t.Parallel()
	c := eosCluster(t)
	x := transactional(t, c, nil)
	x.open()
	if err := awaitDone(t, x.send(1, true, "before")); err != nil {
		t.Fatal(err)
	}
	first := x.send(2, false, "good")
	done := make(chan error, 1)
	x.Send(context.Background(), []record.Record{newRecord("nowhere", "k", "bad")}, func(err error) { done <- err })
	x.setPosition(3, true, false)
	wantFailure(t, &failures(t, awaitDone(t, first))[0], sink.Retry, "held_back")
	wantFailure(t, &failures(t, awaitDone(t, done))[0], sink.Blocked, "unknown_topic", "nowhere")
	wantFailure(t, &failures(t, awaitDone(t, x.send(4, true, "after")))[0], sink.Retry, "held_back")
	if err := awaitDone(t, x.lost); !strings.Contains(err.Error(), "UNKNOWN_TOPIC") {
		t.Errorf("lost because of %v", err)
	}
	if got := x.open(); got != "1" {
		t.Errorf("checkpoint %q, want 1", got)
	}
	if got := committed(t, c, "orders"); !slices.Equal(got, []string{"before"}) {
		t.Errorf("delivered %q", got)
	}
	if err := awaitDone(t, x.send(2, true, "good")); err != nil {
		t.Fatal(err)
	}
}

func TestTransactional_MissingTopicsAreCreatedWhenTold(t *testing.T) {
	t.Parallel()
	c := eosCluster(t)
	x := transactional(t, c, func(cfg *kafkatx.Config) {
		cfg.CreateTopics = topics.Creation{Enabled: true, Partitions: 2}
	})
	x.open()
	send := func() error {
		done := make(chan error, 1)
		x.Send(context.Background(), []record.Record{newRecord("made", "k", "v")}, func(err error) { done <- err })
		x.setPosition(1, true, false)
		return awaitDone(t, done)
	}
	heals := func() {
		t.Helper()
		for deadline := time.Now().Add(guardTime); ; {
			x.open()
			if send() == nil {
				return
			}
			if time.Now().After(deadline) {
				t.Fatal("never healed")
			}
		}
	}
	wantFailure(t, &failures(t, send())[0], sink.Retry, "unknown_topic")
	heals()
	if n := x.TopicsRecreated(); n != 0 {
		t.Errorf("%d topics were made again, and none was deleted", n)
	}
	if err := c.DeleteTopic("made"); err != nil {
		t.Fatal(err)
	}
	heals()
	if n := x.TopicsRecreated(); n != 1 {
		t.Errorf("%d topics were made again, want 1", n)
	}
}

func TestTransactional_ANewHolderShutsOutTheOld(t *testing.T) {
	t.Parallel()
	c := eosCluster(t)
	old, next := transactional(t, c, nil), transactional(t, c, nil)
	old.open()
	if err := awaitDone(t, old.send(1, true, "a")); err != nil {
		t.Fatal(err)
	}
	zombie := old.send(2, false, "zombie")
	if got := next.open(); got != "1" {
		t.Errorf("checkpoint %q, want 1", got)
	}
	last := old.send(3, true, "late")
	// The brokers refuse whichever comes first; the other is held back behind it.
	failed := append(failures(t, awaitDone(t, zombie)), failures(t, awaitDone(t, last))...)
	refused := slices.IndexFunc(failed, func(f sink.Failure) bool { return f.Reason == fault.ReasonFenced })
	if len(failed) != 2 || refused < 0 {
		t.Fatalf("failures %v, want both records and one for being fenced", failed)
	}
	wantFailure(t, &failed[refused], sink.Blocked, fault.ReasonFenced, "another relay")
	if err := awaitDone(t, next.send(2, true, "b")); err != nil {
		t.Fatal(err)
	}
	if got := committed(t, c, "orders"); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("delivered %q", got)
	}
}

// A commit without an answer may have counted or not: nobody is told that it did, and
// the checkpoint tells.
func TestTransactional_TheCheckpointDecidesAboutAnUnknownCommit(t *testing.T) {
	t.Parallel()
	for name, done := range map[string]bool{"lost on the way": false, "answer lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := eosCluster(t)
			x := transactional(t, c, nil)
			x.open()
			if done {
				// The answer of the commit is replaced, the commit counts.
				c.ControlKey(int16(kmsg.EndTxn), func(kmsg.Request) (kmsg.Response, error, bool) {
					return nil, errors.New("connection lost"), false
				})
			} else {
				c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.UnknownServerError, Count: 1})
			}
			err := awaitDone(t, x.send(1, true, "a"))
			checkpoint := x.open()
			got := committed(t, c, "orders")
			switch {
			case checkpoint == "1" && slices.Equal(got, []string{"a"}):
			case checkpoint == "" && len(got) == 0 && err != nil:
			default:
				t.Fatalf("outcome %v, checkpoint %q, delivered %q", err, checkpoint, got)
			}
			if err != nil {
				wantFailure(t, &failures(t, err)[0], sink.Retry, fault.ReasonCommitUnknown, "checkpoint topic")
				if ends := x.endings(); !slices.Equal(ends, []sink.Ending{sink.Unknown}) {
					t.Errorf("ended as %v", ends)
				}
			}
		})
	}
}

func TestTransactional_SurvivesACoordinatorThatMoves(t *testing.T) {
	t.Parallel()
	c := cluster(t, kfake.NumBrokers(3), kfake.SeedTopics(3, "orders"))
	if err := c.CreateTopic(checkpoints, 1, map[string]string{"cleanup.policy": "compact"}); err != nil {
		t.Fatal(err)
	}
	x := transactional(t, c, nil)
	x.open()
	for i := 1; i <= 20; i++ {
		c.RehashCoordinators()
		if err := awaitDone(t, x.send(i, true, fmt.Sprint(i))); err != nil {
			t.Fatalf("transaction %d: %v", i, err)
		}
	}
	if got := committed(t, c, "orders"); len(got) != 20 {
		t.Errorf("delivered %d of 20", len(got))
	}
}

// A transaction that the brokers gave up is no twin's doing.
func TestTransactional_ATimeoutIsNotAFence(t *testing.T) {
	t.Parallel()
	c := eosCluster(t)
	x := transactional(t, c, func(cfg *kafkatx.Config) { cfg.Timeout = 300 * time.Millisecond })
	open := func() string { // opening is a transaction, too
		for deadline := time.Now().Add(guardTime); ; {
			value, err := x.tryOpen()
			if err == nil {
				return value
			}
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
	}
	open()
	stuck := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.CoordinatorLoadInProgress, Count: -1})
	done := x.send(1, true, "a")
	time.AfterFunc(time.Second, stuck.Remove)
	if err := awaitDone(t, done); err != nil {
		if f := failures(t, err)[0]; f.Class != sink.Retry {
			t.Errorf("failed as %s %s: %v", f.Class, f.Reason, f.Err)
		}
		if got := open(); got != "" {
			t.Errorf("checkpoint %q of a transaction that timed out", got)
		}
		if got := committed(t, c, "orders"); len(got) != 0 {
			t.Errorf("delivered %q", got)
		}
	}
}

func TestTransactional_FindsRejectedRecordsAmongOthers(t *testing.T) {
	t.Parallel()
	c := eosCluster(t)
	if err := c.CreateTopic("small", 1, map[string]string{"max.message.bytes": "500"}); err != nil {
		t.Fatal(err)
	}
	x := transactional(t, c, nil)
	x.open()
	var records []record.Record
	for i := range 20 {
		value := fmt.Sprint("v", i)
		if i == 3 || i == 17 {
			value = strings.Repeat("x", 1000)
		}
		records = append(records, newRecord("small", "k", value))
	}
	records[9] = newRecord("orders", "k", strings.Repeat("y", 2<<20)) // over our own limit
	ctx, cancel := context.WithTimeout(context.Background(), guardTime)
	defer cancel()
	found, err := x.FindRejected(ctx, x.holder.ID, records)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{3, 9, 17} {
		f, ok := found[i]
		if !ok {
			t.Errorf("record %d is not found", i)
			continue
		}
		wantFailure(t, &f, sink.Rejected, "record_too_large")
	}
	if len(found) != 3 {
		t.Errorf("%d are found, want 3", len(found))
	}
	for _, topic := range []string{"small", "orders"} {
		if got := committed(t, c, topic); len(got) != 0 {
			t.Errorf("topic %s has %d records of the search", topic, len(got))
		}
	}
}

// What is refused beforehand is what Send refuses by itself, to the byte, and nothing that brokers
// decide.
func TestTransactional_RefusesBeforehandWhatItDoesNotSend(t *testing.T) {
	t.Parallel()
	c := eosCluster(t)
	x := transactional(t, c, nil)
	x.open()
	fits := newRecord("orders", "k", "")
	fits.Value = make([]byte, broker.DefaultMaxMessageBytes-broker.BatchSize(&fits)-6) // the lengths of what is long
	for broker.BatchSize(&fits) < broker.DefaultMaxMessageBytes {
		fits.Value = append(fits.Value, 0)
	}
	nowhere := newRecord("orders", "k", "v")
	nowhere.Partition = 77
	for _, r := range []record.Record{fits, nowhere} {
		if f := x.Refuses(&r); f != nil {
			t.Errorf("partition %d, %d bytes: %v", r.Partition, len(r.Value), f.Err)
		}
	}
	large, early := fits, newRecord("orders", "k", "v")
	large.Value = append(slices.Clone(fits.Value), 0)
	early.Timestamp = time.Date(1200, 1, 1, 0, 0, 0, 0, time.UTC)
	for reason, r := range map[string]record.Record{"record_too_large": large, "invalid_timestamp": early} {
		x.open()
		done := make(chan error, 1)
		x.Send(context.Background(), []record.Record{r}, func(err error) { done <- err })
		sent := failures(t, awaitDone(t, done))[0]
		wantFailure(t, &sent, sink.Rejected, reason)
		f := x.Refuses(&r)
		if f == nil {
			t.Errorf("%s: not refused beforehand", reason)
			continue
		}
		wantFailure(t, f, sink.Rejected, reason)
		if f.Err.Error() != sent.Err.Error() {
			t.Errorf("%q beforehand, %q when sent", f.Err, sent.Err)
		}
	}
}

func TestTransactional_HonoursPartitions(t *testing.T) {
	t.Parallel()
	c := eosCluster(t)
	if err := c.CreateTopic("wide", 4, nil); err != nil {
		t.Fatal(err)
	}
	x := transactional(t, c, nil)
	x.open()
	send := func(partition int32) error {
		r := newRecord("wide", "k", fmt.Sprint(partition))
		r.Partition = partition
		done := make(chan error, 1)
		x.Send(context.Background(), []record.Record{r}, func(err error) { done <- err })
		x.setPosition(1, true, false)
		return awaitDone(t, done)
	}
	for partition := range int32(4) {
		if err := send(partition); err != nil {
			t.Fatal(err)
		}
	}
	delivered, err := sandbox.ReadTopics(t.Context(), c.ListenAddrs(), []string{"wide"}, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil || len(delivered) != 4 {
		t.Errorf("%d records are committed, want 4; %v", len(delivered), err)
	}
	for _, d := range delivered {
		if string(d.Value) != fmt.Sprint(d.Partition) {
			t.Errorf("record %q is in partition %d", d.Value, d.Partition)
		}
	}
	wantFailure(t, &failures(t, send(4))[0], sink.Rejected, "invalid_partition")
}

// With the letter nothing of its transaction is committed: its row is not set aside.
func TestTransactional_CommitsNoDeadLetterToACompactedTopic(t *testing.T) {
	c := eosCluster(t)
	if err := c.CreateTopic("letters", 1, map[string]string{"cleanup.policy": "compact"}); err != nil {
		t.Fatal(err)
	}
	x := transactional(t, c, func(cfg *kafkatx.Config) { cfg.DeadLetterTopic = "letters" })
	if err := x.LettersKept(t.Context()); err == nil {
		t.Error("nothing is said of a compacted topic")
	}
	x.open()
	done := make(chan error, 1)
	x.Send(t.Context(), []record.Record{newRecord("orders", "k", "1"), newRecord("letters", "k", "2")}, func(err error) { done <- err })
	x.setPosition(1, true, true)
	failed := failures(t, awaitDone(t, done))
	if len(failed) != 2 {
		t.Fatalf("failed: %+v", failed)
	}
	wantFailure(t, &failed[1], sink.Blocked, fault.ReasonDeadLetterTopic, "cleanup.policy=compact")
	if got := committed(t, c, "orders"); len(got) != 0 || x.committed.Load() != 0 {
		t.Errorf("committed %q, position %d", got, x.committed.Load())
	}
}
