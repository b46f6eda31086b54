package deadletter_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink/topics"
)

// A letter is the record itself; headers behind its own say where it comes from.
func Example() {
	refused := &record.Record{
		Topic: "orders", Key: []byte("42"), Value: []byte(`{"total": 9}`), Partition: record.AutoPartition,
		Row: &wal.Row{Txn: &wal.Txn{XID: 7, Commit: 0x100, End: 0x130, Time: time.Unix(1000, 0)}, Ordinal: 1, Relation: &wal.Relation{Namespace: "public", Name: "outbox"}},
	}
	sent := deadletter.Wrap(refused, "orders.dead-letters", deadletter.Cause{
		Reason: "record_too_large", Err: errors.New("the record is larger than max.message.bytes of orders"),
		Source: deadletter.SourceID("7301", "16384", "orders"), Timeline: 1,
	})
	letter, _, err := deadletter.Parse(&topics.Message{Topic: sent.Topic, Offset: 7, Key: sent.Key, Value: sent.Value, Headers: sent.Headers})
	if err != nil {
		panic(err)
	}
	fmt.Println(letter.Table, letter.Place, letter.Source, letter.Reason)
	fmt.Printf("%s %s %s, complete: %t\n", letter.Record.Topic, letter.Record.Key, letter.Record.Value, letter.Complete())
	// Output:
	// public.outbox 0/100/1 7301/16384/orders record_too_large
	// orders 42 {"total": 9}, complete: true
}
