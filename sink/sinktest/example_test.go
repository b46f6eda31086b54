package sinktest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/sinktest"
)

// A record that fails holds back what was sent after it, until Resume.
func ExampleRecorder() {
	var recorder sinktest.Recorder
	recorder.Decide(func(r *record.Record) sinktest.Verdict {
		if string(r.Value) == "bad" {
			return sinktest.Fail(sink.Retry, "not_leader", errors.New("orders has another leader"))
		}
		return sinktest.Verdict{}
	})
	send := func(values ...string) {
		var records []record.Record
		for _, value := range values {
			records = append(records, record.Record{Topic: "orders", Key: []byte("42"), Value: []byte(value), Partition: record.AutoPartition})
		}
		recorder.Send(context.Background(), records, func(err error) {
			var failed *sink.FailedError
			if !errors.As(err, &failed) {
				fmt.Println("all durable")
				return
			}
			for _, f := range failed.Failures {
				fmt.Printf("%s: %v\n", records[f.Index].Value, f.Err)
			}
		})
	}
	send("first", "bad", "later")
	recorder.Decide(nil)
	recorder.Resume(context.Background())
	send("bad", "later")
	for _, d := range recorder.Delivered() {
		fmt.Printf("%s %s %s\n", d.Topic, d.Key, d.Value)
	}
	// Output:
	// bad: orders has another leader
	// later: held back after a failed record
	// all durable
	// orders 42 first
	// orders 42 bad
	// orders 42 later
}
