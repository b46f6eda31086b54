package kafkatx_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/cdc-relay/cdc-relay/sink/kafkatx"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const checkpoints = "checkpoints"

// exactly is an open Transactional with hands for a test.
type exactly struct {
	*kafkatx.Sink
	t      *testing.T
	holder sink.Holder
	lost   chan error
	mu     sync.Mutex
	ends   []sink.Ending
	marked atomic.Int64 // the last mark that was committed
}

func transactional(t *testing.T, c *kfake.Cluster, change func(*kafkatx.Config)) *exactly {
	t.Helper()
	x := &exactly{t: t, lost: make(chan error, 100)}
	cfg := kafkatx.Config{
		Config:          kafka.Config{Connection: broker.Connection{Brokers: c.ListenAddrs()}, Compression: "none"},
		CheckpointTopic: checkpoints, Interval: 10 * time.Millisecond,
		Ended: func(e sink.Ending) {
			x.mu.Lock()
			x.ends = append(x.ends, e)
			x.mu.Unlock()
		},
	}
	if change != nil {
		change(&cfg)
	}
	s, err := kafkatx.New(cfg, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	x.Sink = s
	x.holder = sink.Holder{ID: "cdc-relay-1-slot", Key: "1/slot", Lost: func(err error) { x.lost <- err }}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), guardTime)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return x
}

func (x *exactly) open() string {
	x.t.Helper()
	value, err := x.tryOpen()
	if err != nil {
		x.t.Fatal(err)
	}
	return value
}

func (x *exactly) tryOpen() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), guardTime)
	defer cancel()
	value, err := x.Open(ctx, x.holder)
	return string(value), err
}

// send hands over records named by values and, unless mark is zero, a mark.
func (x *exactly) send(mark int, whole bool, values ...string) chan error {
	done := make(chan error, 1)
	records := make([]record.Record, len(values))
	for i, v := range values {
		records[i] = newRecord("orders", "k", v)
	}
	x.Send(context.Background(), records, func(err error) { done <- err })
	if mark != 0 {
		x.mark(mark, whole, false)
	}
	return done
}

func (x *exactly) mark(mark int, whole, now bool) {
	x.SetPosition(sink.Position{Value: fmt.Appendf(nil, "%d", mark), Whole: whole, Now: now, Committed: func() { x.marked.Store(int64(mark)) }})
}

func (x *exactly) endings() []sink.Ending {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.ends)
}

func awaitDone(t *testing.T, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(guardTime):
		t.Fatal("no outcome")
		return nil
	}
}

// committed reads what a consumer of committed records sees, up to a record that is
// written behind everything.
func committed(t *testing.T, c *kfake.Cluster, topic string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), guardTime)
	defer cancel()
	var all []string
	cfg := kafka.Config{Connection: broker.Connection{Brokers: c.ListenAddrs()}}
	if err := topics.ReadTopic(ctx, cfg.Connection, topic, func(m *topics.Message) error {
		all = append(all, string(m.Value))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func eosCluster(t *testing.T) *kfake.Cluster {
	t.Helper()
	c := cluster(t, kfake.SeedTopics(1, "orders"))
	if err := c.CreateTopic(checkpoints, 1, map[string]string{"cleanup.policy": "compact"}); err != nil {
		t.Fatal(err)
	}
	return c
}

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
		if got := x.marked.Load(); got != int64(i) {
			t.Errorf("mark %d is committed when record %d is", got, i)
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
		x.mark(3, false, false)
	})
	x.Send(t.Context(), []record.Record{newRecord("orders", "k", "b")}, func(error) {})
	x.mark(2, true, true)
	select {
	case err := <-part:
		t.Fatalf("ended inside a source transaction: %v", err)
	case <-time.After(100 * time.Millisecond): // many intervals
	}
	if err := awaitDone(t, x.send(4, true, "d")); err != nil {
		t.Fatal(err)
	}
	if got := x.endings(); len(got) != 2 || x.marked.Load() != 4 {
		t.Errorf("ended as %v, the last mark is %d", got, x.marked.Load())
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
	if got := x.marked.Load(); got != 5 {
		t.Errorf("mark %d is committed, want 5", got)
	}
}

func TestTransactional_CommitsAnIdlePosition(t *testing.T) {
	t.Parallel()
	c := eosCluster(t)
	x := transactional(t, c, nil)
	x.open()
	x.mark(7, true, false)
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
	x.mark(3, true, false)
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
		x.mark(1, true, false)
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
		x.mark(1, true, false)
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

func TestTransactional_WantsItsTopicAsItMustBe(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), guardTime)
	defer cancel()
	for topic, c := range map[string]struct {
		partitions int32
		policy     string
		mentions   string
	}{
		"missing": {0, "", "cdc-relay setup"},
		"wide":    {3, "compact", "has 3 partitions"},
		"deleted": {1, "delete", "cleanup.policy=compact"},
		"both":    {1, "compact,delete", "cleanup.policy=compact"},
	} {
		brokers := cluster(t)
		if c.partitions > 0 {
			if err := brokers.CreateTopic(topic, c.partitions, map[string]string{"cleanup.policy": c.policy}); err != nil {
				t.Fatal(err)
			}
		}
		x := transactional(t, brokers, func(cfg *kafkatx.Config) { cfg.CheckpointTopic = topic })
		err := x.Ready(ctx)
		var e *sink.Error
		if !errors.As(err, &e) || e.Class != sink.Blocked || e.Reason != fault.ReasonCheckpointTopic || !strings.Contains(err.Error(), c.mentions) {
			t.Errorf("topic %s: %v", topic, err)
		}
		missing, err := topics.EnsureCheckpointTopic(ctx, broker.Connection{Brokers: brokers.ListenAddrs()}, topics.Creation{}, topic, false)
		if c.partitions > 0 {
			if err == nil {
				t.Errorf("topic %s: setup leaves it as it is", topic)
			}
			continue
		}
		if err != nil || !missing {
			t.Errorf("topic %s: missing %t, %v", topic, missing, err)
		}
		x = transactional(t, brokers, func(cfg *kafkatx.Config) { cfg.CheckpointTopic = topic })
		if err := x.Ready(ctx); err != nil {
			t.Errorf("topic %s, made by setup: %v", topic, err)
		}
	}
}

// Positions must not be lost with one broker, where there are others.
func TestCheckpointTopic_NeedsTwoReplicasInSyncOfThree(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		brokers int
		factor  int16
		own     string // what the brokers say that a topic has by default
		want    string
	}{
		"one broker":                     {1, -1, "", ""},
		"two replicas":                   {3, 2, "", ""},
		"three replicas":                 {3, 3, "", "2"},
		"three replicas by default":      {3, -1, "", "2"},
		"brokers that ask for two":       {3, 3, "2", ""},
		"brokers that ask for all three": {3, 3, "3", ""},
		"brokers that ask for one":       {3, 3, "1", "2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			brokers := cluster(t, kfake.NumBrokers(c.brokers))
			brokers.ControlKey(int16(kmsg.CreateTopics), func(r kmsg.Request) (kmsg.Response, error, bool) {
				brokers.KeepControl()
				req := r.(*kmsg.CreateTopicsRequest)
				if !req.ValidateOnly || c.own == "" {
					return nil, nil, false
				}
				resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
				topic := kmsg.NewCreateTopicsResponseTopic()
				topic.Topic, topic.ReplicationFactor = req.Topics[0].Topic, req.Topics[0].ReplicationFactor
				config := kmsg.NewCreateTopicsResponseTopicConfig()
				config.Name, config.Value = "min.insync.replicas", &c.own
				topic.Configs = append(topic.Configs, config)
				resp.Topics = append(resp.Topics, topic)
				return resp, nil, true
			})
			cfg := kafka.Config{Connection: broker.Connection{Brokers: brokers.ListenAddrs()}, CreateTopics: topics.Creation{ReplicationFactor: c.factor}}
			if _, err := topics.EnsureCheckpointTopic(t.Context(), cfg.Connection, cfg.CreateTopics, "positions", false); err != nil {
				t.Fatal(err)
			}
			got := ""
			if v := brokers.TopicInfo("positions").Configs["min.insync.replicas"]; v != nil {
				got = *v
			}
			if got != c.want {
				t.Errorf("min.insync.replicas is %q, want %q", got, c.want)
			}
		})
	}
}
