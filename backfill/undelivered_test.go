package backfill

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
)

// again is one call of replay.
func (s *scene) again(t *testing.T, options ReplayOptions) (string, error) {
	t.Helper()
	var text bytes.Buffer
	if options.MaxRows == 0 {
		options.MaxRows = 1000
	}
	r := &Replay{Settings: s.settings, Options: options, Out: Output{Result: &text, Meanwhile: &text}, Log: zerolog.Nop()}
	err := r.Run(t.Context())
	return text.String(), err
}

// parked is a scene in which row 5 of key p was rejected and rows 6 and 7 are parked behind it.
// Row 4 of the key and row 8 of another one are delivered.
func parked(t *testing.T, guarantee string) *scene {
	t.Helper()
	s := play(t, harness.Postgres(t, "15"), harness.Kfake(t, sandbox.KafkaOptions{}), append(keeps(t, guarantee), "kafka.max_message_bytes=100KiB",
		"relay.on_reject=dead_letter", "relay.park_key=true", "relay.dead_letter_topic="+harness.Unique(t, "letters"))...)
	s.must(t, all)
	s.db.Exec(t, `INSERT INTO outbox SELECT n, 'a', 'p', 'e', CASE n WHEN 5 THEN repeat('secret', 100000) ELSE n::text END FROM generate_series(4, 7) n`)
	s.db.Exec(t, `INSERT INTO outbox VALUES (8, 'a', 'q', 'e', '8')`)
	s.stream(t)
	if got := fmt.Sprint(s.committed(t)); got != "[4 8]" {
		t.Fatalf("the relay delivered %s", got)
	}
	return s
}

// done marks all letters as done.
func (s *scene) done(t *testing.T) {
	t.Helper()
	backlog, err := deadletter.ReadBacklog(t.Context(), s.settings.Kafka.Connection, s.settings.DeadLetterTopic, deadletter.Filter{}, func() {})
	if err != nil || len(backlog.Entries) != 3 {
		t.Fatalf("%d dead letters: %v", len(backlog.Entries), err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(s.brokers.Addrs...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, e := range backlog.Entries {
		m := deadletter.Marker{Source: e.Source, Group: e.Group, Outcome: deadletter.Discarded, Offsets: deadletter.NewOffsets([]int64{e.Offset})}
		rec := m.Record(s.settings.DeadLetterTopic, e.Record.Key)
		out := &kgo.Record{Topic: rec.Topic, Key: rec.Key, Value: rec.Value}
		for _, h := range rec.Headers {
			out.Headers = append(out.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		if err := client.ProduceSync(t.Context(), out).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// A row of a key with dead letters that wait would land before rows that no consumer has. So it is
// sent only where that was accepted.
func TestReplay_SendsNoRowAheadOfADeadLetterUnasked(t *testing.T) {
	t.Parallel()
	for _, guarantee := range []string{"at_least_once", "exactly_once"} {
		t.Run(guarantee, func(t *testing.T) {
			t.Parallel()
			s := parked(t, guarantee)
			refuses := func(what string, text string, err error, says ...string) {
				t.Helper()
				if _, refused := errors.AsType[*advice.Refused](err); !refused {
					t.Errorf("%s: %v\n%s", what, err, text)
					return
				}
				for _, part := range append(says, "accept-order") {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%s: %q is not in %v", what, part, err)
					}
				}
				if both := text + err.Error(); strings.Contains(both, "secret") || !strings.Contains(text, "dead letters: ") {
					t.Errorf("%s: %v\n%s", what, err, text)
				}
			}
			two := []string{"2 rows of 1 key with dead letters that wait, for example of the row of table public.outbox at ", "cdc-relay deadletter redrive"}
			ids := ReplayOptions{IDs: []string{"6", "7"}}
			if text, err := s.again(t, ids); err != nil || !strings.Contains(text, two[0]) || strings.Contains(text, "no key has newer rows") {
				t.Errorf("the plan: %v\n%s", err, text)
			}
			ids.Yes = true
			text, err := s.again(t, ids)
			refuses("--ids", text, err, two...)
			text, err = s.again(t, ReplayOptions{Keys: []string{"p"}, CompleteKeys: true, Yes: true})
			refuses("--complete-keys", text, err, "4 rows of 1 key")
			text, err = s.beside(t.Context(), BesideOptions{Where: "id IN (6, 7)", Yes: true}, nil)
			refuses("--late", text, err, two...)
			if text, err = s.again(t, ReplayOptions{IDs: []string{"8"}, Yes: true}); err != nil {
				t.Errorf("another key: %v\n%s", err, text)
			}
			usual := s.settings
			s.settings.DeadLetterTopic, s.settings.Kafka.CreateTopics.Enabled = harness.Unique(t, "nowhere"), false
			text, err = s.again(t, ids)
			refuses("no topic", text, err, "nobody can tell which keys have dead letters that wait", s.settings.DeadLetterTopic)
			s.settings = usual
			if got := fmt.Sprint(s.committed(t)); got != "[4 8 8]" {
				t.Fatalf("unasked there are %s", got)
			}
			ids.AcceptOrder = true
			if text, err = s.again(t, ids); err != nil || !strings.Contains(text, two[0]) {
				t.Errorf("accepted: %v\n%s", err, text)
			}
			s.done(t)
			ids.AcceptOrder = false
			if text, err = s.again(t, ids); err != nil || strings.Contains(text, "dead letters") {
				t.Errorf("once they are done: %v\n%s", err, text)
			}
			if got := fmt.Sprint(s.committed(t)); got != "[4 8 8 6 7 6 7]" {
				t.Errorf("there are %s", got)
			}
		})
	}
}

// Without dead letters nothing is read of their topic, and nothing is asked for.
func TestReplay_AsksForNoDeadLettersWhereThereAreNone(t *testing.T) {
	t.Parallel()
	s := parked(t, "at_least_once")
	s.settings.OnReject, s.settings.ParkKey = relay.StopOnReject, false
	if text, err := s.again(t, ReplayOptions{IDs: []string{"6", "7"}, Yes: true}); err != nil || strings.Contains(text, "dead letters") {
		t.Errorf("%v\n%s", err, text)
	}
}

// The message about a row that was left out names the row, the reason and the next step.
func TestReplay_SaysWhichRowItLeftOut(t *testing.T) {
	t.Parallel()
	for _, guarantee := range []string{"at_least_once", "exactly_once"} {
		t.Run(guarantee, func(t *testing.T) {
			t.Parallel()
			s := parked(t, guarantee)
			s.done(t)
			left := func(says ...string) {
				t.Helper()
				text, err := s.again(t, ReplayOptions{IDs: []string{"4", "5", "6"}, ToTopic: harness.Unique(t, "elsewhere"), Yes: true})
				left, ok := errors.AsType[*RejectedError](err)
				if !ok || left.Rows != 1 || !strings.Contains(text, "sent 2 rows again") || strings.Contains(err.Error(), "secret") {
					t.Fatalf("%v\n%s", err, text)
				}
				for _, part := range append(says, "1 row could not be sent and left out, the first: row of table public.outbox at ", "id = 5 (") {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%q is not in: %v", part, err)
					}
				}
			}
			left("(record_too_large): ", "raise kafka.max_message_bytes")
			s.db.Exec(t, "UPDATE outbox SET payload = '5', aggregate_type = 'a/b' WHERE id = 5")
			s.settings.Router.Mappings[0].Topic = "${aggregate_type}-events"
			left("(route): ", "`cdc-relay explain` shows what the mapping makes of a row")
		})
	}
}
