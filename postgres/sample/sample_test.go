package sample_test

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/postgres/sample"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// texts prints a row's values, NULL as a dash.
func texts(row *wal.Row) string {
	if row == nil {
		return "no row"
	}
	var list []string
	for _, v := range row.Values {
		if v.Kind == wal.Null {
			list = append(list, "-")
			continue
		}
		list = append(list, string(v.Data))
	}
	return strings.Join(list, "|")
}

func TestNewestRow_IsWhatTheStreamWouldBring(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		t.Parallel()
		db.Exec(t, postgrestest.OutboxSQL)
		db.Exec(t, `ALTER TABLE outbox ADD at timestamptz, ADD raw bytea`)
		cfg := postgrestest.Config(t, db)

		row, err := sample.NewestRow(t.Context(), cfg, 0)
		if err != nil || row != nil {
			t.Fatalf("an empty table gives %s, %v", texts(row), err)
		}
		db.Exec(t, `INSERT INTO outbox VALUES ('00000000-0000-0000-0000-000000000002', 'Old', DEFAULT, 'good', '{}')`)
		db.Exec(t, `INSERT INTO outbox VALUES ('00000000-0000-0000-0000-000000000001', 'New', DEFAULT, NULL, '{"a": 1}', '2024-02-29 12:00:00.5+02', '\x00ff')`)

		row, err = sample.NewestRow(t.Context(), cfg, 0)
		if err != nil {
			t.Fatal(err)
		}
		want := `00000000-0000-0000-0000-000000000001|New|-|{"a": 1}|2024-02-29 10:00:00.5+00|\x00ff`
		if got := texts(row); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if row.Relation.Table != 0 || row.Txn == nil || row.Txn.Time.IsZero() {
			t.Errorf("relation %+v, transaction %+v", row.Relation, row.Txn)
		}
	})
}

func TestNewestRow_TakesThePublishedColumns(t *testing.T) {
	db := harness.Postgres(t, "15")
	db.Exec(t, `CREATE TABLE outbox (id bigserial PRIMARY KEY, payload text, secret text);
		CREATE PUBLICATION cdc_relay FOR TABLE outbox (id, payload) WITH (publish = 'insert')`)
	db.Exec(t, `INSERT INTO outbox (id, payload, secret) VALUES (7, 'newest', 's'), (3, 'written later', 's')`)
	cfg := postgrestest.Config(t, db)
	row, err := sample.NewestRow(t.Context(), cfg, 0)
	if err != nil || texts(row) != "7|newest" {
		t.Errorf("got %s, %v", texts(row), err)
	}
	_, warnings, err := catalog.Describe(t.Context(), cfg, 0)
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "2 of the 3 columns") {
		t.Errorf("warnings %q, %v", warnings, err)
	}
}

// Without an index that knows the time, the end of the heap is searched first.
func TestNewestRow_OfALargeTableIsAtItsEnd(t *testing.T) {
	db := harness.Postgres(t, "15")
	db.Exec(t, `CREATE TABLE outbox (id text, payload text)`)
	db.Exec(t, `INSERT INTO outbox SELECT n::text, repeat('x', 1000) FROM generate_series(1, 1000) n`)
	db.Exec(t, `INSERT INTO outbox VALUES ('last', '')`)
	cfg := postgrestest.Config(t, db)
	row, err := sample.NewestRow(t.Context(), cfg, 0)
	if err != nil || texts(row) != "last|" {
		t.Errorf("got %s, %v", texts(row), err)
	}
	db.Exec(t, `DELETE FROM outbox WHERE id <> '1'`)
	row, err = sample.NewestRow(t.Context(), cfg, 0)
	if err != nil || row == nil || string(row.Values[0].Data) != "1" {
		t.Errorf("after deletes at the end: %v", err)
	}
}

func TestNewestRow_OfAPartitionedTable(t *testing.T) {
	db := harness.Postgres(t, "15")
	db.Exec(t, `CREATE TABLE outbox (id text, at date) PARTITION BY RANGE (at);
		CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES FROM ('2024-01-01') TO ('2024-02-01');
		CREATE TABLE outbox_2 PARTITION OF outbox FOR VALUES FROM ('2024-02-01') TO ('2024-03-01')`)
	db.Exec(t, `INSERT INTO outbox VALUES ('old', '2024-02-02')`)
	db.Exec(t, `INSERT INTO outbox VALUES ('new', '2024-01-01')`)
	row, err := sample.NewestRow(t.Context(), postgrestest.Config(t, db), 0)
	if err != nil || texts(row) != "new|2024-01-01" {
		t.Errorf("got %s, %v", texts(row), err)
	}
}

// Rows of one transaction have one age, and a place says nothing about another partition.
func TestNewestRow_OfAPartitionedTableFilledAtOnce(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		for name, by := range map[string]string{"range": "RANGE (at)", "list": "LIST (kind)"} {
			db.Exec(t, `DROP TABLE IF EXISTS outbox; CREATE TABLE outbox (id text, kind int, at timestamptz, occurred_at timestamptz) PARTITION BY `+by)
			if name == "range" {
				db.Exec(t, `CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES FROM ('2024-01-01') TO ('2024-02-01');
					CREATE TABLE outbox_2 PARTITION OF outbox FOR VALUES FROM ('2024-02-01') TO ('2024-03-01')`)
			} else {
				db.Exec(t, `CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES IN (1); CREATE TABLE outbox_2 PARTITION OF outbox FOR VALUES IN (2)`)
			}
			db.Exec(t, `INSERT INTO outbox SELECT id, kind, at::timestamptz, at::timestamptz FROM (VALUES ('a', 1, '2024-01-03'), ('b', 1, '2024-01-04'), ('newest', 2, '2024-02-02')) v(id, kind, at)`)
			row, err := sample.NewestRow(t.Context(), postgrestest.Config(t, db), 0)
			if err != nil || !strings.HasPrefix(texts(row), "newest|") {
				t.Errorf("%s: got %s, %v", name, texts(row), err)
			}
		}
	})
}

func TestNewestRow_WithoutSelectSaysWhatToGrant(t *testing.T) {
	db := harness.Postgres(t, "15")
	cfg := postgrestest.OutboxDatabase(t, db)
	cfg = postgrestest.AsReplicator(t, db, cfg)
	_, refused := sample.NewestRow(t.Context(), cfg, 0)
	postgrestest.WantError(t, refused, fault.KindRefused, fault.ReasonPermission, `run: GRANT SELECT ON "public"."outbox" TO "role`)
	db.Exec(t, "REVOKE USAGE ON SCHEMA public FROM PUBLIC")
	_, refused = sample.NewestRow(t.Context(), cfg, 0)
	postgrestest.WantError(t, refused, fault.KindRefused, fault.ReasonPermission, `run: GRANT USAGE ON SCHEMA "public" TO "role`, `GRANT SELECT ON "public"."outbox" TO`)

	relation, _, err := catalog.Describe(t.Context(), cfg, 0)
	if err != nil || len(relation.Columns) != 4 {
		t.Errorf("the catalog gives %+v, %v", relation, err)
	}
	_, grants, _ := strings.Cut(refused.Error(), "run: ")
	db.Exec(t, grants)
	_, role, _ := strings.Cut(grants, " TO ")
	role, _, _ = strings.Cut(role, ";")
	if row, err := sample.NewestRow(t.Context(), cfg, 0); err != nil || row != nil {
		t.Errorf("after the grant: %s, %v", texts(row), err)
	}
	db.Exec(t, "DROP OWNED BY "+role)
}

func TestNewestRow_OfNoTable(t *testing.T) {
	db := harness.Postgres(t, "15")
	_, err := sample.NewestRow(t.Context(), postgrestest.Config(t, db), 0)
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonTableMissing, "public.outbox", "setup --create-table")
	db.Exec(t, `CREATE UNLOGGED TABLE outbox (id int)`)
	_, _, err = catalog.Describe(t.Context(), postgrestest.Config(t, db), 0)
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonTableChanged, "SET LOGGED")
}

func TestCast_GivesWhatTheServerWouldSend(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		t.Parallel()
		db.Exec(t, `CREATE TYPE mood AS ENUM ('good', 'bad'); CREATE DOMAIN positive AS int CHECK (VALUE > 0);
			CREATE TABLE outbox (id uuid, b jsonb, j json, at timestamptz, f mood, n numeric(10,2), p positive, v varchar(3), c char(3), tags text[], raw bytea, flag bool)`)
		cfg := postgrestest.Config(t, db)
		rel, _, err := catalog.Describe(t.Context(), cfg, 0)
		if err != nil {
			t.Fatal(err)
		}
		row := func(texts ...string) *wal.Row {
			r := &wal.Row{Relation: rel, Values: make([]wal.Value, len(rel.Columns))}
			for i := range r.Values {
				r.Values[i] = wal.Value{Kind: wal.Null}
				if i < len(texts) && texts[i] != "" {
					r.Values[i] = wal.Value{Kind: wal.Text, Data: []byte(texts[i])}
				}
			}
			return r
		}
		made := row("00000000-0000-0000-0000-00000000000A", `{"bb":1,"a":[1,2e2],"a":{"x":"\u00e4"}}`, `{"bb":1 }`, "2024-02-29 12:00+02", "good", "1.005", "7", "abc", "x", "{a,NULL}", `\x00FF`, "true")
		if err := sample.CastRow(t.Context(), cfg, made); err != nil {
			t.Fatal(err)
		}
		const want = `00000000-0000-0000-0000-00000000000a|{"a": {"x": "ä"}, "bb": 1}|{"bb":1 }|2024-02-29 10:00:00+00|good|1.01|7|abc|x  |{a,NULL}|\x00ff|t`
		if got := texts(made); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		for want, wrong := range map[string]*wal.Row{
			`column "id": invalid input syntax for type uuid`:                        row("x"),
			`column "b": invalid input syntax for type json`:                         row("", "{"),
			`column "f": invalid input value for enum public.mood`:                   row("", "", "", "", "fair"),
			`column "p": value for domain public.positive violates check constraint`: row("", "", "", "", "", "", "-1"),
			`column "v": the value is longer than the 3 characters`:                  row("", "", "", "", "", "", "", "äbcd"),
			`column "raw": invalid hexadecimal digit`:                                row("", "", "", "", "", "", "", "", "", "", `\xzz`),
		} {
			if err := sample.CastRow(t.Context(), cfg, wrong); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		}
	})
}

func TestNewest_TakesTheYoungestRows(t *testing.T) {
	db := harness.Postgres(t, "15")
	cfg := postgrestest.AsReader(t, db, postgrestest.OutboxDatabase(t, db))
	db.Exec(t, `CREATE TABLE serial (n bigserial PRIMARY KEY, payload text); INSERT INTO serial (payload) SELECT 'p' || n FROM generate_series(1, 50) n`)
	db.Exec(t, `CREATE TABLE binaries (n bigserial PRIMARY KEY, payload bytea); INSERT INTO binaries (payload) VALUES ('\x010203'), (NULL)`)
	db.Exec(t, `CREATE TABLE plain (id uuid, payload text); INSERT INTO plain SELECT gen_random_uuid(), repeat('x', n) FROM generate_series(1, 500) n; INSERT INTO plain VALUES (NULL, 'last')`)
	for _, tt := range []struct {
		table, newest string
		largest       int64
	}{
		{"serial", "p50", 3}, {"binaries", "", 3}, {"plain", "last", 500},
	} {
		one := cfg
		one.Tables = []wal.Table{{Schema: "public", Name: tt.table}}
		rows, err := sample.NewestRows(t.Context(), one, 0, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) != 2 || string(rows[0].Values[1].Data) != tt.newest {
			t.Errorf("%s: %d rows, the newest is %q, want %q", tt.table, len(rows), rows[0].Values[1].Data, tt.newest)
		}
		size, complete, err := sample.LargestValue(t.Context(), one, rows[0].Relation, "payload")
		if err != nil || !complete || size != tt.largest {
			t.Errorf("%s: largest is %d (%v, %v), want %d", tt.table, size, complete, err, tt.largest)
		}
	}
	if _, _, err := sample.LargestValue(t.Context(), cfg, &wal.Relation{Namespace: "public", Name: "plain"}, "x; DROP TABLE plain"); err == nil {
		t.Error("a column that is not there was measured")
	}
	other := cfg
	other.URL = postgrestest.WithUser(t, cfg.URL, postgrestest.NewRole(t, db, "LOGIN REPLICATION"))
	_, err := sample.NewestRows(t.Context(), other, 0, 1)
	postgrestest.WantError(t, err, fault.KindRefused, fault.ReasonPermission, "GRANT SELECT")
}
