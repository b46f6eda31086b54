package backfill

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/backfill/progress"
	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/postgres/snapshot"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/rs/zerolog"
)

// Each reader has a transaction of its own, and so has the call that goes on: by the present time each
// would read other rows.
func TestCommands_RefuseAConditionOfThePresentTime(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
	s.write(t, 1, 10)
	const recent = "created_at > now() - interval '1 hour'"
	var text bytes.Buffer
	out := Output{Result: &text, Meanwhile: &text}
	refused := func(command string, err error) {
		t.Helper()
		if _, ok := errors.AsType[*advice.Usage](err); !ok || !strings.Contains(err.Error(), "the condition has now()") || !strings.Contains(err.Error(), "as a constant") {
			t.Errorf("%s: %v\n%s", command, err, text.String())
		}
	}
	_, err := s.attempt(t.Context(), Options{Where: recent, Yes: true}, nil)
	refused("backfill", err)
	if harness.Query[bool](t, s.db, "SELECT EXISTS (SELECT FROM pg_replication_slots WHERE database = current_database())") {
		t.Error("it made a slot")
	}
	s.must(t, Options{Where: "created_at > '2026-01-31 08:00:00+00'", Yes: true})
	refused("late", (&Beside{Settings: s.settings, Options: BesideOptions{Where: recent, Yes: true}, Out: out, Log: zerolog.Nop()}).Run(t.Context()))
	refused("replay", (&Replay{Settings: s.settings, Options: ReplayOptions{Where: recent, AcceptOrder: true, MaxRows: 100, Yes: true}, Out: out, Log: zerolog.Nop()}).Run(t.Context()))
}

// What a function of the operator's own gives may be another value in each transaction, unless it is declared
// that it is not.
func TestCommands_RefuseAConditionWithAFunctionThatIsNotImmutable(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
	s.write(t, 1, 10)
	s.db.Exec(t, `CREATE SCHEMA "Other";
		CREATE FUNCTION recent(timestamptz) RETURNS boolean LANGUAGE sql STABLE AS $$ SELECT $1 > now() - interval '1 hour' $$;
		CREATE FUNCTION "Other"."Recent"(outbox) RETURNS boolean LANGUAGE sql AS $$ SELECT $1.created_at > now() - interval '1 hour' $$;
		CREATE FUNCTION "Other".lower(text) RETURNS text LANGUAGE sql STABLE AS $$ SELECT $1 || now() $$;
		CREATE FUNCTION "Other".fine(bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$ SELECT $1 > 3 $$`)
	for where, name := range map[string]string{
		"public.recent(created_at)":                        "public.recent()",
		"id > 3 AND PUBLIC . Recent(NULL)":                 "public.recent()",
		`"Other"."Recent"(outbox)`:                         `"Other"."Recent"()`,
		`"Other".fine(id) AND "Other".lower(payload) > ''`: `"Other".lower()`,
	} {
		text, err := s.attempt(t.Context(), Options{Where: where, Yes: true}, nil)
		if _, ok := errors.AsType[*advice.Usage](err); !ok || !strings.Contains(err.Error(), "the condition has function "+name+", which is not IMMUTABLE") {
			t.Errorf("%s: %v\n%s", where, err, text)
		}
	}
	if harness.Query[bool](t, s.db, "SELECT EXISTS (SELECT FROM pg_replication_slots WHERE database = current_database())") {
		t.Error("it made a slot")
	}
	s.must(t, Options{Where: `"Other".fine(id) AND lower(payload::text) > '' AND pg_catalog.to_char(created_at, 'YYYY') > '2000'`, Yes: true})
	if list := s.committed(t); !slices.Equal(list, []int{4, 5, 6, 7, 8, 9, 10}) {
		t.Errorf("sent %v", list)
	}
}

// An attempt that began with such a condition does not go on: it would send those of the rows that
// have such a time by now, and say that it is complete.
func TestBackfill_DoesNotGoOnWithAConditionOfThePresentTime(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
	s.write(t, 1, 100)
	s.endedAt(t, all, "begun")
	s.began(t, "created_at > now() - interval '1 hour'")
	s.db.Exec(t, "UPDATE outbox SET created_at = created_at - interval '2 hours'")
	text, err := s.attempt(t.Context(), Options{Yes: true}, nil)
	if _, ok := errors.AsType[*advice.Refused](err); !ok || !strings.Contains(err.Error(), "a condition that has now() and means other rows by now") || !strings.Contains(err.Error(), "--restart") {
		t.Errorf("%v, %d of 100 rows sent\n%s", err, len(s.committed(t)), text)
	}
	restarted := all
	restarted.Restart = true
	s.must(t, restarted)
	complete(t, s.committed(t), 100, false)
}

// began writes a progress as if the attempt had begun with another condition.
func (s *scene) began(t *testing.T, where string) {
	t.Helper()
	settings := s.settings.WithDefaults()
	holder, err := snapshot.Open(t.Context(), settings.Replication)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	table, _, err := holder.Describe(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	of := snapshot.Selection{Table: table, Where: where}
	if of.Order, err = table.Shape.Choose(nil); err != nil {
		t.Fatal(err)
	}
	ledger, err := topics.NewLedger(settings.Kafka.Connection, settings.CheckpointTopic)
	if err != nil {
		t.Fatal(err)
	}
	defer ledger.Close()
	key := stored.BackfillKey(holder.Origin().SystemID, s.slot)
	value, err := ledger.Committed(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	p, err := progress.Parse(value)
	if err != nil {
		t.Fatal(err)
	}
	p.Tables[0].Where, p.Tables[0].Shape = where, shape(&of, &settings)
	if err := ledger.Write(t.Context(), key, p.Encode()); err != nil {
		t.Fatal(err)
	}
}

// A publisher may go by any of them, and by another one a row that is left out may have been sent by nobody.
func TestBackfill_AsksWhichOfSeveralMarks(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
	s.db.Exec(t, "ALTER TABLE outbox ADD COLUMN processed_at timestamptz, ADD COLUMN published_at timestamptz")
	s.write(t, 1, 3)
	s.db.Exec(t, "UPDATE outbox SET processed_at = now()")
	for _, o := range []Options{{Unpublished: true, Yes: true}, {Yes: true}} {
		text, err := s.attempt(t.Context(), o, nil)
		if _, ok := errors.AsType[*advice.Refused](err); !ok || !strings.Contains(err.Error(), "several columns that may say which rows are published: processed_at, published_at") || !strings.Contains(err.Error(), "--where") {
			t.Errorf("%+v: %v\n%s", o, err, text)
		}
	}
	s.must(t, Options{Where: "published_at IS NULL", Yes: true})
	if list := s.committed(t); !slices.Equal(list, []int{1, 2, 3}) {
		t.Errorf("sent %v", list)
	}
}
