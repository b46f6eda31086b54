package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A logical message is in no table: its letter is the only copy of what it said, so the letter
// has its body, or the relay blocks.
func TestDeadLetter_OfALogicalMessageKeepsItsBody(t *testing.T) {
	for name, transactional := range map[string]bool{"at_least_once": true, "exactly_once": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLife(t)
			const rest = "}]\nrelay: {on_reject: dead_letter, guarantee: %s, dead_letter_topic: lm.dead}\n"
			l.configure(t, "outbox: [{message_prefix: lm"+fmt.Sprintf(rest, name))
			invoke(t, l.env, "setup").want(t, exitOK, "created slot", "")
			emit := func(body string) {
				t.Helper()
				l.db.Exec(t, "SELECT pg_logical_emit_message($1::boolean, 'lm', $2::text)", transactional, body)
			}
			l.brokers.CreateTopic(t, "order-events", 1, "max.message.bytes", "1000")
			l.limit(t, "lm.dead", "1800")
			url, stop := l.start(t, nil)
			emit("not json")
			l.db.Exec(t, `SELECT pg_logical_emit_message($1::boolean, 'lm', '\xff00fe'::bytea)`, transactional)
			emit(`{"id": "3", "aggregateId": "a", "payload": {"n": 3}}`)
			emit(`{"id": "4", "aggregateId": "b", "aggregateType": "order", "type": "T", "payload": {"n": 4}}`)
			l.published(t, url, 4)

			all := invoke(t, l.env, "deadletter", "show", "--payload")
			for _, want := range []string{"not json", "ff00fe", `{"id": "3", "aggregateId": "a", "payload": {"n": 3}}`, "the whole body of the logical message; redrive routes it with the present configuration"} {
				all.want(t, exitOK, want, "")
			}

			emit(`{"id": "5", "aggregateId": "b", "aggregateType": "order", "type": "T", "payload": "` + strings.Repeat("x", 2500) + `"}`)
			l.await(t, "the relay is blocked at the large message", func() bool {
				got := invoke(t, nil, "status", "--url", url)
				return strings.Contains(got.stdout, "raise max.message.bytes of the dead-letter topic lm.dead")
			})
			invoke(t, l.env, "deadletter", "list").want(t, exitOK, "3 of 3 dead letters waiting", "") // none of the large message
			l.limit(t, "lm.dead", "100000")
			l.published(t, url, 5)
			stop()
			l.limit(t, "order-events", "100000")

			plan := invoke(t, l.env, "deadletter", "redrive", "--all")
			plan.want(t, exitOK, "correct the mapping of message_prefix: lm, or discard the letter and emit the message again", "")
			if strings.Contains(plan.stdout, "is not in the configuration") {
				t.Errorf("a wrong reason:\n%s", plan.stdout)
			}
			l.configure(t, "outbox: [{message_prefix: lm, topic: order-events"+fmt.Sprintf(rest, name))
			invoke(t, l.env, "deadletter", "redrive", "--all", "--yes").want(t, exitFailed, "2 of 4 dead letters of the selected keys re-driven, 2 left", "")
			var got []string
			for _, r := range l.brokers.Read(t, "order-events") {
				got = append(got, fmt.Sprintf("%s %s %d", r.Key, r.Headers[0].Value, len(r.Value)))
			}
			// Records that exactly-once aborted are read too.
			if text := strings.Join(slices.Compact(got), ", "); text != "b 4 8, b 5 2500, a 3 8" && text != "b 4 8, a 3 8, b 5 2500" {
				t.Errorf("records: %s", text)
			}
			l.configure(t, "outbox: [{message_prefix: other, topic: order-events"+fmt.Sprintf(rest, name))
			invoke(t, l.env, "deadletter", "redrive", "--all", "--yes").want(t, exitFailed, "no entry of outbox in the configuration has message_prefix: lm", "")
		})
	}
}

// limit sets the size of a topic's largest batch.
func (l *life) limit(t *testing.T, topic, bytes string) {
	t.Helper()
	altered, err := l.brokers.Admin(t).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: kmsg.StringPtr(bytes)}}, topic)
	if err == nil {
		_, err = altered.On(topic, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}
