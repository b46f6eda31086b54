package replication

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

const describedSQL = `
	CREATE DOMAIN amount AS numeric(10,2) NOT NULL;
	CREATE DOMAIN total AS amount;
	CREATE TYPE mood AS ENUM ('sad', 'ok');
	CREATE TABLE described (
		tenant int, id uuid DEFAULT gen_random_uuid(), note varchar(20) DEFAULT 'it''s' NOT NULL,
		sum total, feeling mood DEFAULT 'sad', moods mood[], tags text[], plain text, PRIMARY KEY (id, tenant));
	CREATE PUBLICATION cdc_relay FOR TABLE described;`

func TestPostgresMetadataComesWithEachAnnouncement(t *testing.T) {
	harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
		t.Parallel()
		db.Exec(t, describedSQL)
		cfg := postgrestest.Config(t, db)
		cfg.Tables = []wal.Table{{Schema: "public", Name: "described"}}
		cfg.Wants = []wal.Wants{{Update: true, Delete: true, Truncate: true, Meta: true}}
		db.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, cfg.Slot)
		db.Exec(t, `INSERT INTO described (tenant, sum) VALUES (1, 2.5)`)
		r := read(t, cfg)
		show := func(rel *wal.Relation) string {
			var s []string
			for i, m := range rel.Meta {
				s = append(s, fmt.Sprintf("%s notnull=%t key=%d default=%s %s(%d) %c labels=%s elem=%s %c",
					rel.Columns[i].Name, m.NotNull, m.Key, m.Default, m.TypeName, m.BaseMod, m.TypeKind, m.Labels, m.ElemName, m.ElemKind))
			}
			return strings.Join(s, "\n") + "\n"
		}
		want := `tenant notnull=true key=2 default= int4(-1) b labels= elem= b
id notnull=true key=1 default=gen_random_uuid() uuid(-1) b labels= elem= b
note notnull=true key=0 default='it''s'::character varying varchar(24) b labels= elem= b
sum notnull=false key=0 default= numeric(655366) b labels= elem= b
feeling notnull=false key=0 default='sad'::public.mood mood(-1) e labels=sad,ok elem= b
moods notnull=false key=0 default= _mood(-1) b labels=sad,ok elem=mood e
tags notnull=false key=0 default= _text(-1) b labels= elem=text b
plain notnull=false key=0 default= text(-1) b labels= elem= b
`
		if got := show(r.stream.Tables()[0]); got != strings.TrimPrefix(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		next := func() wal.Row {
			t.Helper()
			b, err := r.next()
			for b != nil && len(b.Rows) == 0 {
				r.settle(b)
				b, err = r.next()
			}
			if b == nil {
				t.Fatal(err)
			}
			row := b.Rows[0]
			row.Values = slices.Clone(row.Values)
			r.settle(b)
			return row
		}
		if got := show(next().Relation); got != strings.TrimPrefix(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		db.Exec(t, `ALTER TABLE described ALTER plain SET DEFAULT 'x', ALTER note DROP NOT NULL`)
		db.Exec(t, `UPDATE described SET tenant = 2`)
		row := next()
		if row.Change == nil || row.Change.Op != wal.Update || string(row.Change.Old[0].Data) != "1" || row.Change.Old[3].Kind != wal.Null || string(row.Values[0].Data) != "2" {
			t.Errorf("update %+v", row.Change)
		}
		want = strings.Replace(want, "plain notnull=false key=0 default=", "plain notnull=false key=0 default='x'::text", 1)
		want = strings.Replace(want, "note notnull=true", "note notnull=false", 1)
		if got := show(row.Relation); got != strings.TrimPrefix(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		db.Exec(t, `DELETE FROM described`)
		if row := next(); row.Change == nil || row.Change.Op != wal.Delete || string(row.Change.Old[0].Data) != "2" || len(row.Values) != 0 {
			t.Errorf("delete %+v", row)
		}
		db.Exec(t, `TRUNCATE described`)
		if row := next(); row.Change == nil || row.Change.Op != wal.Truncate {
			t.Errorf("truncate %+v", row)
		}
	})
}

// Rows that were written under other names and types keep them, whether or not the
// catalog was asked about the table before the stream began. A server that had the
// table in its cache would send the new names, and the old numeric read as text.
func TestPostgresRowsFromBeforeATableChangedKeepTheirShape(t *testing.T) {
	for _, wants := range [][]wal.Wants{nil, {{Meta: true}}} {
		harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
			t.Parallel()
			db.Exec(t, describedSQL)
			cfg := postgrestest.Config(t, db)
			cfg.Tables, cfg.Wants = []wal.Table{{Schema: "public", Name: "described"}}, wants
			db.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, cfg.Slot)
			db.Exec(t, `INSERT INTO described (tenant, sum) VALUES (1, 2.5)`)
			db.Exec(t, `ALTER TABLE described RENAME feeling TO felt; ALTER TABLE described ALTER sum TYPE text, ALTER plain SET DEFAULT 'x'`)
			r := read(t, cfg)
			b, err := r.next()
			for b != nil && len(b.Rows) == 0 {
				r.settle(b)
				b, err = r.next()
			}
			if b == nil {
				t.Fatal(err)
			}
			defer r.settle(b)
			rel, values := b.Rows[0].Relation, b.Rows[0].Values
			if rel.Columns[4].Name != "feeling" || rel.Columns[3].TypeName == "text" || string(values[3].Data) != "2.50" {
				t.Errorf("%+v of %+v", values, rel.Columns)
			}
			if wants == nil {
				return
			}
			if m := rel.Meta[4]; m.TypeKind != 'e' || m.Labels != "sad,ok" || m.Default != "" {
				t.Errorf("column %+v is %+v", rel.Columns[4], m)
			}
			if m := rel.Meta[3]; m.TypeName != "numeric" || m.BaseMod != 655366 {
				t.Errorf("the old type is %+v", m)
			}
		})
	}
}
