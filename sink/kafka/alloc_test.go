package kafka

import (
	"fmt"
	"testing"

	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/producer"
	"github.com/rs/zerolog"
)

// What the sink itself does for a record must not allocate; the client's part is
// one batch for many records.
func TestInFlightBatch_AllocatesLessThanOnceInTenRecords(t *testing.T) {
	k, err := New(producer.Config{Connection: broker.Connection{Brokers: []string{"127.0.0.1:1"}}}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = k.Close(t.Context()) }()
	const records = 1000
	batch := make([]record.Record, records)
	for i := range batch {
		batch[i] = record.Record{
			Topic: "orders", Key: fmt.Append(nil, i), Value: []byte(`{"n":1}`), Partition: record.AutoPartition,
			Headers: []record.Header{{Key: "id", Value: fmt.Append(nil, i)}, {Key: "eventType", Value: []byte("placed")}},
		}
	}
	ended := 0
	done := func(error) { ended++ }
	got := testing.AllocsPerRun(20, func() {
		f := k.newInFlightBatch(t.Context(), batch, done)
		k.sends.add()
		for range records {
			k.countOutcomes(f, 1)
		}
		k.countOutcomes(f, 1)
	})
	if got > records/10 || ended != 21 {
		t.Errorf("%.0f allocations for %d records; %d batches ended", got, records, ended)
	}
}
