package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func newRecord(topic, key, value string) record.Record {
	return record.Record{Topic: topic, Key: []byte(key), Value: []byte(value), Partition: record.AutoPartition}
}

// deliver does what the contract asks of a caller: it waits for every outcome,
// resumes, and sends what failed again, in order. It returns what is left after
// one try.
func deliver(t testing.TB, s sink.Sink, records []record.Record, each int) (left []record.Record) {
	t.Helper()
	var parts [][]record.Record
	var outcomes []chan error
	for part := range slices.Chunk(records, each) {
		outcome := make(chan error, 1)
		s.Send(context.Background(), part, func(err error) { outcome <- err })
		parts, outcomes = append(parts, part), append(outcomes, outcome)
	}
	for i, outcome := range outcomes {
		for _, f := range failures(t, <-outcome) {
			left = append(left, parts[i][f.Index])
		}
	}
	return left
}

func failures(t testing.TB, err error) []sink.Failure {
	t.Helper()
	if err == nil {
		return nil
	}
	var failed *sink.FailedError
	if !errors.As(err, &failed) {
		t.Fatalf("done was given %T: %v", err, err)
	}
	return failed.Failures
}

// franz-go empties a partition whose batch was refused, and then writes what is
// produced next, under a new epoch, without waiting for the promises that tell
// us. Small Sends in a tight loop meet that moment: without the gate this test
// sees records overtake within a few rounds.
func TestKafka_NothingOvertakesWhateverIsRefused(t *testing.T) {
	for _, partitions := range []int32{1, 3} {
		t.Run(fmt.Sprintf("%d partitions", partitions), func(t *testing.T) {
			t.Parallel()
			c := cluster(t, kfake.SeedTopics(partitions, "orders"))
			k := open(t, c, nil)
			random := rand.New(rand.NewPCG(1, uint64(partitions)))
			rounds, each := 60, 2000
			if kafka.UnderRace || testing.Short() {
				rounds = 20
			}
			for round := range rounds {
				var todo []record.Record
				for i := range each {
					todo = append(todo, newRecord("orders", fmt.Sprint("k", i%5), fmt.Sprintf("v%06d", round*each+i)))
				}
				rejected := string(todo[random.IntN(each/4)].Value)
				c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.InvalidRecord, Count: 1 + random.IntN(2), When: holds(rejected)})
				for try := 0; len(todo) > 0; try++ {
					if try > 20 {
						t.Fatalf("round %d: not delivered", round)
					}
					todo = deliver(t, k, todo, 1+random.IntN(2))
					k.Resume(t.Context())
				}
			}
			delivered := read(t, c, "orders")
			if len(delivered) != rounds*each {
				t.Errorf("%d records are durable, want %d", len(delivered), rounds*each)
			}
			checkOrder(t, delivered)
			if n := k.Overtaken(); n != 0 {
				t.Errorf("%d records were noticed overtaking", n)
			}
		})
	}
}

func checkOrder(t testing.TB, delivered []sinktest.Delivered) {
	t.Helper()
	last := map[string]string{}
	for _, d := range delivered {
		key, value := string(d.Key), string(d.Value)
		if value <= last[key] {
			t.Errorf("key %s: %s follows %s", key, value, last[key])
		}
		last[key] = value
	}
}

// murmur2 values of the Java client's own tests.
func TestKafka_PartitionsLikeTheJavaClient(t *testing.T) {
	hashes := map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536,
		"a-little-bit-longer-string":                       -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	}
	const partitions = 12
	c := cluster(t, kfake.SeedTopics(partitions, "orders"))
	k := open(t, c, nil)
	var records []record.Record
	for key := range hashes {
		records = append(records, newRecord("orders", key, key))
	}
	explicit := newRecord("orders", "foobar", "explicit")
	explicit.Partition = 11
	records = append(records, explicit)
	if left := deliver(t, k, records, len(records)); len(left) > 0 {
		t.Fatal("not delivered")
	}
	for _, d := range read(t, c, "orders") {
		want := (hashes[string(d.Key)] & 0x7fffffff) % partitions
		if string(d.Value) == "explicit" {
			want = 11
		}
		if d.Partition != want {
			t.Errorf("key %q is on partition %d, want %d", d.Key, d.Partition, want)
		}
	}
}

func TestKafka_RefusesAPartitionThatDoesNotExist(t *testing.T) {
	for _, known := range []bool{false, true} {
		c := cluster(t, kfake.SeedTopics(2, "orders"))
		k := open(t, c, nil)
		if known {
			deliver(t, k, []record.Record{newRecord("orders", "k", "first")}, 1)
		}
		records := []record.Record{newRecord("orders", "k", "a"), newRecord("orders", "k", "b"), newRecord("orders", "k", "c")}
		records[0].Partition, records[1].Partition, records[2].Partition = 0, 2, 0
		outcome := make(chan error, 1)
		k.Send(context.Background(), records, func(err error) { outcome <- err })
		got := failures(t, <-outcome)
		at := slices.IndexFunc(got, func(f sink.Failure) bool { return f.Index == 1 })
		if at < 0 || got[at].Class != sink.Rejected || got[at].Reason != "invalid_partition" {
			t.Errorf("topic known %t: %+v", known, got)
		}
		for _, d := range read(t, c, "orders") {
			if string(d.Value) == "c" {
				t.Errorf("topic known %t: the record behind the refused one is durable", known)
			}
		}
	}
}

// Each topic that is new costs a question to the brokers; those of one Send are asked
// for together, and the records of each keep their order.
func TestKafka_LoadsManyNewTopicsTogether(t *testing.T) {
	const topics, rounds = 200, 3
	names := make([]string, topics)
	for i := range names {
		names[i] = fmt.Sprintf("topic-%d", i)
	}
	c := cluster(t, kfake.SeedTopics(1, names...))
	k := open(t, c, nil)
	var asked atomic.Int64
	c.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		asked.Add(1)
		return nil, nil, false
	})
	var records []record.Record
	for round := range rounds {
		for _, name := range names {
			records = append(records, newRecord(name, "k", fmt.Sprint(round)))
		}
	}
	if left := deliver(t, k, records, len(records)); len(left) != 0 {
		t.Fatalf("%d records are left", len(left))
	}
	if n := asked.Load(); n > topics/4 {
		t.Errorf("metadata was asked for %d times for %d topics", n, topics)
	}
	for _, name := range names[:5] {
		var got []string
		for _, d := range read(t, c, name) {
			got = append(got, string(d.Value))
		}
		if !slices.Equal(got, []string{"0", "1", "2"}) {
			t.Errorf("%s: %v", name, got)
		}
	}
}
