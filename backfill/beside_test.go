package backfill

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
)

// beside is one call of backfill --late.
func (s *scene) beside(ctx context.Context, options BesideOptions, onStep func(string)) (string, error) {
	var text bytes.Buffer
	var mu sync.Mutex
	out := lockedWriter{&mu, &text}
	b := &Beside{Settings: s.settings, Options: options, Out: Output{Result: out, Meanwhile: out}, Log: zerolog.Nop(), OnStep: onStep, Every: 100 * time.Millisecond}
	err := b.Run(ctx)
	mu.Lock()
	defer mu.Unlock()
	return text.String(), err
}

// streamedFrom is a scene with a slot of which the odd numbers below n lie before, sent by
// nobody; the even ones are streamed.
func streamedFrom(t *testing.T, db *harness.Database, brokers *harness.Brokers, n int, how ...string) *scene {
	t.Helper()
	s := play(t, db, brokers, how...)
	s.must(t, all) // an empty table: it makes the slot
	s.db.Exec(t, `INSERT INTO outbox SELECT n, 'a', (n % 5)::text, 'e', n::text FROM generate_series(2, $1::int, 2) n`, n)
	s.stream(t)
	s.db.Exec(t, "ALTER PUBLICATION "+s.slot+" DROP TABLE outbox")
	s.db.Exec(t, `INSERT INTO outbox SELECT n, 'a', (n % 5)::text, 'e', n::text, '2026-01-01' FROM generate_series(1, $1::int, 2) n`, n)
	s.db.Exec(t, "ALTER PUBLICATION "+s.slot+" ADD TABLE outbox")
	return s
}

// marked are the values of the records that have the header of a run.
func (s *scene) marked(t *testing.T, topic string) (values []int) {
	t.Helper()
	for _, r := range s.brokers.Read(t, topic) {
		if slices.ContainsFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == record.HeaderBackfill && len(h.Value) > 10 }) {
			n, err := strconv.Atoi(string(r.Value))
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, n)
		}
	}
	return values
}

// Beside a relay at work old rows are sent, marked and in order among themselves, and only where
// somebody accepted that newer ones of their keys come first.
func TestBeside_SendsWhatTheSlotDoesNotHave(t *testing.T) {
	t.Parallel()
	for _, guarantee := range []string{"at_least_once", "exactly_once"} {
		t.Run(guarantee, func(t *testing.T) {
			t.Parallel()
			s := streamedFrom(t, harness.Postgres(t, "15"), harness.Kfake(t, sandbox.KafkaOptions{}), 400, append(keeps(t, guarantee), "relay.position_headers=true")...)
			odd := BesideOptions{Where: "id % 2 = 1", Yes: true}
			plan := odd
			plan.Yes = false
			if text, err := s.beside(t.Context(), plan, nil); err != nil || !strings.Contains(text, "send 200 rows of table public.outbox, beside the relay") || !strings.Contains(text, "use --to-topic or --accept-order") || !strings.Contains(text, "nothing was sent") {
				t.Fatalf("%v\n%s", err, text)
			}
			text, err := s.beside(t.Context(), odd, nil)
			if _, refused := errors.AsType[*advice.Refused](err); !refused || len(s.committed(t)) != 200 {
				t.Fatalf("unasked: %v\n%s", err, text)
			}
			accepted := odd
			accepted.AcceptOrder = true
			running, stop := context.WithCancel(t.Context())
			r, err := relay.Open(s.settings, relay.Events{}, zerolog.Nop())
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- r.Run(running) }()
			if text, err = s.beside(t.Context(), accepted, nil); err != nil || !strings.Contains(text, "sent 200 rows, marked with the header cdc-relay-backfill") {
				t.Fatalf("%v\n%s", err, text)
			}
			s.db.Exec(t, `INSERT INTO outbox SELECT n, 'a', (n % 5)::text, 'e', n::text FROM generate_series(1001, 1100) n`)
			wait(t.Context(), func() bool { return len(s.committed(t)) >= 500 })
			stop()
			if err := <-ended; err != nil {
				t.Fatalf("the relay beside it: %v", err)
			}
			list := s.marked(t, s.topic)
			if !slices.IsSorted(list) || len(list) != 200 || len(slices.Compact(list)) != 200 || list[0] != 1 {
				t.Errorf("%d are marked: %v", len(list), list)
			}
			s.liesBeforeTheStream(t)
			again, err := s.beside(t.Context(), accepted, nil)
			if _, refused := errors.AsType[*advice.Refused](err); !refused || !strings.Contains(err.Error(), "is complete (200 rows sent)") || len(s.committed(t)) != 500 {
				t.Errorf("called again: %v\n%s", err, again)
			}
			accepted.ToTopic = harness.Unique(t, "elsewhere")
			if text, err = s.beside(t.Context(), BesideOptions{Where: odd.Where, ToTopic: accepted.ToTopic, Yes: true}, nil); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			if list := s.marked(t, accepted.ToTopic); len(list) != 250 || len(s.committed(t)) != 500 {
				t.Errorf("%d went to the other topic, %d are in this one", len(list), len(s.committed(t)))
			}
		})
	}
}

// liesBeforeTheStream holds that marked records have positions before all others.
func (s *scene) liesBeforeTheStream(t *testing.T) {
	t.Helper()
	var old, first uint64
	for _, r := range s.brokers.Read(t, s.topic) {
		var at uint64
		marked := false
		for _, h := range r.Headers {
			switch h.Key {
			case record.HeaderBackfill:
				marked = true
			case record.HeaderLSN:
				var high, low uint64
				if _, err := fmt.Sscanf(string(h.Value), "%X/%X", &high, &low); err != nil {
					t.Fatal(err)
				}
				at = high<<32 | low
			}
		}
		if at == 0 {
			t.Fatalf("a record has no position: %v", r.Headers)
		}
		if marked {
			old = max(old, at)
		} else if first == 0 || at < first {
			first = at
		}
	}
	if old >= first {
		t.Errorf("old rows have positions up to %X, and the stream's begin with %X", old, first)
	}
}

// An interrupted call goes on: with exactly-once no row comes twice, and none is left out.
func TestBeside_ResumesWithoutLoss(t *testing.T) {
	t.Parallel()
	for _, guarantee := range []string{"at_least_once", "exactly_once"} {
		for _, step := range []string{"snapshot_taken", "begun", "sending", "sent"} {
			t.Run(guarantee+" "+step, func(t *testing.T) {
				t.Parallel()
				s := streamedFrom(t, harness.Postgres(t, "15"), harness.Kfake(t, sandbox.KafkaOptions{}), 4000, keeps(t, guarantee)...)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				odd := BesideOptions{Where: "id % 2 = 1", AcceptOrder: true, Yes: true}
				first := odd
				if step == "sending" {
					first.MaxRate = slowly
					go func() {
						wait(ctx, func() bool { return len(s.committed(t)) >= 2000+some })
						cancel()
					}()
				}
				text, err := s.beside(ctx, first, func(at string) {
					if at == step {
						cancel()
					}
				})
				if !errors.Is(err, context.Canceled) {
					t.Fatalf("the first call: %v\n%s", err, text)
				}
				other := odd
				other.Where = "id % 2 = 1 AND true"
				if step == "sending" {
					if text, err := s.beside(t.Context(), other, nil); err == nil || !strings.Contains(err.Error(), "interrupted") {
						t.Fatalf("with other rows: %v\n%s", err, text)
					}
				}
				if text, err = s.beside(t.Context(), odd, nil); err != nil {
					t.Fatalf("the second call: %v\n%s", err, text)
				}
				list := s.committed(t)
				slices.Sort(list)
				if n := len(slices.Compact(slices.Clone(list))); n != 4000 || guarantee == "exactly_once" && len(list) != 4000 {
					t.Errorf("%d records of %d rows", len(list), n)
				}
			})
		}
	}
}

// What cannot be done is refused, and nothing is sent.
func TestBeside_Refuses(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t, "15"), harness.Kfake(t, sandbox.KafkaOptions{}), append(keeps(t, "at_least_once"), "kafka.max_message_bytes=100KiB")...)
	some := BesideOptions{Where: "id < 10", Yes: true, AcceptOrder: true}
	refuses := func(what string, o BesideOptions, says string) {
		t.Helper()
		text, err := s.beside(t.Context(), o, nil)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v\n%s", what, err, text)
		}
		if list := s.committed(t); len(list) > 0 {
			t.Errorf("%s: it sent %v", what, list)
		}
	}
	refuses("no slot", some, "without --late")
	s.must(t, all) // makes the slot; the table is empty
	s.write(t, 1, 20)
	refuses("no rows", BesideOptions{Yes: true}, "--where")
	refuses("bad SQL", BesideOptions{Where: "id < ", Yes: true}, "syntax")
	refuses("a write", BesideOptions{Where: "true) OR (true", Yes: true}, "syntax")
	both := some
	both.ToTopic = "x"
	refuses("both", both, "only one of")
	s.db.Exec(t, "UPDATE outbox SET aggregate_type = 'a/b' WHERE id = 5")
	s.settings.Router.Mappings[0].Topic = "${aggregate_type}-events"
	text, err := s.beside(t.Context(), some, nil)
	if _, blocked := errors.AsType[*relay.BlockedError](err); !blocked || !strings.Contains(err.Error(), "1 row cannot be sent, the first at ") || !strings.Contains(err.Error(), "id = 5") {
		t.Errorf("a row without a topic: %v\n%s", err, text)
	}
	s.settings.Router.Mappings[0].Topic = s.topic
	s.db.Exec(t, "UPDATE outbox SET payload = repeat('secret', 100000) WHERE id = 5")
	text, err = s.beside(t.Context(), some, nil)
	if _, blocked := errors.AsType[*relay.BlockedError](err); !blocked || !strings.Contains(err.Error(), "id = 5") || !strings.Contains(err.Error(), "relay.on_reject=skip") || strings.Contains(err.Error(), "secret") {
		t.Errorf("a row that the brokers refuse: %v\n%s", err, text)
	}
	s.settings.OnReject = relay.SkipOnReject
	if text, err = s.beside(t.Context(), some, nil); err != nil || !strings.Contains(text, "sent 8 rows") || !strings.Contains(text, "but for 1 row that could not be sent") {
		t.Errorf("without it: %v\n%s", err, text)
	}
	list := s.committed(t)
	slices.Sort(list)
	if list = slices.Compact(list); len(list) != 8 || slices.Contains(list, 5) {
		t.Errorf("there are %v", list)
	}
}

// That the rows of one gap were sent says nothing of those of the next, which the same condition means.
func TestBeside_TheNextGapIsNotComplete(t *testing.T) {
	t.Parallel()
	s := streamedFrom(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), 10, keeps(t, "at_least_once")...)
	options := BesideOptions{Where: "true", AcceptOrder: true, Yes: true}
	if text, err := s.beside(t.Context(), options, nil); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	s.db.Exec(t, `SELECT pg_drop_replication_slot('`+s.slot+`')`)
	s.write(t, 1001, 1010) // in no slot
	s.db.Exec(t, `SELECT pg_create_logical_replication_slot('`+s.slot+`', 'pgoutput')`)
	text, err := s.beside(t.Context(), options, nil)
	seen := 0
	for _, n := range s.committed(t) {
		if n > 1000 {
			seen++
		}
	}
	if err == nil && seen != 10 {
		t.Errorf("no error, and %d of the 10 rows of the second gap were sent\n%s", seen, text)
	}
}
