package kafka_test

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/cdc-relay/cdc-relay/sink/producer"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// writes counts the produce requests that the client has written.
type writes struct{ n atomic.Int64 }

func (w *writes) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if key == int16(kmsg.Produce) && err == nil {
		w.n.Add(1)
	}
}

var _ kgo.HookBrokerWrite = (*writes)(nil)

// stranger makes the batches of a request those of a producer without an id, which is how a
// broker takes the batches of one it forgot: in whatever sequence.
func stranger(request *kmsg.ProduceRequest) {
	for i := range request.Topics {
		for j := range request.Topics[i].Partitions {
			batch := request.Topics[i].Partitions[j].Records
			for at := 43; at < 57; at++ { // producer id, epoch, first sequence
				batch[at] = 0xff
			}
			binary.BigEndian.PutUint32(batch[17:], crc32.Checksum(batch[21:], crc32.MakeTable(crc32.Castagnoli)))
		}
	}
}

func refusal(request *kmsg.ProduceRequest, err *kerr.Error) *kmsg.ProduceResponse {
	response := request.ResponseKind().(*kmsg.ProduceResponse)
	for _, topic := range request.Topics {
		t := kmsg.NewProduceResponseTopic()
		t.Topic, t.TopicID = topic.Topic, topic.TopicID
		for _, partition := range topic.Partitions {
			p := kmsg.NewProduceResponseTopicPartition()
			p.Partition, p.ErrorCode = partition.Partition, err.Code
			t.Partitions = append(t.Partitions, p)
		}
		response.Topics = append(response.Topics, t)
	}
	return response
}

// spin waits for what another goroutine does.
func spin(t testing.TB, what string, until func() bool) {
	t.Helper()
	for end := time.Now().Add(guardTime); !until(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s", what, guardTime)
		}
	}
}

// A broker forgets a producer after a day and then takes any sequence: with two batches on
// their way, it would append the second one though it refused the first.
func TestKafka_NothingOvertakesTheFirstRecordOfAnIdlePartition(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "orders", "other"))
	written := new(writes)
	k, err := kafka.New(producer.Config{Connection: broker.Connection{Brokers: c.ListenAddrs()}, Compression: "none"}, zerolog.Nop(), func() kgo.Hook { return written })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close(context.Background()) })
	now := time.Now()
	k.SetClock(func() time.Time { return now })
	for _, topic := range []string{"orders", "other"} {
		if left := deliver(t, k, []record.Record{newRecord(topic, "k", "r0")}, 1); len(left) != 0 {
			t.Fatal("the first record was not delivered")
		}
	}
	now = now.Add(kafka.IdleTime + time.Second)

	holds1, holds2 := holds("r1"), holds("r2")
	reached, release := make(chan struct{}), make(chan struct{})
	refused, forgotten := false, false
	c.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		produce := request.(*kmsg.ProduceRequest)
		switch {
		case holds1(request) && !refused:
			refused = true
			close(reached)
			c.SleepControl(func() { <-release })
			return refusal(produce, kerr.MessageTooLarge), nil, true
		case holds2(request) && !forgotten:
			forgotten = true
			if !holds1(request) {
				stranger(produce)
			}
		}
		return nil, nil, false
	})
	records := []record.Record{newRecord("orders", "k", "r1"), newRecord("orders", "k", "r2")}
	before := written.n.Load()
	outcomes := make(chan error, 2)
	k.Send(t.Context(), records[:1], func(err error) { outcomes <- err })
	<-reached
	go k.Send(t.Context(), records[1:], func(err error) { outcomes <- err })
	spin(t, "the second record is written or held", func() bool { return written.n.Load() == before+2 || k.Awaiting() && written.n.Load() > before })
	if n := written.n.Load() - before; n != 1 {
		t.Errorf("%d requests are on their way to a partition that was idle, want 1", n)
	}
	close(release)
	for range records {
		if failed := failures(t, <-outcomes); len(failed) != 1 {
			t.Errorf("%d records failed, want both", len(failed))
		}
	}
	k.Resume(t.Context())
	if left := deliver(t, k, records, 1); len(left) != 0 {
		t.Fatal("not delivered the second time")
	}
	var got []string
	for _, d := range read(t, c, "orders") {
		got = append(got, string(d.Value))
	}
	if want := []string{"r0", "r1", "r2"}; !slices.Equal(got, want) {
		t.Errorf("the log has %v, want %v", got, want)
	}
	if n := k.Overtaken(); n != 0 {
		t.Errorf("%d records were noticed overtaking", n)
	}
}
