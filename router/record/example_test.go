package record_test

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/router/record"
)

// A Buffer holds the records of a batch and gives their memory back at once.
func ExampleBuffer() {
	var buffer record.Buffer
	buffer.Header("id", []byte("1"))
	value := buffer.Claim(append(buffer.Tail(16), `{"total": 9}`...))
	buffer.Records = append(buffer.Records, record.Record{
		Topic: "orders", Key: buffer.Copy([]byte("42")), Value: value, Headers: buffer.TakeHeaders(), Partition: record.AutoPartition,
	})
	for _, rec := range buffer.Records {
		fmt.Printf("%s %s %s, %s=%s\n", rec.Topic, rec.Key, rec.Value, rec.Headers[0].Key, rec.Headers[0].Value)
	}
	buffer.Reset()
	fmt.Println(len(buffer.Records), "records left")
	// Output:
	// orders 42 {"total": 9}, id=1
	// 0 records left
}

// The text of the error continues "a name …".
func ExampleCheckTopic() {
	fmt.Println(record.CheckTopic("orders.v1"))
	fmt.Println(record.CheckTopic("orders/v1"))
	// Output:
	// <nil>
	// has only letters and digits of ASCII, dot, underscore and hyphen
}
