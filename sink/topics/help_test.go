package topics_test

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/twmb/franz-go/pkg/kfake"
)

func cluster(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func newRecord(topic, key, value string) record.Record {
	return record.Record{Topic: topic, Key: []byte(key), Value: []byte(value), Partition: record.AutoPartition}
}
