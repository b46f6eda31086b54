package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// configure replaces the table of the environment by a configuration file.
func (l *life) configure(t *testing.T, yaml string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	l.env = slices.DeleteFunc(l.env, func(s string) bool { return strings.HasPrefix(s, "CDC_RELAY_OUTBOX_TABLE") })
	l.env = append(l.env, "CDC_RELAY_CONFIG="+file, "CDC_RELAY_KAFKA_COMPRESSION=none")
}

func (l *life) published(t *testing.T, url string, n int) {
	t.Helper()
	l.await(t, fmt.Sprintf("published %d", n), func() bool {
		return strings.Contains(invoke(t, nil, "status", "--url", url).stdout, fmt.Sprintf("published %d,", n))
	})
}

// lettersOn has the dead letters of relays in a topic of the test's own.
func lettersOn(t *testing.T, brokers *harness.Brokers, relays ...*life) {
	t.Helper()
	topic := harness.Unique(t, "letters")
	for _, l := range relays {
		l.env = append(l.env, "CDC_RELAY_RELAY_DEAD_LETTER_TOPIC="+topic)
	}
	admin := brokers.Admin(t)
	t.Cleanup(func() {
		if brokers.Fake == nil {
			_, _ = admin.DeleteTopic(context.Background(), topic)
		}
	})
}

// Rows that the format refuses are sent with the format that the message recommends. Those
// of one key are sent together.
func TestDeadLetter_RestoredRecordsKeepTheirOwnValues(t *testing.T) {
	const key = "00000000-0000-0000-0000-00000000000"
	for name, keys := range map[string][3]string{"of one key": {key + "a", key + "a", key + "a"}, "of three keys": {key + "a", key + "b", key + "c"}} {
		t.Run(name, func(t *testing.T) {
			harness.EachBroker(t, func(t *testing.T, brokers *harness.Brokers) { restoresOwnValues(t, brokers, keys) })
		})
	}
}

func restoresOwnValues(t *testing.T, brokers *harness.Brokers, keys [3]string) {
	l, kind := newLifeOn(t, brokers), harness.Unique(t, "order")
	lettersOn(t, brokers, l)
	l.configure(t, "outbox: [{table: public.outbox, preset: outbox, value: merged}]\nrelay: {on_reject: dead_letter}\n")
	invoke(t, l.env, "setup", "--create-table").want(t, exitOK, "created slot", "")
	l.brokers.CreateTopic(t, kind+"-events", 1)
	url, stop := l.start(t, nil)
	for i, payload := range []string{`["first event, account 1, amount 100"]`, `["second event, account 2, amount 999999"]`, `["third"]`} {
		l.db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ($3, $1, 'x', $2::text::jsonb)`, keys[i], payload, kind)
	}
	l.published(t, url, 3)
	for set, want := range map[string]string{
		"outbox[0].columns.key=nope":  `would fail: --set outbox[0].columns.key=nope: outbox[0].columns.key: table public.outbox has no column "nope"`,
		"outbox[0].table=public.nope": "would fail: table public.outbox is not in the configuration (it has public.nope by --set outbox[0].table=public.nope), and the letter has no",
	} {
		invoke(t, l.env, "deadletter", "redrive", "--all", "--set", set).want(t, exitFailed, want, "")
	}
	invoke(t, l.env, "deadletter", "redrive", "--all", "--yes", "--set", "outbox[0].value=envelope").want(t, exitOK, "3 of 3 dead letters of the selected keys re-driven, 0 left", "")
	var values []string
	for _, r := range l.brokers.Read(t, kind+"-events") {
		values = append(values, string(r.Value))
	}
	want := `{"payload":["first event, account 1, amount 100"]}|{"payload":["second event, account 2, amount 999999"]}|{"payload":["third"]}`
	if got := strings.Join(values, "|"); got != want {
		t.Errorf("the topic holds\n%s, want\n%s", got, want)
	}
	stop()
}

// A table that was emptied and numbers its rows from 1 again has another event under the
// id of a letter, whose value is missing because of its size.
func TestDeadLetter_ValueOfAnotherRowIsNotTakenForTheLettersOwn(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	l.configure(t, "outbox: [{table: public.outbox, columns: {id: id, key: account, payload: payload}, topic: order-events}]\nrelay: {on_reject: dead_letter}\n")
	l.env = append(l.env, "CDC_RELAY_KAFKA_MAX_MESSAGE_BYTES=16KiB")
	l.db.Exec(t, "CREATE TABLE outbox (id bigserial PRIMARY KEY, account text, payload jsonb)")
	invoke(t, l.env, "setup").want(t, exitOK, "created slot", "")
	l.brokers.CreateTopic(t, "order-events", 1)
	url, stop := l.start(t, nil)
	l.db.Exec(t, `INSERT INTO outbox (account, payload) VALUES ('first', jsonb_build_object('fill', repeat('x', 50000)))`)
	l.published(t, url, 1)
	for _, flags := range [][]string{{}, {"--payload"}} {
		invoke(t, l.env, append([]string{"deadletter", "show"}, flags...)...).want(t, exitOK, "not here: its 50012 bytes were too many for the topic; redrive reads it from the table", "")
		if shown := invoke(t, l.env, append([]string{"deadletter", "show", "--json"}, flags...)...).stdout; strings.Contains(shown, `"value": null`) {
			t.Errorf("a value that the letter does not have reads as a tombstone:\n%s", shown)
		}
	}
	l.db.Exec(t, "TRUNCATE outbox RESTART IDENTITY")
	l.db.Exec(t, `INSERT INTO outbox (account, payload) VALUES ('second', '{"amount": 999}')`)
	l.published(t, url, 2)
	invoke(t, l.env, "deadletter", "redrive", "--all").want(t, exitFailed, "would fail: the letter at partition", "")
	refused := invoke(t, l.env, "deadletter", "redrive", "--all", "--yes")
	refused.want(t, exitFailed, "the row that now has its event id makes another key", "")
	refused.want(t, exitFailed, "0 of 1 dead letter of the selected keys re-driven, 1 left", "")
	if got := l.brokers.Read(t, "order-events"); len(got) != 1 || string(got[0].Key) != "second" {
		t.Errorf("the topic holds %v, want the second row's record alone", got)
	}
	stop()
}

// Two services on one Kafka cluster, each with its own database and a table of the same
// name, the ids of which are serial numbers, share the dead-letter topic.
func TestDeadLetter_RedriveLeavesLettersOfOthersAlone(t *testing.T) {
	harness.EachBroker(t, redriveLeavesOthersAlone)
}

func redriveLeavesOthersAlone(t *testing.T, brokers *harness.Brokers) {
	a, b := newLifeOn(t, brokers), newLifeOn(t, brokers)
	lettersOn(t, brokers, a, b)
	nameA, nameB := harness.Unique(t, "relay_a"), harness.Unique(t, "relay_b")
	for name, l := range map[string]*life{nameA: a, nameB: b} {
		l.configure(t, "outbox: [{table: public.outbox, preset: auto}]\nrelay: {on_reject: dead_letter}\n")
		l.db.Exec(t, "CREATE TABLE outbox (id bigserial PRIMARY KEY, event_type text, payload jsonb, created_at timestamptz DEFAULT now(), published_at timestamptz, retry_count int DEFAULT 0)")
		l.env = append(l.env, "CDC_RELAY_POSTGRES_SLOT="+name)
		invoke(t, l.env, "setup").want(t, exitOK, "created slot", "")
		for _, topic := range []string{name + "-placed", name + "-repaired"} {
			brokers.CreateTopic(t, topic, 1)
		}
	}
	a.db.Exec(t, `INSERT INTO outbox (event_type, payload) VALUES ('no topic!', '{"service": "a", "invoice": 1}')`)
	b.db.Exec(t, `INSERT INTO outbox (event_type, payload) VALUES ($1, '{"service": "b", "order": 1}')`, nameB+"-placed")
	urlA, stopA := a.start(t, nil)
	urlB, stopB := b.start(t, nil)
	a.published(t, urlA, 1)
	b.published(t, urlB, 1)
	invoke(t, b.env, "deadletter", "list").want(t, exitOK, "/"+nameA, "")
	invoke(t, b.env, "deadletter", "redrive", "--all").want(t, exitOK, "1 dead letter of other sources matches and is left out", "")
	invoke(t, b.env, "deadletter", "redrive", "--all", "--yes").want(t, exitOK, "no dead letter that waits", "")
	// Named, it is refused all the same: the row that it lacks a topic of is not in our table.
	refused := invoke(t, b.env, "deadletter", "redrive", "--all", "--yes", "--source", "all")
	refused.want(t, exitFailed, "0 of 1 dead letter of the selected keys re-driven, 1 left", "")
	refused.want(t, exitFailed, "whose table this configuration does not read", "")
	invoke(t, a.env, "deadletter", "redrive", "--all", "--yes", "--set", "outbox[0].topic="+nameA+"-repaired").want(t, exitOK, "1 of 1 dead letter of the selected keys re-driven, 0 left", "")
	seen := map[string]int{}
	for _, topic := range []string{nameA + "-placed", nameA + "-repaired", nameB + "-placed", nameB + "-repaired"} {
		for _, r := range brokers.Read(t, topic) {
			seen[topic+" "+string(r.Value)]++
		}
	}
	if len(seen) != 2 || seen[nameA+`-repaired {"invoice": 1, "service": "a"}`] != 1 || seen[nameB+`-placed {"order": 1, "service": "b"}`] != 1 {
		t.Errorf("the topics hold %v", seen)
	}
	stopA()
	stopB()
}

// A letter lacks its value alone. The row that has its event id by now has another key: it
// is not the letter's, and what it holds is not sent under the letter's key.
func TestDeadLetter_CompletesNothingFromARowOfAnotherKey(t *testing.T) {
	t.Parallel()
	l := newLife(t)
	l.env = append(l.env, "CDC_RELAY_RELAY_ON_REJECT=dead_letter", "CDC_RELAY_KAFKA_COMPRESSION=none", "CDC_RELAY_KAFKA_MAX_MESSAGE_BYTES=20KiB")
	invoke(t, l.env, "setup", "--create-table").want(t, exitOK, "created slot", "")
	l.brokers.CreateTopic(t, "order-events", 1)
	url, stop := l.start(t, nil)
	l.db.Exec(t, `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
		VALUES ('order', '00000000-0000-0000-0000-00000000000a', 'x', jsonb_build_object('fill', repeat('x', 50000)))`)
	l.published(t, url, 1)
	stop()
	l.db.Exec(t, `UPDATE outbox SET aggregate_id = '00000000-0000-0000-0000-00000000000b', payload = '{"of": "b"}'`)
	invoke(t, l.env, "deadletter", "redrive", "--all").want(t, exitFailed, "would fail: ", "")
	invoke(t, l.env, "deadletter", "redrive", "--all", "--yes").want(t, exitFailed, "makes another key", "")
	if n := len(l.brokers.Read(t, "order-events")); n != 0 {
		t.Errorf("%d records in the topic of the letter, want none", n)
	}
}
