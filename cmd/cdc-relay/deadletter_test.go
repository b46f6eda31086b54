package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestDeadLetter_RefusesWhatMakesNoSense(t *testing.T) {
	env := []string{"CDC_RELAY_POSTGRES_URL=postgres://relay@localhost/shop", "CDC_RELAY_KAFKA_BROKERS=localhost:1", "CDC_RELAY_OUTBOX_TABLE=outbox"}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"list", "--since", "yesterday"}, "--since"},
		{[]string{"list", "--lsn", "12"}, "--lsn"},
		{[]string{"show", "--offset", "3"}, "--partition"},
		{[]string{"list", "--since", "-5m"}, "--since -5m0s is not allowed; allowed: more than 0s"},
		{[]string{"show", "--partition", "-1", "--offset", "1"}, "--partition -1 is not allowed; allowed: 0 or more"},
		{[]string{"redrive", "--partition", "1", "--offset", "-2"}, "--offset -2 is not allowed; allowed: 0 or more"},
		{[]string{"redrive"}, "--all"},
		{[]string{"redrive", "--all", "--reason", "route"}, "--all selects every dead letter of the source, and --reason only some; leave out --all, or the others"},
		{[]string{"redrive", "--all", "--partition", "1", "--key", "", "--source", "all"}, "and --key, --partition only some"},
		{[]string{"redrive", "--reason", "", "--topic", "x"}, "--reason is empty; leave it out to select all"},
		{[]string{"list", "--lsn", ""}, "--lsn is empty"},
		{[]string{"redrive", "--what"}, "--what"},
		{[]string{"list", "--limit", "-1"}, `invalid argument "-1" for "--limit" flag: allowed: 1 or more`},
		{[]string{"show", "--limit", "0"}, "allowed: 1 or more"},
		{[]string{"show", "--limit", "ten"}, "allowed: 1 or more"},
		{nil, "deadletter needs a subcommand: list, show or redrive"},
	} {
		invoke(t, env, append([]string{"deadletter"}, tt.args...)...).want(t, exitUsage, "", tt.want)
	}
}

// A topic is read partition by partition, in an order that differs from call to call.
func TestDeadLetter_LimitKeepsTheNewestOfAllPartitions(t *testing.T) {
	t.Parallel()
	brokers := harness.Kfake(t, sandbox.KafkaOptions{})
	brokers.CreateTopic(t, "cdc-relay.dead-letters", 3)
	env := []string{"CDC_RELAY_POSTGRES_URL=postgres://relay@localhost/shop", "CDC_RELAY_KAFKA_BROKERS=" + strings.Join(brokers.Addrs, ","), "CDC_RELAY_OUTBOX_TABLE=outbox"}
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers.Addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	start := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	for _, n := range []int{5, 2, 6, 1, 4, 3} {
		at := start.Add(time.Duration(min(n, 5)) * time.Minute) // 5 and 6 at one time
		lsn := fmt.Sprintf("0/%d", n)
		group := deadletter.KeyGroup("orders", []byte(lsn))
		letter := &kgo.Record{Topic: "cdc-relay.dead-letters", Partition: int32(n % 3), Key: []byte(lsn), Timestamp: at}
		for name, value := range map[string]string{
			deadletter.HeaderReason: "record_too_large", deadletter.HeaderTopic: "orders", deadletter.HeaderTable: "public.outbox",
			deadletter.HeaderLSN: lsn, deadletter.HeaderSeq: "1", deadletter.HeaderSource: "7/16384/s", deadletter.HeaderGroup: group.String(),
		} {
			letter.Headers = append(letter.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
		if err := client.ProduceSync(t.Context(), letter).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for _, verb := range []string{"list", "show"} {
		var found struct{ Letters []struct{ LSN string } }
		got := invoke(t, env, "deadletter", verb, "--json", "--limit", "3")
		if err := json.Unmarshal([]byte(got.stdout), &found); err != nil {
			t.Fatalf("%v: %s%s", err, got.stdout, got.stderr)
		}
		var order []string
		for _, letter := range found.Letters {
			order = append(order, letter.LSN)
		}
		if got := strings.Join(order, " "); got != "0/4 0/5 0/6" {
			t.Errorf("%s: %s", verb, got)
		}
	}
	text := invoke(t, env, "deadletter", "list", "--limit", "2").stdout
	if before, after, _ := strings.Cut(text, "0/5/1"); !strings.Contains(after, "0/6/1") || strings.Contains(before, "0/4") {
		t.Errorf("list:\n%s", text)
	}
	plan := invoke(t, env, "deadletter", "redrive", "--all", "--source", "all").stdout
	for n, at := 1, 0; n <= 6; n++ {
		next := strings.Index(plan, fmt.Sprintf("0/%d/1", n))
		if next <= at {
			t.Fatalf("row %d is not behind the one before it:\n%s", n, plan)
		}
		at = next
	}
}

// A row too large and its followers, from the table to the dead letters and back.
func TestDeadLetter_FromRejectionToRedrive(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	l.env = append(l.env, "CDC_RELAY_RELAY_ON_REJECT=dead_letter", "CDC_RELAY_RELAY_PARK_KEY=true", "CDC_RELAY_KAFKA_COMPRESSION=none")
	invoke(t, l.env, "deadletter", "list").want(t, exitRefused, "", "cdc-relay setup")
	invoke(t, l.env, "setup", "--create-table", "--dry-run").want(t, exitOK, "topic cdc-relay.dead-letters is missing", "")
	invoke(t, l.env, "setup", "--create-table").want(t, exitOK, "created topic cdc-relay.dead-letters", "")
	invoke(t, l.env, "setup").want(t, exitOK, "topic cdc-relay.dead-letters exists", "")
	invoke(t, l.env, "check").want(t, exitOK, "topic cdc-relay.dead-letters keeps its records", "")
	invoke(t, l.env, "deadletter", "list").want(t, exitOK, "0 of 0 dead letters", "")
	l.brokers.CreateTopic(t, "order-events", 1, "max.message.bytes", "20000")

	url, stop := l.start(t, nil)
	insert := func(key, value string, size int) {
		l.db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
			VALUES ('order', $1, 'OrderPlaced', jsonb_build_object('n', $2::text, 'fill', repeat('x', $3)))`, key, value, size)
	}
	const a, b = "00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000b"
	insert(a, "1", 0)
	insert(a, "secret-large", 50_000)
	insert(a, "3", 0)
	insert(b, "4", 0)
	l.db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('no topic!', $1, 'x', '{"n": "secret-unrouted"}')`, b)
	settled := func(published string) {
		t.Helper()
		l.await(t, "published "+published, func() bool {
			return strings.Contains(invoke(t, nil, "status", "--url", url).stdout, "published "+published+",")
		})
	}
	settled("5")
	if n := len(l.brokers.Read(t, "order-events")); n != 2 {
		t.Fatalf("%d records, want 2", n)
	}

	list := invoke(t, l.env, "deadletter", "list")
	for _, want := range []string{"record_too_large", "parked", "route", "order-events", "public.outbox", "3 of 3 dead letters waiting"} {
		list.want(t, exitOK, want, "")
	}
	invoke(t, l.env, "deadletter", "list", "--reason", "parked", "--topic", "order-events", "--key", a, "--since", "1h", "--table", "public.outbox").want(t, exitOK, "1 of 1 dead letter waiting in topic cdc-relay.dead-letters; 3 wait there with those that do not match", "")
	invoke(t, l.env, "deadletter", "list", "--reason", "encode", "--all").want(t, exitOK, "0 of 0 dead letters in all in topic cdc-relay.dead-letters; 3 are there with those that do not match", "there are: ")
	shown := invoke(t, l.env, "deadletter", "show", "--reason", "record_too_large")
	shown.want(t, exitOK, "--payload prints it", "")
	if asJSON := invoke(t, l.env, "deadletter", "show", "--json").stdout; strings.Contains(asJSON, `"value": null`) {
		t.Errorf("a value that is not shown reads as a tombstone:\n%s", asJSON)
	}
	for _, out := range []string{list.stdout, shown.stdout, invoke(t, l.env, "deadletter", "show", "--json").stdout, invoke(t, l.env, "deadletter", "list", "--json").stdout} {
		if strings.Contains(out, "secret-") {
			t.Fatalf("a payload is shown:\n%s", out)
		}
	}
	invoke(t, l.env, "deadletter", "show", "--reason", "record_too_large", "--payload").want(t, exitOK, "secret-large", "")
	invoke(t, l.env, "deadletter", "show", "--reason", "nothing").want(t, exitOK, "0 of 0 dead letters of topic cdc-relay.dead-letters: none of the 3 there matches", "")
	invoke(t, l.env, "deadletter", "redrive", "--reason", "nothing", "--yes").want(t, exitOK, "matches; 3 in all wait there", "")
	for _, verb := range []string{"show", "redrive"} {
		invoke(t, l.env, "deadletter", verb, "--partition", "99", "--offset", "0").want(t, exitFailed, "", "no dead letter at partition 99, offset 0 (3 in topic cdc-relay.dead-letters)")
	}

	// The plan takes the follower along, and touches nothing.
	plan := invoke(t, l.env, "deadletter", "redrive", "--reason", "record_too_large", "--json")
	var report struct {
		Plan    bool
		Letters int
		Groups  []struct{ Letters, Selected int }
	}
	if err := json.Unmarshal([]byte(plan.stdout), &report); err != nil || !report.Plan || report.Letters != 2 || report.Groups[0].Selected != 1 {
		t.Fatalf("plan %v:\n%s", err, plan.stdout)
	}
	// Nothing has changed, so the brokers refuse again, and the rest of the key waits.
	invoke(t, l.env, "deadletter", "redrive", "--reason", "record_too_large", "--yes").want(t, exitFailed, "0 of 2 dead letters of the selected keys re-driven, 2 left", "")

	_, err := l.brokers.Admin(t).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: kmsg.StringPtr("200000")}}, "order-events")
	if err != nil {
		t.Fatal(err)
	}
	invoke(t, l.env, "deadletter", "redrive", "--reason", "record_too_large", "--yes").want(t, exitOK, "2 of 2 dead letters of the selected keys re-driven, 0 left", "")
	invoke(t, l.env, "deadletter", "redrive", "--reason", "record_too_large", "--yes").want(t, exitOK, "no dead letter that waits", "")
	l.await(t, "the key is free", func() bool {
		return strings.Contains(invoke(t, nil, "status", "--url", url, "--json").stdout, `"parked_keys": 0`)
	})
	insert(a, "6", 0)
	settled("6")
	var order []string
	for _, r := range l.brokers.Read(t, "order-events") {
		if string(r.Key) == a {
			var value struct{ N string }
			if err := json.Unmarshal(r.Value, &value); err != nil {
				t.Fatal(err)
			}
			order = append(order, value.N)
			for _, h := range r.Headers {
				if strings.HasPrefix(h.Key, "cdc-relay-") {
					t.Errorf("a re-driven record has the header %s", h.Key)
				}
			}
		}
	}
	if got := strings.Join(order, " "); got != "1 secret-large 3 6" {
		t.Fatalf("key a: %s", got)
	}

	// A row without a topic is made anew from the table, once it can be. The plan tells.
	invoke(t, l.env, "deadletter", "redrive", "--reason", "route").want(t, exitFailed, "0 of 1 dead letter of the selected keys would be re-driven, 1 would be left (1 would fail); nothing was changed, --yes would change nothing: first fix what RESULT names", "")
	invoke(t, l.env, "deadletter", "redrive", "--reason", "route").want(t, exitFailed, "would fail: ", "")
	invoke(t, l.env, "deadletter", "redrive", "--reason", "route", "--set", "outbox[0].topic=orders-repaired").want(t, exitOK, "orders-repaired", "")
	invoke(t, l.env, "deadletter", "redrive", "--reason", "route", "--set", "outbox[0].topic=orders-repaired").want(t, exitOK, "1 of 1 dead letter of the selected keys would be re-driven, 0 would be left; nothing was changed, repeat with --yes", "")
	invoke(t, l.env, "deadletter", "redrive", "--reason", "route", "--yes").want(t, exitFailed, "0 of 1 dead letter of the selected keys re-driven, 1 left", "")
	invoke(t, l.env, "deadletter", "redrive", "--reason", "route", "--yes", "--set", "outbox[0].topic=orders-repaired").want(t, exitOK, "1 of 1 dead letter of the selected keys re-driven, 0 left", "")
	if got := l.brokers.Read(t, "orders-repaired"); len(got) != 1 || !strings.Contains(string(got[0].Value), "secret-unrouted") || string(got[0].Key) != b {
		t.Fatalf("repaired: %v", got)
	}
	invoke(t, l.env, "deadletter", "list").want(t, exitOK, "0 of 0 dead letters", "")
	invoke(t, l.env, "deadletter", "list", "--all").want(t, exitOK, "sent", "")

	l.db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('', $1, 'x', '{}')`, b)
	settled("7")
	invoke(t, l.env, "deadletter", "redrive", "--all", "--discard").want(t, exitOK, "1 of 1 dead letter of the selected keys would be discarded", "")
	invoke(t, l.env, "deadletter", "redrive", "--all", "--discard", "--yes").want(t, exitOK, "1 of 1 dead letter of the selected keys discarded, 0 left", "")
	invoke(t, l.env, "deadletter", "list", "--all").want(t, exitOK, "discarded", "")
	if code := stop(); code != exitOK {
		t.Errorf("run ended with %d", code)
	}
}
