package kafka_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A request that was on its way when it was given up, in a broker that was slow or in
// something between that buffers, lands after what was sent after it. The brokers have
// to refuse it.
func TestKafka_WhatWasAbandonedIsRefusedBehindNewerRecords(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "orders"))
	k := open(t, c, nil)
	await(t, send(k, some(0, 1)))

	arrived, release := make(chan struct{}), make(chan struct{})
	var held atomic.Bool
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if held.CompareAndSwap(false, true) {
			close(arrived)
			c.SleepControl(func() { <-release })
		}
		return nil, nil, false
	})
	old := send(k, some(1, 1))
	<-arrived
	ctx, cancel := context.WithTimeout(t.Context(), guardTime)
	defer cancel()
	began := time.Now()
	if fenced, err := k.Abandon(ctx); err != nil || !fenced {
		t.Fatalf("abandon: fenced %t, %v", fenced, err)
	}
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("abandoning took %s", took)
	}
	if err := <-old; err == nil {
		t.Fatal("what was abandoned counts as delivered")
	}
	await(t, send(k, some(1, 3)))
	close(release)
	// The next request of the partition comes after the old one, which is handled now.
	await(t, send(k, some(4, 1)), send(k, some(5, 1)))
	var values []string
	for _, d := range read(t, c, "orders") {
		values = append(values, strings.TrimPrefix(string(d.Value), "value "))
	}
	if got, want := strings.Join(values, " "), "0 1 2 3 4 5"; got != want {
		t.Errorf("the topic has %s, want %s", got, want)
	}
}

var _ sink.Abandoner = (*kafka.Sink)(nil)
