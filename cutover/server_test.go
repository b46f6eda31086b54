package cutover

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/backfill"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/setup"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/rs/zerolog"
)

var markNew = Options{Mode: MarkNew, Yes: true, Settle: 300 * time.Millisecond}

// Under load, whichever publisher it is, wherever a call is interrupted, and also there and back:
// each row comes once, and the rows of a key in the order of their commits.
func TestCutover_MarkNewUnderLoadHasNoLossDuplicateOrJump(t *testing.T) {
	t.Parallel()
	steps := []string{"", "slot_made", "trigger_made", "drained", "settled", "advanced", "copied", "written", "dropped"}
	publishers := []func() *publisher{
		func() *publisher { return &publisher{locks: true} },
		func() *publisher { return &publisher{slow: 10 * time.Millisecond} },
	}
	shapes := []shape{byTime, byFlag, byStatus}
	for _, version := range harness.VersionsFor(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			db := ownServer(t, version)
			for i, step := range steps {
				if version != "18" && i%3 == 0 && i > 0 {
					continue // 18 has them
				}
				t.Run(step, func(t *testing.T) {
					s := play(t, db, shapes[i%3], keeps(t, []string{"at_least_once", "exactly_once"}[i%2])...)
					stopWriting := s.writers(t, 5)
					stopPublishing := s.publisher(t, publishers[i%2]())
					s.await(t, "some rows are published", func() bool { return len(s.committed(t)) > 100 })
					if step != "" {
						s.cancelledAt(t, markNew, step)
					}
					s.must(t, markNew)
					if got := s.slots(t); got != s.slot {
						t.Fatalf("there is %q", got)
					}
					caughtUp, stopRelay := s.relay(t)
					s.await(t, "the relay sends", func() bool { _, relayed := s.counts(t); return relayed > 100 })
					if i%3 == 0 { // and back
						stopRelay()
						s.must(t, Options{Mode: Back, Yes: true})
						before, _ := s.counts(t)
						s.await(t, "the publisher has it back", func() bool { n, _ := s.counts(t); return n > before+50 })
						stopWriting()
						s.drained(t)
					} else {
						stopWriting()
						caughtUp()
						stopRelay()
					}
					stopPublishing()
					publisher, relayed := s.judge(t)
					t.Logf("%d by the publisher, %d by the relay", publisher, relayed)
				})
			}
		})
	}
}

// A publisher of any kind that has ended: what it left is sent, in order, and nothing again. While it
// runs it is refused.
func TestCutover_StoppedPoller(t *testing.T) {
	t.Parallel()
	stopped := Options{Mode: Stopped, Yes: true, Watch: 300 * time.Millisecond}
	for _, version := range harness.VersionsFor(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			db := ownServer(t, version)
			for i, kind := range []string{"locking", "lock-less", "deleting"} {
				t.Run(kind, func(t *testing.T) {
					s := play(t, db, []shape{byTime, byStatus, deleting}[i], keeps(t, []string{"at_least_once", "exactly_once"}[i%2])...)
					stopWriting := s.writers(t, 4)
					stopPublishing := s.publisher(t, &publisher{locks: i == 0, slow: 10 * time.Millisecond})
					s.await(t, "some rows are published", func() bool { return len(s.committed(t)) > 100 })
					watching := stopped
					watching.Watch = time.Minute
					s.refused(t, watching, "as a publisher does")
					if got := s.slots(t); got != "" {
						t.Fatalf("there is %q", got)
					}
					stopPublishing()
					s.await(t, "rows wait", func() bool {
						return harness.Query[int64](t, s.db, "SELECT count(*) FROM "+s.table+" WHERE "+s.shape.pending) > 50
					})
					s.await(t, "the server has counted", func() bool {
						_, err := s.attempt(t.Context(), Options{Mode: Stopped, Watch: 300 * time.Millisecond}, nil)
						return err == nil
					})
					if i%2 == 1 { // without exactly-once rows that committed in between may come twice
						s.cancelledAt(t, stopped, "begun")
					}
					s.must(t, stopped)
					caughtUp, stopRelay := s.relay(t)
					s.await(t, "the relay sends", func() bool { _, relayed := s.counts(t); return relayed > 100 })
					stopWriting()
					caughtUp()
					stopRelay()
					publisher, relayed := s.judge(t)
					t.Logf("%d by the publisher, %d by the relay", publisher, relayed)
				})
			}
		})
	}
}

// Rows that a publisher gave up are sent or left, as one says.
func TestCutover_StoppedAsksForWhatWasGivenUp(t *testing.T) {
	t.Parallel()
	for _, given := range []GivenUp{Send, Leave} {
		t.Run(string(given), func(t *testing.T) {
			t.Parallel()
			s := play(t, harness.Postgres(t), byTime, keeps(t, "at_least_once")...)
			s.db.Exec(t, "INSERT INTO "+s.table+" (aggregate_type, aggregate_id, event_type, payload, retry_count) VALUES ('a', 'a', 'a', '1', 3), ('a', 'b', 'a', '1', 0)")
			options := Options{Mode: Stopped, Yes: true}
			err := s.refused(t, options, "--given-up send or --given-up leave")
			if _, decide := errors.AsType[*relay.BlockedError](err); !decide {
				t.Errorf("it is not for a person to decide: %v", err)
			}
			options.GivenUp = given
			if text := s.must(t, Options{Mode: Stopped, GivenUp: given}); strings.Contains(text, "--where") || !strings.Contains(text, `(those of the publisher: "published_at" IS NULL`) {
				t.Errorf("the plan says which rows by a flag that cutover does not have:\n%s", text)
			}
			s.must(t, options)
			want, before := 2, "sent"
			if given == Leave {
				want, before = 1, "unknown"
			}
			if n := len(s.committed(t)); n != want {
				t.Errorf("%d records, want %d", n, want)
			}
			if told := s.before(t); !strings.Contains(told, `"before":"`+before+`"`) {
				t.Errorf("the topic has %s", told)
			}
		})
	}
}

// before is what the topic has last of the rows before the slot.
func (s *scene) before(t *testing.T) (told string) {
	t.Helper()
	for _, r := range s.brokers.Read(t, s.settings.CheckpointTopic) {
		if strings.HasPrefix(string(r.Key), "before the slot") {
			told = string(r.Value)
		}
	}
	return told
}

// counts are the records of each sender.
func (s *scene) counts(t *testing.T) (byPublisher, byRelay int) {
	t.Helper()
	for _, r := range s.committed(t) {
		if len(r.Headers) > 0 && r.Headers[0].Key == "by" {
			byPublisher++
		} else {
			byRelay++
		}
	}
	return byPublisher, byRelay
}

// A publisher that deletes has nothing that a trigger could set.
func TestCutover_RefusesAPublisherThatDeletes(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t), deleting)
	s.refused(t, Options{Mode: MarkNew}, "the publisher deletes what it has sent")
	if got := s.slots(t); got != "" {
		t.Errorf("there is %q", got)
	}
}

// What cannot be cut is refused with the next step, and nothing is made.
func TestCutover_RefusesWhatItCannotCut(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t, "18")
	for name, tt := range map[string]struct {
		columns, sql, says string
		options            Options
	}{
		"no mode":              {byTime.columns, "", "--mark-new", Options{}},
		"send":                 {byTime.columns, "", "--given-up", Options{Mode: MarkNew, GivenUp: "send"}},
		"no stall":             {byTime.columns, "", "--stall", Options{Mode: MarkNew, Stall: -1}},
		"several marks":        {"published_at timestamptz, processed boolean", "", "--mark published_at,processed", Options{Mode: MarkNew}},
		"no such mark":         {byTime.columns, "", "known are published_at", Options{Mode: MarkNew, Marks: []string{"sent"}}},
		"unknown status":       {byStatus.columns, "", "no published row", Options{Mode: MarkNew}},
		"odd statuses":         {byStatus.columns, "INSERT INTO %s (aggregate_type, aggregate_id, event_type, status) VALUES ('a', 'a', 'a', 'B'), ('a', 'a', 'a', 'C')", "rows with B, C", Options{Mode: MarkNew}},
		"no mark":              {"x int", "", "cutover --stopped", Options{Mode: MarkNew}},
		"generated":            {"x int, published_at timestamp GENERATED ALWAYS AS (CASE WHEN x > 1 THEN '2026-01-01'::timestamp END) STORED", "", "GENERATED", Options{Mode: MarkNew}},
		"two columns together": {"by text, published_at timestamptz, CHECK ((by IS NULL) = (published_at IS NULL))", "", "constraint on column published_at", Options{Mode: MarkNew}},
		"row filter":           {byTime.columns, "CREATE PUBLICATION %[2]s FOR TABLE %[1]s WHERE (event_type <> 'x') WITH (publish = 'insert')", "row filter", Options{Mode: MarkNew}},
		"slot is there":        {byTime.columns, "SELECT pg_create_logical_replication_slot('%[2]s', 'pgoutput') FROM (SELECT '%[1]s') n", "a relay may have streamed", Options{Mode: MarkNew}},
		"a backfill":           {byTime.columns, "SELECT pg_create_logical_replication_slot('%[2]s_backfill', 'pgoutput') FROM (SELECT '%[1]s') n", "a backfill of this slot", Options{Mode: MarkNew}},
		"given up":             {byTime.columns, "INSERT INTO %s (aggregate_type, aggregate_id, event_type, retry_count) VALUES ('a', 'a', 'a', 3)", "--given-up leave", Options{Mode: MarkNew, Yes: true}},
		"back from half":       {byTime.columns, "", "is not complete", Options{Mode: Back}},
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, db, shape{columns: tt.columns})
			if tt.sql != "" {
				text := strings.ReplaceAll(strings.ReplaceAll(tt.sql, "%[1]s", s.table), "%[2]s", s.slot)
				db.Exec(t, strings.ReplaceAll(text, "%s", s.table))
			}
			if name == "back from half" {
				s.cancelledAt(t, markNew, "trigger_made")
			}
			before := s.slots(t)
			if tt.options.Stall < 0 {
				tt.options.Stall = -1
			}
			err := s.refused(t, tt.options, tt.says)
			if _, decide := errors.AsType[*relay.BlockedError](err); decide != (name == "given up") {
				t.Errorf("it is for a person to decide: %t", decide)
			}
			if got := s.slots(t); got != before {
				t.Errorf("there is %q, and was %q", got, before)
			}
		})
	}
}

// A partition whose rows are not in the WAL has rows that the publisher sends. Once the trigger marks them nobody does.
func TestCutover_RefusesAPartitionThatIsInNoStream(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t, "15"), byTime)
	s.db.Exec(t, "DROP TABLE "+s.table)
	s.db.Exec(t, fmt.Sprintf(`CREATE TABLE %s (id bigint GENERATED BY DEFAULT AS IDENTITY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL,
		payload text, created_at timestamptz DEFAULT now(), %s) PARTITION BY LIST (aggregate_type)`, s.table, byTime.columns))
	s.db.Exec(t, fmt.Sprintf(`CREATE TABLE %[1]s_a PARTITION OF %[1]s FOR VALUES IN ('a')`, s.table))
	s.db.Exec(t, fmt.Sprintf(`CREATE UNLOGGED TABLE %[1]s_b PARTITION OF %[1]s FOR VALUES IN ('b')`, s.table))
	for _, yes := range []bool{false, true} {
		s.refused(t, Options{Mode: MarkNew, Yes: yes}, "partition public."+s.table+"_b is UNLOGGED")
	}
	s.db.Exec(t, "INSERT INTO "+s.table+" (aggregate_type, aggregate_id, event_type) VALUES ('b', '1', 'e')")
	if harness.Query[int64](t, s.db, "SELECT count(*) FROM "+s.table+" WHERE published_at IS NULL") != 1 {
		t.Error("a row that no slot has is marked")
	}
}

// Rows that the publisher gave up are left, and nobody takes them for sent.
func TestCutover_LeavesWhatThePublisherGaveUp(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t), byTime, keeps(t, "at_least_once")...)
	s.db.Exec(t, "INSERT INTO "+s.table+" (aggregate_type, aggregate_id, event_type, retry_count) VALUES ('a', 'a', 'a', 3)")
	options := markNew
	options.GivenUp, options.Settle = Leave, 0
	if text := s.must(t, options); !strings.Contains(text, "left are 1 row with failed attempts") {
		t.Error(text)
	}
	if told := s.before(t); !strings.Contains(told, `"before":"unknown"`) {
		t.Errorf("the topic has %s", told)
	}
	if n := len(s.committed(t)); n != 0 {
		t.Errorf("%d records", n)
	}
}

// A transaction that stays open keeps the lock from being had: writers wait for two seconds at
// most, and it is tried again.
func TestCutover_LockLetsWritersGoOn(t *testing.T) {
	t.Parallel()
	s := play(t, ownServer(t, "18"), byTime)
	s.cancelledAt(t, markNew, "slot_made")
	open := s.db.Connect(t)
	insert := "INSERT INTO " + s.table + " (aggregate_type, aggregate_id, event_type, payload) VALUES ('a', 'a', 'a', '1')"
	if _, err := open.Exec(t.Context(), "BEGIN; "+insert); err != nil {
		t.Fatal(err)
	}
	options := markNew
	options.Settle = 0
	ended := make(chan error, 1)
	go func() {
		_, err := s.attempt(t.Context(), options, nil)
		ended <- err
	}()
	s.await(t, "the lock is waited for", func() bool {
		return harness.Query[int64](t, s.db, "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'ShareRowExclusiveLock'") > 0
	})
	began := time.Now()
	s.db.Exec(t, insert) // behind the lock
	// What waits behind the open transaction for longer waits for good.
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("a writer waited for %s", took)
	}
	if _, err := open.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	stop := s.publisher(t, &publisher{})
	defer stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if n := len(s.committed(t)); n != 2 {
		t.Errorf("%d records, want those of both rows from before the trigger", n)
	}
}

// A slot that is lost after the cut leaves rows that nobody has sent. It is said, with the way out,
// and the way out brings them.
func TestCutover_LostSlotIsSaid(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t, "18"), byTime)
	s.cancelledAt(t, markNew, "trigger_made")
	s.db.Exec(t, "INSERT INTO "+s.table+" (aggregate_type, aggregate_id, event_type, payload) VALUES ('a', 'k', 'a', '1')")
	s.ledger["k"] = []int{1}
	s.await(t, "the slot is free", func() bool { // a server says its last word before it lets go
		return !harness.Query[bool](t, s.db, "SELECT active FROM pg_replication_slots WHERE slot_name = $1", s.slot+"_cutover")
	})
	s.db.Exec(t, "SELECT pg_drop_replication_slot($1)", s.slot+"_cutover")
	err := s.refused(t, markNew, "nobody has sent them; drop the slot if it is there, and run `cdc-relay backfill --where")
	s.refused(t, Options{Mode: Back}, "nobody has sent them")
	for name, do := range map[string]func() error{
		"a backfill of unpublished rows": func() error {
			b := &backfill.Backfill{Settings: s.settings, Options: backfill.Options{Yes: true}, Out: backfill.Output{Result: io.Discard, Meanwhile: io.Discard}, Log: zerolog.Nop()}
			return b.Run(t.Context())
		},
		"setup": func() error {
			silent := func(string, ...any) {}
			return setup.New(s.settings, "", silent, silent).Run(t.Context(), provision.SetupOptions{}, false, false)
		},
	} {
		if err := do(); err == nil || !strings.Contains(err.Error(), "a cutover has rows of table public."+s.table+" marked as published since") || s.slots(t) != "" {
			t.Errorf("%s: %v; there is %q", name, err, s.slots(t))
		}
	}
	where := regexp.MustCompile(`--where "([^"]+)"`).FindStringSubmatch(err.Error())
	if where == nil {
		t.Fatal(err)
	}
	b := &backfill.Backfill{Settings: s.settings, Options: backfill.Options{Where: where[1], Yes: true}, Out: backfill.Output{Result: io.Discard, Meanwhile: io.Discard}, Log: zerolog.Nop()}
	if err := b.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.judge(t)
}

// The trigger marks what comes by COPY, into partitions, and through an apply worker.
func TestCutover_MarksEveryInsert(t *testing.T) {
	t.Parallel()
	for _, version := range harness.VersionsFor(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := play(t, harness.Postgres(t, version), byTime)
			s.db.Exec(t, "ALTER TABLE "+s.table+" RENAME TO plain")
			s.db.Exec(t, "CREATE TABLE "+s.table+` (LIKE plain INCLUDING DEFAULTS INCLUDING IDENTITY) PARTITION BY RANGE (id)`)
			for i := range 2 {
				s.db.Exec(t, fmt.Sprintf("CREATE TABLE %[1]s_%[2]d PARTITION OF %[1]s FOR VALUES FROM (%[3]d) TO (%[4]d)", s.table, i, i*5, i*5+5))
			}
			options := markNew
			options.Settle = 0
			s.must(t, options)
			s.db.Exec(t, fmt.Sprintf("CREATE TABLE %[1]s_2 PARTITION OF %[1]s FOR VALUES FROM (10) TO (100)", s.table))
			conn := s.db.Connect(t)
			columns := " (aggregate_type, aggregate_id, event_type, published_at) "
			for _, sql := range []string{
				"INSERT INTO %[1]s" + columns + "VALUES ('a', 'k', 'e', NULL)",
				"INSERT INTO %[1]s_1 (id, aggregate_type, aggregate_id, event_type) OVERRIDING SYSTEM VALUE VALUES (7, 'a', 'k', 'e')",
				"SET session_replication_role = replica; INSERT INTO %[1]s (id, aggregate_type, aggregate_id, event_type) OVERRIDING SYSTEM VALUE VALUES (2, 'a', 'k', 'e'), (8, 'a', 'k', 'e'), (50, 'a', 'k', 'e')",
			} {
				if _, err := conn.PgConn().Exec(t.Context(), fmt.Sprintf(sql, s.table)).ReadAll(); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := conn.PgConn().CopyFrom(t.Context(), strings.NewReader("20\ta\tk\te\t\\N\n"), fmt.Sprintf("COPY %s (id, aggregate_type, aggregate_id, event_type, published_at) FROM STDIN", s.table)); err != nil {
				t.Fatal(err)
			}
			if n := harness.Query[int64](t, s.db, "SELECT count(*) FROM "+s.table+" WHERE published_at IS NULL"); n != 0 {
				t.Errorf("%d rows without a mark", n)
			}
			s.must(t, Options{Mode: Back, Yes: true})
			if n := len(s.committed(t)); n != 6 {
				t.Errorf("%d records, want 6", n)
			}
			if n := harness.Query[int64](t, s.db, "SELECT count(*) FROM pg_trigger WHERE tgname = 'cdc_relay_cutover'"); n != 0 {
				t.Errorf("%d triggers are left", n)
			}
		})
	}
}

// A session that has rows locked and does nothing else is a publisher that is in the middle of its work.
func TestCutover_StoppedNamesASessionThatHasRowsLocked(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t, "18"), byTime)
	s.db.Exec(t, "INSERT INTO "+s.table+" (aggregate_type, aggregate_id, event_type, payload) VALUES ('a', 'k', 'a', '1')")
	conn := s.db.Connect(t)
	if _, err := conn.PgConn().Exec(t.Context(), "SET application_name = 'poller 7'; BEGIN; SELECT FROM "+s.table+" FOR UPDATE SKIP LOCKED").ReadAll(); err != nil {
		t.Fatal(err)
	}
	err := s.refused(t, Options{Mode: Stopped, Yes: true, Watch: time.Minute}, "a session has rows locked for longer than a statement, as a publisher does")
	if !strings.Contains(err.Error(), "poller 7") || s.slots(t) != "" {
		t.Errorf("%v; there is %q", err, s.slots(t))
	}
}
