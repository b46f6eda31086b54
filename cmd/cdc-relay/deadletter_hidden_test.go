package main

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A letter lies behind the start of another pipeline's Kafka transaction, which hides it. It waits like the others.
func TestRedrive_WaitsForLettersThatATransactionHides(t *testing.T) {
	t.Parallel()
	l, _ := withLetters(t, setAside{key: "a"})
	other, err := kgo.NewClient(kgo.SeedBrokers(l.brokers.Addrs...), kgo.TransactionalID("other"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := other.ProduceSync(t.Context(), &kgo.Record{Topic: "cdc-relay.dead-letters", Value: []byte("open")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	l.setMoreAside(t, setAside{key: "b"})

	stderr := &lineHook{line: "waiting up to 1m15s for the end of topic cdc-relay.dead-letters", act: func() {
		if err := other.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
			t.Error(err)
		}
	}}
	var stdout output
	code := run(t.Context(), []string{"deadletter", "redrive", "--all", "--yes"}, process{stdout: &stdout, stderr: stderr, env: append([]string{"HOME=/nonexistent"}, l.env...)})
	result{code, stdout.String(), stderr.String()}.want(t, exitOK, "2 of 2 dead letters of the selected keys re-driven, 0 left", "")
	if !stderr.seen {
		t.Error("it did not wait for the transaction")
	}
}
