package sink

import (
	"context"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/router"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Brokers that refuse large batches and then go away must not hold who produces for them.
func TestProduce_EndsWithItsContext(t *testing.T) {
	client, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	s := &Transactional{cfg: TransactionalConfig{KafkaConfig: KafkaConfig{MaxMessageBytes: 1 << 20}}}
	s.batch.Store(1)
	records := make([]router.Record, 3)
	for i := range records {
		records[i] = router.Record{Topic: "orders", Value: []byte(`{"n":1}`), Partition: router.AutoPartition}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	ended := make(chan struct{})
	answers := newOutcomes()
	go func() {
		answers.produce(ctx, s, client, newTransactionBatch(records, func(error) {}))
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("it goes on waiting for the brokers")
	}
	if !answers.isBroken() {
		t.Error("the transaction could be committed without the rest")
	}
	if n := client.BufferedProduceRecords(); n != 1 {
		t.Errorf("%d records were produced, want the first batch of one", n)
	}
}
