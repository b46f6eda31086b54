package kafkatx_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/twmb/franz-go/pkg/kfake"
)

// guardTime only ends tests that hang.
const guardTime = time.Minute

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

func secret(value string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return value, nil }
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

func wantFailure(t testing.TB, f *sink.Failure, class sink.Class, reason string, mentions ...string) {
	t.Helper()
	if f == nil {
		t.Fatalf("the record was acknowledged, want %s %s", class, reason)
	}
	if f.Class != class || f.Reason != reason {
		t.Errorf("failure is %s %s (%v), want %s %s", f.Class, f.Reason, f.Err, class, reason)
	}
	for _, text := range mentions {
		if !strings.Contains(f.Err.Error(), text) {
			t.Errorf("message %q does not mention %q", f.Err, text)
		}
	}
}

// wantFinding looks for one finding whose text has all of texts.
func wantFinding(t *testing.T, list []advice.Finding, check string, level advice.Level, texts ...string) {
	t.Helper()
	for _, f := range list {
		if f.Check != check || f.Level != level {
			continue
		}
		all := true
		for _, text := range texts {
			all = all && strings.Contains(f.Seen+"; "+f.Advice, text)
		}
		if all {
			return
		}
	}
	t.Errorf("no %s of %s has %q; found %v", level, check, texts, list)
}
