package main

import (
	"context"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The network between a redrive and the brokers stands still: connections stay, and nothing
// comes through. The brokers have the records of the second key, and their answer is on the
// way.
func TestRedrive_EndsWhenTheNetworkStandsStill(t *testing.T) {
	t.Parallel()
	l := newLifeWith(t, sandbox.KafkaOptions{Proxied: true})
	l.setAside(t, setAside{key: "a"}, setAside{key: "b"}, setAside{key: "b"}, setAside{key: "c"})
	produced := 0
	cluster := l.brokers.Fake.Cluster()
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if produced++; produced == 3 { // the record of a and its marker came before
			for _, p := range l.brokers.Fake.Proxies() {
				p.Stall()
			}
		}
		return nil, nil, false
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	began := time.Now()
	got := invokeWithin(ctx, t, l.env, "deadletter", "redrive", "--all", "--yes")
	took := time.Since(began)
	for _, p := range l.brokers.Fake.Proxies() {
		p.Heal()
	}
	got.want(t, exitFailed, "1 of 4 dead letters of the selected keys re-driven, 3 left", "the redrive stopped: ")
	got.want(t, exitFailed, "", "; sent and marked: 1 of 4 dead letters; in hand was the one at partition 0, offset 1 (row 0/2/1 of table public.outbox), and of 2 dead letters of its key from there on nobody knows whether the brokers have them. Run it again")
	if took > 3*time.Minute {
		t.Errorf("it took %s to end", took)
	}
	t.Logf("after %s: %s", took.Round(time.Second), got.stderr)
	invoke(t, l.env, "deadletter", "list").want(t, exitOK, "3 of 3 dead letters waiting", "")
	invoke(t, l.env, "deadletter", "redrive", "--all", "--yes").want(t, exitOK, "3 of 3 dead letters of the selected keys re-driven, 0 left", "")
	if order := l.values(t, "orders", "b"); order != "1 2 1 2" {
		t.Errorf("key b: %s", order)
	}
	if a, c := l.values(t, "orders", "a"), l.values(t, "orders", "c"); a != "0" || c != "3" {
		t.Errorf("keys a and c: %s, %s", a, c)
	}
}
