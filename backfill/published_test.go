package backfill

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// told is what the topic has of a table's rows from before the slot.
func (s *scene) told(t *testing.T, table string) stored.Before {
	t.Helper()
	ledger, err := topics.NewLedger(s.settings.Kafka.Connection, s.settings.CheckpointTopic)
	if err != nil {
		t.Fatal(err)
	}
	defer ledger.Close()
	oid, err := strconv.ParseUint(harness.Query[string](t, s.db, "SELECT $1::regclass::oid::text", table), 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	system := harness.Query[string](t, s.db, "SELECT system_identifier::text FROM pg_control_system()")
	value, err := ledger.Committed(t.Context(), stored.BeforeSlotKey(system, s.slot, uint32(oid)))
	if err != nil || value == nil {
		t.Fatalf("the topic has %q, %v", value, err)
	}
	rec, err := stored.ParseBeforeSlot(value)
	if err != nil {
		t.Fatal(err)
	}
	return rec.Before
}

// A row that is written while the publication does not have the table is in neither snapshot nor
// stream. The slot passes it all the same, so nobody may take it for delivered.
func TestBackfill_SaysThatThePublicationWasChangedMeanwhile(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"in one call", "between two"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			s := play(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
			s.write(t, 1, 10)
			change := func() {
				s.db.Exec(t, "ALTER PUBLICATION "+s.slot+" DROP TABLE outbox")
				s.write(t, 11, 11)
				s.db.Exec(t, "ALTER PUBLICATION "+s.slot+" ADD TABLE outbox")
			}
			options := Options{All: true, Yes: true, Order: []string{"id"}}
			if when == "between two" {
				ctx, cancel := context.WithCancel(t.Context())
				if _, err := s.attempt(ctx, options, func(step string) {
					if step == "begun" {
						cancel()
					}
				}); err == nil {
					t.Fatal("the first call was complete")
				}
				change()
			}
			text, err := s.attempt(t.Context(), options, func(step string) {
				if step == "sent" && when == "in one call" {
					change()
				}
			})
			if refused, ok := errors.AsType[*advice.Refused](err); !ok || !strings.Contains(refused.Error(), "the backfill is complete, but for rows of table public.outbox") || !strings.Contains(text, "the publication of table public.outbox was changed since") {
				t.Errorf("%v\n%s", err, text)
			}
			if got := s.told(t, "outbox"); got != stored.BeforeUnknown {
				t.Errorf("of the rows before the slot the topic says %s", got)
			}
		})
	}
}

// A row that was skipped is not delivered. What the relay does with such rows later says nothing of it.
func TestBackfill_TakesNoSkippedRowForSent(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), append(keeps(t, "at_least_once"), "relay.on_reject=skip", "relay.accept_loss=true", "kafka.max_message_bytes=100KiB")...)
	s.write(t, 1, 10)
	s.db.Exec(t, "UPDATE outbox SET payload = repeat('x', 100000) || repeat('y', 100000) WHERE id = 5")
	if text := s.must(t, all); !strings.Contains(text, "1 row that could not be sent and was skipped: retention keeps away") {
		t.Errorf("it says\n%s", text)
	}
	if told := s.told(t, "outbox"); told != stored.BeforeUnknown {
		t.Errorf("of the rows before the slot the topic says %s", told)
	}
}

// What was known of an earlier slot of the name goes, also of a table that the backfill is not about.
func TestBackfill_TakesBackWhatWasKnownOfAnEarlierSlot(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
	s.db.Exec(t, strings.Replace(tableSQL, "outbox", "other", 1))
	system := harness.Query[string](t, s.db, "SELECT system_identifier::text FROM pg_control_system()")
	s.must(t, Options{All: true, Yes: true, Order: []string{"id"}}) // makes the topic
	s.db.Exec(t, "SELECT pg_drop_replication_slot($1)", s.slot)
	ledger, err := topics.NewLedger(s.settings.Kafka.Connection, s.settings.CheckpointTopic)
	if err != nil {
		t.Fatal(err)
	}
	defer ledger.Close()
	value, err := ledger.Read(t.Context(), stored.BeforeSlotSuffix(system, s.slot))
	if err != nil || len(value) != 1 {
		t.Fatalf("%d records, %v", len(value), err)
	}
	oid, err := strconv.ParseUint(harness.Query[string](t, s.db, "SELECT 'other'::regclass::oid::text"), 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range value {
		rec, err := stored.ParseBeforeSlot(v)
		if err != nil || rec.Before != stored.BeforeSent {
			t.Fatalf("%+v, %v", rec, err)
		}
		rec.OID, rec.Table, rec.Before = uint32(oid), "public.other", stored.BeforeNone // as a setup with both tables wrote it
		if err := ledger.Write(t.Context(), stored.BeforeSlotKey(system, s.slot, rec.OID), rec.Encode()); err != nil {
			t.Fatal(err)
		}
	}
	s.must(t, Options{All: true, Yes: true, Order: []string{"id"}})
	if got := s.told(t, "outbox"); got != stored.BeforeSent {
		t.Errorf("of the table that was sent the topic says %s", got)
	}
	if got := s.told(t, "other"); got != stored.BeforeUnknown {
		t.Errorf("of the other table the topic says %s", got)
	}
}

// A time that every new row has says nothing of a publisher. By such a column all rows would count as published,
// and none be sent.
func TestBackfill_TakesNoTimeThatNewRowsHaveForAMark(t *testing.T) {
	t.Parallel()
	for _, column := range []string{"sent_at timestamptz NOT NULL DEFAULT now()", "sent_at timestamptz DEFAULT now()", "sent boolean NOT NULL DEFAULT true"} {
		s := play(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
		s.db.Exec(t, "ALTER TABLE outbox ADD COLUMN "+column)
		s.write(t, 1, 10)
		text, err := s.attempt(t.Context(), Options{Yes: true, Order: []string{"id"}}, nil)
		if err == nil || !strings.Contains(err.Error(), "has no known column that marks published rows") {
			t.Errorf("%s: %v\n%s", column, err, text)
		}
	}
}
