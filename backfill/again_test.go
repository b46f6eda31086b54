package backfill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/backfill/progress"
	"github.com/cdc-relay/cdc-relay/checkpoint/stored"
	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A table without a key, of which all rows have one time: the connection that reads them is
// lost in the middle. Rows that are equal in the order are no reason to leave any out.
func TestBackfill_ALostReaderLosesNoEqualRows(t *testing.T) {
	t.Parallel()
	const rows = 8_000
	db, brokers := harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{})
	s := play(t, db, brokers, "relay.max_in_flight_bytes=1MiB")
	db.Exec(t, "ALTER TABLE outbox DROP CONSTRAINT outbox_pkey")
	db.Exec(t, `INSERT INTO outbox SELECT n, 'a', (n % 5)::text, 'e', lpad(n::text, 2000, '0') FROM generate_series(1, $1::int) n`, rows)
	release := brokers.Fake.HoldProduceAfter(2) // so the reader has rows left, which the window and its socket do not hold
	defer release()
	lost := make(chan int64, 1)
	go func() {
		defer release()
		wait(t.Context(), func() bool { return len(s.committed(t)) > 0 })
		lost <- harness.Query[int64](t, db, `SELECT count(*) FROM (SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE application_name = 'cdc-relay backfill' AND query LIKE 'SELECT%FROM%"outbox"%ORDER BY%' AND state = 'active' AND datname = current_database()) ended`)
	}()
	text, err := s.attempt(t.Context(), all, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if n := <-lost; n != 1 {
		t.Fatalf("%d readers were ended", n)
	}
	list := s.committed(t)
	slices.Sort(list)
	if list = slices.Compact(list); len(list) != rows {
		t.Errorf("%d of %d rows came\n%s", len(list), rows, text)
	}
}

// Each call numbers the rows that it reads. Two rows that are set aside by two calls are two,
// whatever their numbers, and a consumer that drops what lies before the last position of its
// partition drops no row that it has not seen.
func TestBackfill_CallsGiveNoTwoRowsOnePlace(t *testing.T) {
	t.Parallel()
	for _, kept := range []bool{false, true} {
		t.Run(fmt.Sprintf("progress is kept %t", kept), func(t *testing.T) {
			t.Parallel()
			db, brokers := harness.Postgres(t, "15"), harness.Kfake(t, sandbox.KafkaOptions{})
			how := []string{"kafka.max_message_bytes=100KiB", "relay.position_headers=true"}
			if kept {
				how = append(how, keeps(t, "at_least_once")...)
			}
			s := play(t, db, brokers, how...)
			s.settings.OnReject, s.settings.DeadLetterTopic = relay.DeadLetterOnReject, harness.Unique(t, "letters")
			s.write(t, 1, 6000) // of which most are due when the letters are there
			db.Exec(t, "UPDATE outbox SET aggregate_id = 'one', payload = CASE WHEN id IN (150, 153) THEN repeat('x', 200000) ELSE payload END WHERE id > 100")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			slow := all
			slow.MaxRate = 100
			go func() {
				wait(ctx, func() bool { return len(brokers.Read(t, s.settings.DeadLetterTopic)) >= 2 })
				cancel()
			}()
			if text, err := s.attempt(ctx, slow, nil); !errors.Is(err, context.Canceled) {
				t.Fatalf("%v\n%s", err, text)
			}
			if kept { // what a second's delay of the progress forgets
				s.forget(t, 90)
			}
			db.Exec(t, "DELETE FROM outbox WHERE id BETWEEN 91 AND 93") // 153 has the number now that 150 had
			db.Exec(t, "UPDATE outbox SET payload = '150' WHERE id = 150")
			s.must(t, all)

			events := map[deadletter.ID]string{}
			backlog, err := deadletter.ReadBacklog(t.Context(), s.settings.Kafka.Connection, s.settings.DeadLetterTopic, deadletter.Filter{}, func() {})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range backlog.Entries {
				if other := cmp.Or(events[e.ID], e.Event); other != e.Event {
					t.Errorf("the letters of rows %s and %s have one name, %v", other, e.Event, e.ID)
				}
				events[e.ID] = e.Event
				if !e.FromTable() {
					t.Errorf("the letter of row %s, %v, is taken for one of a row of the WAL", e.Event, e.ID)
				}
			}
			if len(backlog.Entries) < 3 {
				t.Fatalf("%d letters", len(backlog.Entries))
			}

			seen, places := map[string]bool{}, map[string]string{}
			var last string
			for _, r := range brokers.Read(t, s.topic) {
				header := map[string]string{}
				for _, h := range r.Headers {
					header[h.Key] = string(h.Value)
				}
				place := fmt.Sprintf("%20s %20s", strings.TrimPrefix(header[record.HeaderLSN], "0/"), header[record.HeaderSeq])
				if other := cmp.Or(places[place], header["id"]); other != header["id"] {
					t.Fatalf("rows %s and %s have one place, %s", other, header["id"], place)
				}
				places[place] = header["id"]
				if last < place {
					last, seen[header["id"]] = place, true
				}
			}
			missing := 0
			for n := 1; n <= 200; n++ {
				if !seen[strconv.Itoa(n)] && n != 153 && (n < 91 || n > 93) {
					missing++
				}
			}
			if missing > 0 {
				t.Errorf("a consumer that compares positions drops %d rows that it has not seen", missing)
			}
			if point := s.begins(t); !strings.HasPrefix(last, fmt.Sprintf("%20s", strings.TrimPrefix(point, "0/"))) {
				t.Errorf("the last old row is at %s, and the slot begins at %s", last, point)
			}
		})
	}
}

// What a backfill left out is not known to be delivered, unless a column shows that it is.
func TestBackfill_KnowsOnlyOfRowsThatItSent(t *testing.T) {
	t.Parallel()
	brokers := harness.Kfake(t, sandbox.KafkaOptions{})
	for name, c := range map[string]struct {
		column string
		where  string
		want   stored.Before
	}{
		"all":                {"", "", stored.BeforeSent},
		"a condition":        {"", "id > 1", stored.BeforeUnknown},
		"published":          {"published_at timestamptz", "", stored.BeforeSent},
		"another condition":  {"published_at timestamptz", "id > 1", stored.BeforeUnknown},
		"one of two marks":   {"processed_at timestamptz, ADD COLUMN published_at timestamptz", `"processed_at" IS NULL`, stored.BeforeUnknown},
		"a status, may fail": {"status text DEFAULT 'pending'", "", stored.BeforeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := harness.Postgres(t, "18")
			s := play(t, db, brokers, keeps(t, "at_least_once")...)
			if c.column != "" {
				db.Exec(t, "ALTER TABLE outbox ADD COLUMN "+c.column)
			}
			db.Exec(t, `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES (1, 'a', '1', 'e', '1'), (2, 'a', '1', 'e', '2')`)
			var during uint64 // a transaction that is not in the snapshot, and may attach a partition
			text, err := s.attempt(t.Context(), Options{All: c.column == "" && c.where == "", Where: c.where, Yes: true}, func(step string) {
				if step == "slot_made" {
					during = uint64(harness.Query[int64](t, db, "SELECT txid_current()"))
				}
			})
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			system := harness.Query[string](t, db, "SELECT system_identifier::text FROM pg_control_system()")
			oid := harness.Query[int64](t, db, "SELECT 'outbox'::regclass::oid::bigint")
			ledger, err := topics.NewLedger(s.settings.Kafka.Connection, s.settings.CheckpointTopic)
			if err != nil {
				t.Fatal(err)
			}
			defer ledger.Close()
			value, err := ledger.Committed(t.Context(), stored.BeforeSlotKey(system, s.slot, uint32(oid)))
			if err != nil {
				t.Fatal(err)
			}
			if rec, err := stored.ParseBeforeSlot(value); err != nil || rec.Before != c.want {
				t.Errorf("%v, %v; want %s", rec.Before, err, c.want)
			} else if rec.Ended == 0 || rec.Ended > during {
				t.Errorf("all transactions below %d had ended, and %d began behind the snapshot", rec.Ended, during)
			}
		})
	}
}

// A table that is rewritten shows no rows to an older snapshot. It cannot be while the snapshot is
// held, and one that was before that ends the call.
func TestBackfill_ARewrittenTableLosesNoRows(t *testing.T) {
	t.Parallel()
	for _, version := range harness.VersionsFor(t) {
		for step, sql := range map[string]string{
			"slot_made":      "ALTER TABLE outbox ALTER COLUMN payload TYPE text USING payload || ''",
			"snapshot_taken": "ALTER TABLE outbox ALTER COLUMN payload TYPE text USING payload || ''",
			"begun":          "TRUNCATE outbox",
		} {
			t.Run(version+" "+step, func(t *testing.T) {
				t.Parallel()
				s := play(t, harness.Postgres(t, version), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
				s.write(t, 1, 1000)
				patience := "300ms"
				if step == "slot_made" { // there nobody holds the table, but for autovacuum
					patience = "1min"
				}
				var ddl error
				text, err := s.attempt(t.Context(), all, func(at string) {
					if at == step {
						_, ddl = s.db.Connect(t).Exec(t.Context(), "SET lock_timeout = '"+patience+"'; "+sql)
					}
				})
				if step == "slot_made" {
					if ddl != nil || err == nil || !strings.Contains(err.Error(), "run the command again") {
						t.Fatalf("%v, %v\n%s", ddl, err, text)
					}
					s.must(t, all)
				} else if ddl == nil || err != nil {
					t.Fatalf("the table was rewritten: %v; the call: %v\n%s", ddl == nil, err, text)
				}
				complete(t, s.committed(t), 1000, false)
			})
		}
	}
}

// begins is where the slot begins.
func (s *scene) begins(t *testing.T) string {
	t.Helper()
	return harness.Query[string](t, s.db, "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", s.slot)
}

// forget has the progress be at an earlier row.
func (s *scene) forget(t *testing.T, id int) {
	t.Helper()
	system := harness.Query[string](t, s.db, "SELECT system_identifier::text FROM pg_control_system()")
	ledger, err := topics.NewLedger(s.settings.Kafka.Connection, s.settings.CheckpointTopic)
	if err != nil {
		t.Fatal(err)
	}
	defer ledger.Close()
	value, err := ledger.Committed(t.Context(), stored.BackfillKey(system, s.slot))
	if err != nil {
		t.Fatal(err)
	}
	p, err := progress.Parse(value)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Done) == 0 {
		return // it was ended before it wrote any
	}
	text := strconv.Itoa(id)
	p.Rows = uint64(id)
	p.Done[len(p.Done)-1] = &text
	if err := ledger.Write(t.Context(), stored.BackfillKey(system, s.slot), p.Encode()); err != nil {
		t.Fatal(err)
	}
}

// addSecond configures one more table.
func (s *scene) addSecond(t *testing.T) {
	t.Helper()
	s.db.Exec(t, strings.Replace(tableSQL, "public.outbox", "public.second", 1))
	s.settings.Replication.Tables = append(slices.Clone(s.settings.Replication.Tables), wal.Table{Schema: "public", Name: "second"})
	mapping := s.settings.Router.Mappings[0]
	mapping.Table, mapping.Path = "public.second", ""
	s.settings.Router.Mappings = append(slices.Clone(s.settings.Router.Mappings), mapping)
}

func isRefused(err error) bool { _, is := errors.AsType[*advice.Refused](err); return is }

// A table is configured after a call that was interrupted, also one that had sent all rows: the next
// call completes what that one began, and does not keep quiet about the rows of the new table.
func TestBackfill_SaysThatATableWasAddedMeanwhile(t *testing.T) {
	t.Parallel()
	for _, last := range []string{"begun", "finished", "copied", "written"} {
		for name, next := range map[string]Options{"all": all, "no flags": {Yes: true}} {
			if name == "all" && last == "begun" {
				continue // other rows than it began with: refused
			}
			t.Run(last+", "+name, func(t *testing.T) {
				t.Parallel()
				s := play(t, harness.Postgres(t, "18"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "at_least_once")...)
				s.write(t, 1, 10)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if text, err := s.attempt(ctx, all, func(step string) {
					if step == last {
						cancel()
					}
				}); !errors.Is(err, context.Canceled) {
					t.Fatalf("%v\n%s", err, text)
				}
				s.addSecond(t)
				s.db.Exec(t, "ALTER PUBLICATION "+s.slot+" ADD TABLE second")
				s.db.Exec(t, "INSERT INTO second SELECT n, 'a', 'second', 'e', n::text FROM generate_series(101, 105) n")
				planned := next
				planned.Yes = false
				if plan, err := s.attempt(t.Context(), planned, nil); err != nil || !strings.Contains(plan, "public.second") || !strings.Contains(plan, "--late") {
					t.Errorf("the plan says nothing of the table: %v\n%s", err, plan)
				}
				text, err := s.attempt(t.Context(), next, nil)
				if !strings.Contains(text, "public.second") || !strings.Contains(text, "--late") || s.begins(t) == "" {
					t.Errorf("%v\n%s", err, text)
				}
				if refused := name == "all"; (err != nil) != refused || refused && !isRefused(err) {
					t.Errorf("it ended with %v", err)
				}
				if list := s.committed(t); len(list) != 10 {
					t.Errorf("%d records of 10 rows", len(list))
				}
			})
		}
	}
}

// Two tables may have rows of the same place. Those of one that are the stream's leave the other's
// to the backfill.
func TestBackfill_LateRowsOfATableHideNoneOfAnother(t *testing.T) {
	t.Parallel()
	s := play(t, harness.Postgres(t, "15"), harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, "exactly_once")...)
	s.addSecond(t)
	const insert = `INSERT INTO %s SELECT n, 'a', (n %% 5)::text, 'e', (n + %d)::text, '2026-01-01' FROM generate_series(%d, 4000, 2) n`
	s.db.Exec(t, fmt.Sprintf(insert, "outbox", 0, 1))
	s.db.Exec(t, fmt.Sprintf(insert, "second", 4000, 2))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	slow := all
	slow.MaxRate = slowly
	go func() {
		wait(ctx, func() bool { return len(s.committed(t)) >= some })
		cancel()
	}()
	if text, err := s.attempt(ctx, slow, nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v\n%s", err, text)
	}
	s.db.Exec(t, fmt.Sprintf(insert, "outbox", 0, 2)) // between those that are still to be read
	s.must(t, all)
	s.stream(t)
	list := s.committed(t)
	seen := len(list)
	slices.Sort(list)
	if n := len(slices.Compact(list)); n != 6000 || seen != 6000 {
		t.Errorf("%d records of %d rows, want 6000", seen, n)
	}
}

// The slot of a backfill is needed no more once those that run streams from are made of it. The next call
// drops it, also where the server has taken its WAL, and sends no row again behind those of the stream.
func TestBackfill_DropsItsSlotThatIsLostBehindTheCopies(t *testing.T) {
	t.Parallel()
	db := harness.OwnPostgres(t, sandbox.PostgresOptions{Version: "18", Settings: map[string]string{"max_slot_wal_keep_size": "64MB"}})
	for _, guarantee := range []string{"at_least_once", "exactly_once"} {
		s := play(t, db, harness.Kfake(t, sandbox.KafkaOptions{}), keeps(t, guarantee)...)
		s.write(t, 1, 10)
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := s.attempt(ctx, all, func(step string) {
			if step == "written" {
				cancel()
			}
		}); err == nil {
			t.Fatal("the first call was complete")
		}
		for range 10 { // as by a relay, while others write
			db.Exec(t, "SELECT pg_logical_emit_message(true, 'x', 'x'), pg_switch_wal()")
			db.Exec(t, "CHECKPOINT")
			db.Exec(t, "SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())", s.slot)
		}
		if lost := harness.Query[string](t, db, "SELECT string_agg(concat_ws(' ', replace(slot_name, $1, 'slot'), wal_status), ', ' ORDER BY slot_name) FROM pg_replication_slots", s.slot); lost != "slot reserved, slot_backfill lost" {
			t.Fatalf("slots: %s", lost)
		}
		s.must(t, all)
		if left := harness.Query[string](t, db, "SELECT string_agg(slot_name, ' ') FROM pg_replication_slots"); left != s.slot {
			t.Errorf("%s: the slots are %s", guarantee, left)
		}
		if n := len(s.committed(t)); n != 10 {
			t.Errorf("%s: %d records of 10 rows", guarantee, n)
		}
		if told := s.told(t, "outbox"); told != stored.BeforeSent {
			t.Errorf("%s: the topic says %s", guarantee, told)
		}
		db.Exec(t, "SELECT pg_drop_replication_slot($1)", s.slot)
		db.Exec(t, "DROP PUBLICATION "+s.slot+"; DROP TABLE outbox")
	}
}
