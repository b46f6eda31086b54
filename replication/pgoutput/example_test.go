package pgoutput_test

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/replication/pgoutput"
	"github.com/cdc-relay/cdc-relay/replication/pgoutput/pgoutputtest"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// The messages are those of one transaction, as the server sends them. Through is the
// position that may be confirmed once the rows are delivered.
func ExampleDecoder() {
	decoder := pgoutput.NewDecoder(pgoutput.Options{Tables: []wal.Table{{Schema: "public", Name: "outbox"}}})
	for _, message := range []pgoutputtest.Message{
		pgoutputtest.Begin(0x100, 7),
		pgoutputtest.Relation(16384, "public", "outbox", "id", "payload"),
		pgoutputtest.Insert(16384, "1", `{"total": 9}`),
		pgoutputtest.Commit(0x100, 0x130),
	} {
		if err := decoder.Decode(message, 0); err != nil {
			panic(err)
		}
	}
	batch := decoder.Take()
	defer batch.Release()
	for _, row := range batch.Rows {
		fmt.Printf("%s, transaction %d, row %d\n", row.Relation.Qualified(), row.Txn.XID, row.Ordinal)
		for i, value := range row.Values {
			fmt.Printf("%s = %s\n", row.Relation.Columns[i].Name, value.Data)
		}
	}
	fmt.Println("through", batch.Through)
	// Output:
	// public.outbox, transaction 7, row 1
	// id = 1
	// payload = {"total": 9}
	// through 0/130
}
