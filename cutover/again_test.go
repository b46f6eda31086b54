package cutover

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/backfill/handover"
	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/rs/zerolog"
)

// The server may not have ended the connection of an earlier call yet. That is no other cutover.
func TestCutover_WaitsUntilItsSlotIsFree(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t), byTime)
	options := markNew
	options.Settle = 0
	s.cancelledAt(t, options, "trigger_made")
	cfg := s.settings.Replication.OfShard(0)
	cfg.Slot = cfg.CutoverSlot()
	var held *replication.Stream
	err := handover.WhenFree(t.Context(), func() (err error) {
		held, err = replication.Open(t.Context(), cfg, replication.Options{}, zerolog.Nop())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	over := background(t, func(ctx context.Context) {
		start := held.StartLSN()
		_ = held.Run(ctx, make(chan *wal.Batch), func() wal.LSN { return start })
		_ = held.Close(context.WithoutCancel(ctx), start)
	})
	time.AfterFunc(500*time.Millisecond, held.Abort)
	s.must(t, options)
	over()
}

// A call that was ended between the slot and the record of where it begins is repeated with the same
// flags, and means the same rows.
func TestCutover_StoppedAgainMeansTheSameRows(t *testing.T) {
	t.Parallel()
	for name, how := range map[string][]string{"positions are kept": keeps(t, "at_least_once"), "none are kept": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := play(t, harness.Postgres(t), shape{"processed_at timestamptz, sent_at timestamptz", "sent_at IS NULL", "sent_at = now()"}, how...)
			s.db.Exec(t, "INSERT INTO "+s.table+" (aggregate_type, aggregate_id, event_type, payload, processed_at) SELECT 'a', 'a', 'a', n::text, now() FROM generate_series(1, 3) n")
			options := Options{Mode: Stopped, Yes: true, Marks: []string{"sent_at"}}
			s.cancelledAt(t, options, "slot_made")
			text := s.must(t, options)
			if n := len(s.committed(t)); n != 3 {
				t.Errorf("%d of 3 rows that the publisher has not sent\n%s", n, text)
			}
			if told := s.before(t); how != nil && !strings.Contains(told, `"before":"sent"`) { // the others are published by the column that was named
				t.Errorf("the topic has %s", told)
			}
		})
	}
}

// A slot that somebody else made after the cutover's was lost does not have the rows in between.
func TestCutover_KnowsASlotThatItDidNotMake(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t), byTime, keeps(t, "at_least_once")...)
	const says = "nothing shows that the cutover made slot"
	options := markNew
	options.Settle = 0
	if text := s.must(t, options) + s.must(t, options); strings.Contains(text, says) {
		t.Error(text)
	}
	s.db.Exec(t, "SELECT pg_drop_replication_slot($1)", s.slot)
	s.db.Exec(t, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", s.slot)
	ledger, err := topics.NewLedger(s.settings.Kafka.Connection, s.settings.CheckpointTopic)
	if err != nil {
		t.Fatal(err)
	}
	defer ledger.Close()
	known, err := ledger.Read(t.Context(), stored.BeforeSlotSuffix(harness.Query[string](t, s.db, "SELECT system_identifier::text FROM pg_control_system()"), s.slot))
	if err != nil || len(known) != 1 {
		t.Fatalf("%d records, %v", len(known), err)
	}
	for key := range known {
		if err := ledger.Write(t.Context(), key, nil); err != nil {
			t.Fatal(err)
		}
	}
	if text := s.must(t, options); !strings.Contains(text, says) {
		t.Error(text)
	}
}

// After `setup --before-slot delivered`, which the cutover itself advises, the record has a later beginning.
func TestCutover_DoesNotAskAgainForRowsThatWereDeclared(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t), byTime, keeps(t, "at_least_once")...)
	options := markNew
	options.Settle = 0
	s.must(t, options)
	rec, err := stored.ParseBeforeSlot([]byte(s.before(t)))
	if err != nil {
		t.Fatal(err)
	}
	ledger, err := topics.NewLedger(s.settings.Kafka.Connection, s.settings.CheckpointTopic)
	if err != nil {
		t.Fatal(err)
	}
	defer ledger.Close()
	for known, asks := range map[stored.Before]bool{stored.BeforeUnknown: true, stored.BeforeDeclared: false} {
		rec.Before, rec.Point = known, rec.Point+1
		if err := ledger.Write(t.Context(), stored.BeforeSlotKey(rec.System, rec.Slot, rec.OID), rec.Encode()); err != nil {
			t.Fatal(err)
		}
		if text := s.must(t, options); strings.Contains(text, "nothing shows that the cutover made slot") != asks {
			t.Errorf("%s: %s", known, text)
		}
	}
}

// A complete cutover needs the brokers for one warning, and says without them how the trigger goes.
func TestCutover_SaysWithoutItsRecordsThatItIsComplete(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t), byTime, keeps(t, "at_least_once")...)
	options := markNew
	options.Settle = 0
	s.must(t, options)
	s.settings.CheckpointTopic = harness.Unique(t, "gone")
	if text := s.must(t, options); !strings.Contains(text, "cannot be told") || !strings.Contains(text, "DROP TRIGGER") {
		t.Error(text)
	}
}

// A row that is written while the publication does not have the table is in no stream, and marked.
func TestCutover_SaysThatThePublicationWasChangedMeanwhile(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t), byTime, keeps(t, "at_least_once")...)
	options := markNew
	options.Settle = 0
	text, err := s.attempt(t.Context(), options, func(step string) {
		if step == "trigger_made" {
			s.db.Exec(t, "ALTER PUBLICATION "+s.slot+" DROP TABLE "+s.table)
			s.db.Exec(t, "ALTER PUBLICATION "+s.slot+" ADD TABLE "+s.table)
		}
	})
	if err != nil || !strings.Contains(text, "the publication of table public."+s.table+" was changed since") {
		t.Errorf("%v\n%s", err, text)
	}
	if told := s.before(t); !strings.Contains(told, `"before":"unknown"`) {
		t.Errorf("the topic has %s", told)
	}
}

// Rows that a publisher has claimed, or that failed, have neither status. Nobody sends them unless
// somebody says so.
func TestCutover_AsksForRowsWithAnotherStatus(t *testing.T) {
	t.Parallel()
	const rows = " (aggregate_type, aggregate_id, event_type, payload, status) VALUES ('a', 'a', 'a', '1', 'SENT'), ('a', 'b', 'a', '2', 'PROCESSING'), ('a', 'c', 'a', '3', 'failed')"
	for _, mode := range []Mode{Stopped, MarkNew} {
		for given, want := range map[GivenUp]int{Send: 2, Leave: 0} {
			if mode == MarkNew && given == Send {
				continue
			}
			t.Run(string(mode)+" "+string(given), func(t *testing.T) {
				t.Parallel()
				s := play(t, harness.Postgres(t), byStatus, keeps(t, "at_least_once")...)
				s.db.Exec(t, "INSERT INTO "+s.table+rows)
				options := Options{Mode: mode, Yes: true}
				err := s.refused(t, options, "2 rows with another status")
				if _, decide := errors.AsType[*relay.BlockedError](err); !decide {
					t.Errorf("it is not for a person to decide: %v", err)
				}
				options.GivenUp = given
				s.must(t, options)
				if n := len(s.committed(t)); n != want {
					t.Errorf("%d records, want %d", n, want)
				}
				if told := s.before(t); !strings.Contains(told, `"before":"unknown"`) {
					t.Errorf("the topic has %s", told)
				}
			})
		}
	}
}

// A status of published rows may have any name. Rows with one that is not known are not sent again by mistake.
func TestCutover_IsToldTheStatusOfPublishedRows(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t), byStatus)
	s.db.Exec(t, "INSERT INTO "+s.table+" (aggregate_type, aggregate_id, event_type, payload, status) VALUES ('a', 'a', 'a', '1', 'ON_ITS_WAY'), ('a', 'b', 'a', '2', 'PENDING')")
	options := Options{Mode: Stopped, Yes: true}
	s.refused(t, options, "name their status with --published")
	options.Published = "ON_ITS_WAY"
	s.must(t, options)
	if n := len(s.committed(t)); n != 1 {
		t.Errorf("%d records, want that of the row that was not published", n)
	}
}

// On a server that writes nothing else the cut lies behind the slot's beginning as well, by which the
// next call knows that the publisher has still to send what was there before.
func TestCutover_WaitsForThePublisherOnAQuietServer(t *testing.T) {
	t.Parallel()
	for name, how := range map[string][]string{"positions are kept": keeps(t, "at_least_once"), "none are kept": nil} {
		t.Run(name, func(t *testing.T) {
			s := play(t, ownServer(t, "18"), byTime, how...)
			s.db.Exec(t, "INSERT INTO "+s.table+" (aggregate_type, aggregate_id, event_type, payload) VALUES ('a', 'a', 'a', '1')")
			s.cancelledAt(t, markNew, "trigger_made")
			if text := s.must(t, Options{Mode: MarkNew}); !strings.Contains(text, "1 row to be published") {
				t.Errorf("the publisher has not sent the first row, and the next call would %s", text)
			}
			if got := s.slots(t); got != s.slot+"_cutover" {
				t.Errorf("there is %q", got)
			}
		})
	}
}

// A crash of the server takes the slot back before the cut, unless it was saved meanwhile, and leaves the copies.
func TestCutover_ACrashOfTheServerBehindTheCopyIsGoneOnWith(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"copied", "written"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			s := play(t, ownServer(t, "18"), byTime, keeps(t, "at_least_once")...)
			options := markNew
			options.Settle = 0
			s.cancelledAt(t, options, step)
			s.db.Exec(t, "INSERT INTO "+s.table+" (aggregate_type, aggregate_id, event_type, payload) VALUES ('a', 'k', 'e', '1')")
			s.ledger["k"] = []int{1}
			if err := s.db.Server.Restart(t.Context(), sandbox.Immediate); err != nil {
				t.Fatal(err)
			}
			s.goesOn(t, options)
			s.judge(t)
		})
	}
}

// goesOn completes a cutover whose slot was taken back, and has the relay send what waits.
func (s *scene) goesOn(t *testing.T, options Options) {
	t.Helper()
	const position = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1"
	made := harness.Query[string](t, s.db, position, s.slot)
	s.must(t, options)
	if got := s.slots(t); got != s.slot {
		t.Errorf("there is %q", got)
	}
	if at := harness.Query[string](t, s.db, position, s.slot); at != made {
		t.Errorf("slot %q was at %s, and is at %s", s.slot, made, at)
	}
	if told := s.before(t); !strings.Contains(told, `"before":"sent"`) {
		t.Errorf("the topic has %s", told)
	}
	caughtUp, stop := s.relay(t)
	caughtUp()
	stop()
}

// takeBack has the cutover's slot stand where it was made, as a crash does that nothing else was saved before.
func (s *scene) takeBack(t *testing.T, from string) {
	t.Helper()
	s.db.Exec(t, "SELECT pg_drop_replication_slot($1)", s.slot+"_cutover")
	s.db.Exec(t, "SELECT pg_copy_logical_replication_slot($1::name, $2::name)", from, s.slot+"_cutover")
	s.db.Exec(t, "SELECT pg_drop_replication_slot($1)", from)
}

// keepAt keeps a copy of the cutover's slot as it was made, and ends a call at a later step.
func (s *scene) keepAt(t *testing.T, options Options, step string) (kept string) {
	t.Helper()
	s.cancelledAt(t, options, "slot_made")
	kept = harness.Unique(t, "kept")
	s.db.Exec(t, "SELECT pg_copy_logical_replication_slot($1::name, $2::name)", s.slot+"_cutover", kept)
	s.cancelledAt(t, options, step)
	return kept
}

// A relay that has streamed from the copy meanwhile does not have to begin again.
func TestCutover_ACrashOfTheServerBehindTheCopyLeavesTheRelayWhereItIs(t *testing.T) {
	t.Parallel()
	for _, guarantee := range []string{"at_least_once", "exactly_once"} {
		t.Run(guarantee, func(t *testing.T) {
			t.Parallel()
			s := play(t, harness.Postgres(t), byTime, keeps(t, guarantee)...)
			options := markNew
			options.Settle = 0
			kept := s.keepAt(t, options, "written")
			s.db.Exec(t, "INSERT INTO "+s.table+" (aggregate_type, aggregate_id, event_type, payload) VALUES ('a', 'k', 'e', '1')")
			s.ledger["k"] = []int{1}
			caughtUp, stop := s.relay(t)
			caughtUp()
			stop()
			s.takeBack(t, kept)
			plan := options
			plan.Yes = false
			if text := s.must(t, plan); !strings.Contains(text, "again, as after a crash of the server") {
				t.Error(text)
			}
			s.goesOn(t, options)
			s.judge(t)
		})
	}
}

// What somebody else made is no copy, wherever the publisher is. No text tells to drop the slot of a relay
// that streams from a copy.
func TestCutover_RefusesASlotThatSomebodyMadeBehindTheCut(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"trigger_made", "advanced"} {
		for name, how := range map[string][]string{"positions are kept": keeps(t, "at_least_once"), "none are kept": nil} {
			t.Run(step+", "+name, func(t *testing.T) {
				t.Parallel()
				s := play(t, harness.Postgres(t), byTime, how...)
				s.cancelledAt(t, markNew, step)
				s.db.Exec(t, "INSERT INTO "+s.table+" (aggregate_type, aggregate_id, event_type, payload) VALUES ('a', 'k', 'e', '1')")
				s.ledger["k"] = []int{1}
				s.db.Exec(t, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", s.slot)
				before := s.slots(t)
				err := s.refused(t, markNew, "nothing shows that it made this one")
				if !strings.Contains(err.Error(), fmt.Sprintf("if an earlier call said `made slot %q`, a relay has streamed from it since: keep it, and drop slot %q", s.slot, s.slot+"_cutover")) {
					t.Error(err)
				}
				if got := s.slots(t); got != before {
					t.Errorf("there is %q, and was %q", got, before)
				}
				s.db.Exec(t, "SELECT pg_drop_replication_slot($1)", s.slot)
				s.must(t, markNew)
				caughtUp, stop := s.relay(t)
				caughtUp()
				stop()
				s.judge(t)
			})
		}
	}
}

// The trigger's mark is in EXCLUDED, so an upsert that copies it marks a row that the publisher has still to
// send. Nothing tells that mark from the publisher's.
func TestCutover_PlanSaysWhichUpsertsMarkOldRows(t *testing.T) {
	t.Parallel()
	for column, shape := range map[string]shape{"published_at": byTime, "processed": byFlag} {
		t.Run(column, func(t *testing.T) {
			t.Parallel()
			s := play(t, harness.Postgres(t), shape)
			want := fmt.Sprintf("no writer may have ON CONFLICT DO UPDATE SET %[1]s = EXCLUDED.%[1]s", column)
			if text := s.must(t, Options{Mode: MarkNew}); !strings.Contains(text, want) {
				t.Errorf("it does not say %q:\n%s", want, text)
			}
			if text := s.must(t, Options{Mode: Stopped}); strings.Contains(text, "EXCLUDED") {
				t.Errorf("no trigger marks rows:\n%s", text)
			}
		})
	}
}

// The server of a cutover that made its slot, from which nobody streamed yet, is put back to an older copy.
// The next cutover makes the slot anew, before the position that the topic has of the former one.
func TestCutover_AfterADiskWasPutBackLeavesNoPositionOfTheSlotThatIsGone(t *testing.T) {
	t.Parallel()
	s := play(t, ownServer(t, "18"), byTime, keeps(t, "exactly_once")...)
	writeWAL := func(megabytes int) {
		s.db.Exec(t, "SELECT pg_logical_emit_message(false, 'filler', repeat('x', $1::int * 1000000))", megabytes)
	}
	options := markNew
	options.Settle = 0
	putBack := s.db.CopyDisk(t)
	writeWAL(4)
	s.must(t, options)

	putBack()
	s.must(t, options)
	s.db.Exec(t, "INSERT INTO "+s.table+" (aggregate_type, aggregate_id, event_type, payload) VALUES ('a', 'k', 'e', '1')")
	s.ledger["k"] = []int{1}
	writeWAL(8) // past the position of the former slot
	caughtUp, stop := s.relay(t)
	caughtUp()
	stop()
	s.judge(t)
}

// After the way back the name of the slot is used. Another cutover is refused in the plan, before the table
// is watched, and works with another slot and the same publication.
func TestCutover_AfterTheWayBackNeedsAnotherSlot(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t), byTime, keeps(t, "at_least_once")...)
	insert := func() {
		t.Helper()
		s.db.Exec(t, "INSERT INTO "+s.table+" (aggregate_type, aggregate_id, event_type, payload) VALUES ('a', 'a', 'a', '1')")
	}
	options := markNew
	options.Settle = 0
	s.must(t, options)
	insert()
	caughtUp, stop := s.relay(t)
	caughtUp()
	stop()
	said := s.must(t, Options{Mode: Back, Yes: true})
	for _, next := range []string{"a publisher runs", "the relay out of service", "`cdc-relay teardown --yes`", `the publication and slot "` + s.slot + `"`, "name another postgres.slot"} { // in this order
		_, rest, found := strings.Cut(said, next)
		if !found {
			t.Errorf("what is next does not have %q:\n%s", next, said)
		}
		said = rest
	}
	s.db.Exec(t, "SELECT pg_drop_replication_slot($1)", s.slot)
	insert()
	for _, mode := range []Mode{MarkNew, Stopped} {
		for _, yes := range []bool{false, true} {
			began := time.Now()
			s.refused(t, Options{Mode: mode, Yes: yes, Watch: time.Minute}, "choose another postgres.slot; the publication may stay")
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("it took %s: the table was watched before", took)
			}
			if made := s.slots(t); made != "" {
				t.Errorf("there is %s", made)
			}
		}
	}
	s.settings.Replication.Slot += "_again"
	s.must(t, Options{Mode: Stopped, Yes: true})
	if _, relayed := s.counts(t); relayed != 2 {
		t.Errorf("%d rows were sent, want 2", relayed)
	}
}
