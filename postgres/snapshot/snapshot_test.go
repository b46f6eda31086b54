package snapshot

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestChoose_TakesWhatSaysMost(t *testing.T) {
	bigint := Column{Name: "id", Type: "bigint", Sequence: true}
	uuid := Column{Name: "id", Type: "uuid"}
	timed := func(name string) Column { return Column{Name: name, Type: "timestamp with time zone", Nullable: true} }
	created := timed("created_at")
	for name, tt := range map[string]struct {
		shape Shape
		given []string
		by    string
		basis Basis
		total bool
	}{
		"a sequence":                   {Shape{[]Column{created, bigint}, [][]string{{"id"}}}, nil, "id", Sequence, true},
		"a sequence that is no key":    {Shape{[]Column{created, bigint}, nil}, nil, "created_at", Time, false},
		"a time":                       {Shape{[]Column{uuid, created}, [][]string{{"id"}}}, nil, "created_at id", Time, true},
		"the likeliest time":           {Shape{[]Column{uuid, timed("timeout_at"), timed("occurred_at"), created}, [][]string{{"id"}}}, nil, "created_at id", Time, true},
		"the time of the event":        {Shape{[]Column{uuid, timed("timeout_at"), timed("timestamp"), timed("occurred_at")}, [][]string{{"id"}}}, nil, "occurred_at id", Time, true},
		"a timeout, which is none":     {Shape{[]Column{uuid, timed("timeout_at"), timed("timestamp")}, [][]string{{"id"}}}, nil, "timestamp id", Time, true},
		"a key alone":                  {Shape{[]Column{uuid}, [][]string{{"id"}}}, nil, "id", Key, true},
		"a key of two":                 {Shape{[]Column{{Name: "a"}, {Name: "b"}}, [][]string{{"b", "a"}}}, nil, "b a", Key, true},
		"nothing":                      {Shape{[]Column{uuid}, nil}, nil, "", Place, false},
		"given":                        {Shape{[]Column{uuid, created}, [][]string{{"id"}}}, []string{"created_at"}, "created_at id", Given, true},
		"given with a key in it":       {Shape{[]Column{uuid, created}, [][]string{{"id"}}}, []string{"id", "created_at"}, "id created_at", Given, true},
		"given with the second key":    {Shape{[]Column{uuid, {Name: "n"}}, [][]string{{"id"}, {"n"}}}, []string{"n"}, "n", Given, true},
		"given, and there is no key":   {Shape{[]Column{uuid, created}, nil}, []string{"created_at"}, "created_at", Given, false},
		"a time that is none":          {Shape{[]Column{uuid, {Name: "created_by", Type: "text"}}, [][]string{{"id"}}}, nil, "id", Key, true},
		"the second key is a sequence": {Shape{[]Column{uuid, {Name: "n", Type: "bigint", Sequence: true}}, [][]string{{"id"}, {"n"}}}, nil, "n", Sequence, true},
	} {
		o, err := tt.shape.Choose(tt.given)
		if got := strings.Join(o.Names(), " "); err != nil || got != tt.by || o.Basis != tt.basis || o.Total != tt.total {
			t.Errorf("%s: by %q, %s, total %t, %v", name, got, o.Basis, o.Total, err)
		}
	}
	for _, given := range [][]string{{"nowhere"}, {"id", "id"}} {
		if _, err := (&Shape{Columns: []Column{uuid}}).Choose(given); err == nil {
			t.Errorf("%v is an order", given)
		}
	}
}

func TestMark_FindsTheColumnOfAPoller(t *testing.T) {
	for name, tt := range map[string]struct {
		column Column
		where  string
	}{
		"a time":             {Column{Name: "published_at", Type: "timestamp with time zone", Nullable: true}, `"published_at" IS NULL`},
		"that all rows have": {Column{Name: "sent_at", Type: "timestamp with time zone"}, ""},
		"without a value":    {Column{Name: "sent_at", Type: "timestamp(3) with time zone", Nullable: true, Default: "NULL::timestamp with time zone"}, `"sent_at" IS NULL`},
		"that new rows have": {Column{Name: "sent_at", Type: "timestamp with time zone", Nullable: true, Default: "now()"}, ""},
		"a name in capitals": {Column{Name: "ProcessedAt", Type: "timestamp", Nullable: true}, ""},
		"a time in quotes":   {Column{Name: "Sent_At", Type: "timestamp", Nullable: true}, `"Sent_At" IS NULL`},
		"a flag":             {Column{Name: "processed", Type: "boolean"}, `"processed" IS NOT TRUE`},
		"a flag of new rows": {Column{Name: "processed", Type: "boolean", Default: "false"}, `"processed" IS NOT TRUE`},
		"that is set":        {Column{Name: "processed", Type: "boolean", Default: "true"}, ""},
		"a status":           {Column{Name: "status", Type: "text", Default: "'it''s new'::text"}, `"status" = 'it''s new'`},
		"no default":         {Column{Name: "status", Type: "text"}, ""},
		"a time by its name": {Column{Name: "published_at", Type: "text"}, ""},
		"another":            {Column{Name: "created_at", Type: "timestamp", Nullable: true}, ""},
	} {
		mark, ok := (&Shape{Columns: []Column{{Name: "id"}, tt.column}}).PublishedColumn()
		if mark.Where != tt.where || ok != (tt.where != "") {
			t.Errorf("%s: %q, %t; want %q", name, mark.Where, ok, tt.where)
		}
	}
}

// holder has a table of rows with NULLs and equal values.
func holder(t *testing.T, db *harness.Database) (*Holder, *Table) {
	t.Helper()
	db.Exec(t, `CREATE TABLE "Some rows" (id bigint PRIMARY KEY, "a b" text, c timestamptz, d numeric)`)
	rng := rand.New(rand.NewPCG(1, 1))
	for n := range 60 {
		text := []string{"NULL", "''", "'x''y\\'", "'Ä'", "'b'"}[rng.IntN(5)]
		stamp := []string{"NULL", "'-infinity'", "'2026-01-01 00:00:00.000001+00'", "'2026-01-01 00:00:00.000002+00'"}[rng.IntN(4)]
		db.Exec(t, fmt.Sprintf(`INSERT INTO "Some rows" VALUES (%d, %s, %s, %d.50)`, n+1, text, stamp, rng.IntN(4)))
	}
	cfg := postgres.Config{URL: db.URL, Slot: harness.Unique(t, "snap"), Publication: "none", Tables: []wal.Table{{Schema: "public", Name: "Some rows"}}}
	h, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	table, _, err := h.Describe(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return h, table
}

func read(t *testing.T, h *Holder, s *Selection, after, upTo Tuple) (ids []string, places []Tuple) {
	t.Helper()
	r, err := h.Reader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	rows := r.Read(t.Context(), s, after, upTo)
	for {
		columns, order := rows.Next()
		if columns == nil && order == nil {
			break
		}
		ids = append(ids, string(columns[0]))
		at := make(Tuple, len(order))
		for i, v := range order {
			if v != nil {
				text := string(v)
				at[i] = &text
			}
		}
		places = append(places, at)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return ids, places
}

// Behind each place come exactly the rows that the order has behind it, whatever is NULL.
func TestRead_GoesOnBehindEachPlace(t *testing.T) {
	for _, version := range harness.VersionsFor(t) {
		t.Run(version, func(t *testing.T) {
			h, table := holder(t, harness.Postgres(t, version))
			if _, err := h.Begin(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
			r, err := h.Reader(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			for _, given := range [][]string{nil, {"a b"}, {"c", "a b"}, {"d", "c"}, {"id"}} {
				s := &Selection{Table: table}
				if s.Order, err = table.Shape.Choose(given); err != nil || !s.Order.Total {
					t.Fatalf("%v: %+v, %v", given, s.Order, err)
				}
				all, places := read(t, h, s, nil, nil)
				if len(all) != 60 {
					t.Fatalf("%v: %d rows", given, len(all))
				}
				last, err := r.Last(t.Context(), s)
				if err != nil || s.Order.Describe(last) != s.Order.Describe(places[59]) {
					t.Errorf("%v: the last is at %s, %v; want %s", given, s.Order.Describe(last), err, s.Order.Describe(places[59]))
				}
				for _, i := range []int{0, 1, 7, 20, 33, 58, 59} {
					j := min(59, i+11)
					if got, _ := read(t, h, s, places[i], places[j]); !slices.Equal(got, all[i+1:j+1]) {
						t.Errorf("%v: behind %s come %v, want %v", given, s.Order.Describe(places[i]), got, all[i+1:j+1])
					}
					within, err := r.PlacesWithin(t.Context(), &s.Order, places, places[i], places[j])
					if err != nil {
						t.Fatal(err)
					}
					for n, is := range within {
						if is != (n > i && n <= j) {
							t.Errorf("%v: place %d lies within %d and %d: %t", given, n, i, j, is)
						}
					}
					if n, exact, err := r.Count(t.Context(), s, places[i], places[j], time.Minute); err != nil || !exact || n != int64(j-i) {
						t.Errorf("%v: %d rows behind place %d, %t, %v", given, n, i, exact, err)
					}
				}
			}
		})
	}
}

// A snapshot that was imported can be given on, also when its first exporter is gone, and a
// reading that is cut off leaves it as it is.
func TestHolder_GivesOnWhatItImported(t *testing.T) {
	for _, version := range harness.VersionsFor(t) {
		t.Run(version, func(t *testing.T) {
			db := harness.Postgres(t, version)
			h, table := holder(t, db)
			made, err := provision.ExportSlot(t.Context(), h.cfg, h.cfg.BackfillSlot(), provision.DefaultSlotTimeout)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := h.Begin(t.Context(), made.Snapshot); err != nil {
				t.Fatal(err)
			}
			made.Close()
			db.Exec(t, `INSERT INTO "Some rows" VALUES (61)`)
			cut, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer stop()
			r, err := h.Reader(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			s := &Selection{Table: table}
			if s.Order, err = table.Shape.Choose(nil); err != nil {
				t.Fatal(err)
			}
			rows := r.Read(cut, &Selection{Table: table, Where: "pg_sleep(1) IS NOT NULL", Order: s.Order}, nil, nil)
			if columns, _ := rows.Next(); columns != nil || rows.Err() == nil {
				t.Errorf("it was cut off and has %q, %v", columns, rows.Err())
			}
			if all, _ := read(t, h, s, nil, nil); len(all) != 60 {
				t.Errorf("%d rows", len(all))
			}
			err = h.Ask(t.Context(), func(q postgres.Querier, _ int) error {
				slots, err := provision.ReadSlots(q, 150000, h.cfg.BackfillSlot())
				if err == nil && (slots[0].Confirmed != made.Point || !slots[0].Exists) {
					err = fmt.Errorf("the slot is %+v, and was made at %s", slots[0], made.Point)
				}
				return errors.Join(err, provision.DropSlot(q, h.cfg.BackfillSlot()))
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// One at a time, and the lock goes with the connection.
func TestHolder_LocksOutAnother(t *testing.T) {
	h, _ := holder(t, harness.Postgres(t))
	var said []string
	say := func(text string) { said = append(said, text) }
	if err := h.Lock(t.Context(), say); err != nil {
		t.Fatal(err)
	}
	other, err := Open(t.Context(), h.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	other.patience = 0
	if err := other.Lock(t.Context(), say); err == nil || !strings.Contains(err.Error(), "another session holds the lock: pid ") {
		t.Errorf("the second: %v", err)
	}
	if len(said) > 0 {
		t.Errorf("it said %q, and waited for nobody", said)
	}
	other.patience, other.quiet = time.Minute, 100*time.Millisecond
	process := strconv.FormatUint(uint64(h.q.Conn.PID()), 10)
	time.AfterFunc(300*time.Millisecond, h.Close) // as a command that ends while the next one begins
	if err := other.Lock(t.Context(), say); err != nil {
		t.Errorf("after the first has ended: %v", err)
	}
	if len(said) != 1 || !strings.Contains(said[0], "waiting up to 1m0s for the lock") || !strings.HasSuffix(said[0], "another session holds the lock: pid "+process) {
		t.Errorf("it said %q", said)
	}
}

// Places are compared as the rows are read: by the collation of the column.
func TestWithin_ComparesByTheColumnsCollation(t *testing.T) {
	db := harness.Postgres(t)
	for _, collation := range []string{"C", "en-x-icu"} { // the database has one of the two at most
		db.Exec(t, `DROP TABLE IF EXISTS words; CREATE TABLE words (id text COLLATE "`+collation+`" PRIMARY KEY); INSERT INTO words VALUES ('a'), ('B'), ('c')`)
		h, s := chosen(t, db, "words")
		ids, places := read(t, h, s, nil, nil)
		r, err := h.Reader(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		within, err := r.PlacesWithin(t.Context(), &s.Order, places, places[0], places[2])
		if err != nil {
			t.Fatal(err)
		}
		for n, is := range within {
			if is != (n > 0) {
				t.Errorf("%s: rows in order %v: the place of number %d lies behind the first: %t", collation, ids, n, is)
			}
		}
	}
}

// A unique index tells rows apart that the order takes for equal, if its collation is another one than the column's.
func TestRead_GoesOnBehindARowThatIsEqualInTheOrder(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, `CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`)
	for collation, total := range map[string]bool{"any_case": true, `"C"`: false} {
		db.Exec(t, `DROP TABLE IF EXISTS words; CREATE TABLE words (id text COLLATE any_case NOT NULL); CREATE UNIQUE INDEX ON words (id COLLATE `+collation+`)`)
		db.Exec(t, `INSERT INTO words VALUES ('a'), ('b')`)
		if !total {
			db.Exec(t, `INSERT INTO words VALUES ('A')`)
		}
		h, s := chosen(t, db, "words")
		if s.Order.Total != total {
			t.Errorf("%s: total is %t", collation, s.Order.Total)
		}
		ids, places := read(t, h, s, nil, nil)
		rest, _ := read(t, h, s, places[0], nil)
		for _, id := range ids[1:] {
			if !slices.Contains(rest, id) {
				t.Errorf("%s: row %s comes behind row %s, and is left out", collation, id, ids[0])
			}
		}
	}
}

// chosen begins a snapshot, and chooses the order in which the rows of a table are read.
func chosen(t *testing.T, db *harness.Database, name string) (*Holder, *Selection) {
	t.Helper()
	h, err := OpenToRead(t.Context(), postgres.Config{URL: db.URL, Slot: name, Publication: name, Tables: []wal.Table{{Schema: "public", Name: name}}}, "audit")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	table, _, err := h.Describe(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Begin(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	s := &Selection{Table: table}
	if s.Order, err = table.Shape.Choose(nil); err != nil {
		t.Fatal(err)
	}
	return h, s
}

// A NOT NULL that is not validated (18) leaves the NULLs that were there: they come first, and a
// reading goes on behind each of them.
func TestRead_GoesOnBehindNULLsOfAConstraintThatIsNotValid(t *testing.T) {
	db := harness.Postgres(t, "18")
	db.Exec(t, `CREATE TABLE events (id bigint PRIMARY KEY, created_at timestamptz); INSERT INTO events SELECT n, CASE WHEN n % 3 > 0 THEN now() END FROM generate_series(1, 9) n;
		ALTER TABLE events ADD CONSTRAINT dated NOT NULL created_at NOT VALID`)
	h, s := chosen(t, db, "events")
	all, places := read(t, h, s, nil, nil)
	for i, at := range places {
		if got, _ := read(t, h, s, at, places[len(places)-1]); !slices.Equal(got, all[i+1:]) {
			t.Errorf("behind row %s of %v come %v", all[i], all, got)
		}
	}
}

// A policy would hide rows, and no grant changes that.
func TestRead_RefusesToLookThroughAPolicy(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, `CREATE TABLE outbox (id int PRIMARY KEY); ALTER TABLE outbox ENABLE ROW LEVEL SECURITY`)
	cfg := postgrestest.AsReader(t, db, postgrestest.Config(t, db))
	h, err := OpenToRead(t.Context(), cfg, "backfill")
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	table, _, err := h.Describe(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	err = h.CheckSelection(t.Context(), &Selection{Table: table})
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonPermission, "read rows of table public.outbox: row-level security of table public.outbox applies to the role that connects, and may hide rows", "BYPASSRLS")
	if err != nil && strings.Contains(err.Error(), "sql --for") {
		t.Errorf("it names grants, which do not help: %v", err)
	}
}
