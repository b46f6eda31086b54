package replication

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// renderChanges prints rows with what kind of change they are.
func renderChanges(rows []Row) string {
	var s strings.Builder
	show := func(values []Value) {
		for i, v := range values {
			if i > 0 {
				s.WriteByte(',')
			}
			if v.Kind == Text {
				s.Write(v.Data)
			} else {
				s.WriteByte(byte(v.Kind))
			}
		}
	}
	for i := range rows {
		r := &rows[i]
		fmt.Fprintf(&s, "#%d %s ", r.Ordinal, r.Relation.Name)
		if r.Change == nil {
			s.WriteString("insert ")
		} else {
			fmt.Fprintf(&s, "%c whole=%t old=", r.Change.Op, r.Change.Whole)
			show(r.Change.Old)
			s.WriteString(" new=")
		}
		show(r.Values)
		s.WriteByte('\n')
	}
	return s.String()
}

func TestChangesBecomeRowsForWhoAsks(t *testing.T) {
	changes := []msg{
		begin(0x200, 7),
		relationMsg(outboxOID, "public", "outbox", outboxColumns...),
		relationMsg(oddOID, "Odd", "Out\"Box", "k"),
		relationMsg(otherOID, "public", "orders", "id"),
		insert(outboxOID, "1", "a"),
		msg{'U'}.u32(outboxOID).u8('N').u16(2).text('t', "1").u8('u'),
		msg{'U'}.u32(outboxOID).u8('K').u16(2).text('t', "1").u8('n').u8('N').tuple("2", "b"),
		msg{'U'}.u32(outboxOID).u8('O').tuple("2", "b").u8('N').u16(2).text('t', "2").u8('u'),
		msg{'D'}.u32(outboxOID).u8('K').u16(2).text('t', "2").u8('n'),
		msg{'U'}.u32(oddOID).u8('N').tuple("x"),
		msg{'D'}.u32(otherOID).u8('O').tuple("9"),
		msg{'T'}.u32(2).u8(0).u32(otherOID).u32(outboxOID),
		commit(0x200, 0x230),
	}
	for name, c := range map[string]struct {
		wants []Wants
		want  string
		other int
	}{
		"nobody": {nil, "#1 outbox insert 1,a\n", 7},
		"updates": {[]Wants{{Update: true}}, "#1 outbox insert 1,a\n#2 outbox U whole=false old= new=1,u\n" +
			"#3 outbox U whole=false old=1,n new=2,b\n#4 outbox U whole=true old=2,b new=2,b\n", 4},
		"deletes":   {[]Wants{{Delete: true}}, "#1 outbox insert 1,a\n#2 outbox D whole=false old=2,n new=\n", 6},
		"truncates": {[]Wants{{Truncate: true}}, "#1 outbox insert 1,a\n#2 outbox T whole=false old= new=\n", 6},
		"another":   {[]Wants{{}, {Update: true}}, "#1 outbox insert 1,a\n#2 Out\"Box U whole=false old= new=x\n", 6},
		"commits":   {[]Wants{{Commit: true}}, "#1 outbox insert 1,a\n#2 outbox C whole=false old= new=\n", 7},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig
			cfg.Wants = c.wants
			d := NewDecoder(cfg)
			decodeAll(t, d, changes...)
			b := d.Take()
			defer b.Release()
			expect(t, renderChanges(b.Rows), c.want)
			if b.OtherOps != c.other || b.Through != 0x230 {
				t.Errorf("%d other operations, want %d; through %s", b.OtherOps, c.other, b.Through)
			}
			if txn := b.Rows[0].Txn; b.Rows[len(b.Rows)-1].Txn != txn || txn.End != 0x230 {
				t.Errorf("transaction %+v", txn)
			}
		})
	}
}

// A transaction without rows has no end to tell of.
func TestCommitRowsNeedRows(t *testing.T) {
	cfg := testConfig
	cfg.Wants = []Wants{{Commit: true}}
	d := NewDecoder(cfg)
	decodeAll(t, d, begin(0x200, 7), relationMsg(outboxOID, "public", "outbox", outboxColumns...), commit(0x200, 0x230))
	if b := d.Take(); len(b.Rows) != 0 {
		t.Errorf("got %s", renderChanges(b.Rows))
	}
}

func TestChangesOfADriftedTableAreRefused(t *testing.T) {
	cfg := testConfig
	cfg.Wants = []Wants{{Update: true}}
	d := NewDecoder(cfg)
	d.Expect(&Relation{OID: outboxOID, Namespace: "public", Name: "outbox"})
	decodeAll(t, d, begin(0x200, 7), relationMsg(outboxOID+1, "public", "outbox", outboxColumns...))
	err := d.Decode(msg{'U'}.u32(outboxOID+1).u8('N').tuple("1", "a"), 0x210)
	if e, ok := errors.AsType[*Error](err); ok && e.Kind == KindDrift {
		t.Fatalf("a table that the configuration does not have drifted: %v", err)
	}
	d = NewDecoder(cfg)
	d.Expect(&Relation{OID: outboxOID, Namespace: "public", Name: "outbox"})
	decodeAll(t, d, begin(0x200, 7), relationMsg(outboxOID, "public", "renamed", outboxColumns...))
	err = d.Decode(msg{'U'}.u32(outboxOID).u8('N').tuple("1", "a"), 0x210)
	if e, ok := errors.AsType[*Error](err); err != nil && (!ok || e.Kind != KindDrift) {
		t.Errorf("got %v", err)
	}
}

func TestAnyPrefixTakesWhatNobodyNamed(t *testing.T) {
	cfg := testConfig
	cfg.Messages = []string{"mine", AnyPrefix}
	d := NewDecoder(cfg)
	decodeAll(t, d,
		msg{'M'}.u8(0).lsn(0x180).str("mine").u32(1).u8('1'),
		msg{'M'}.u8(0).lsn(0x190).str("other").u32(1).u8('2'),
	)
	b := d.Take()
	defer b.Release()
	if len(b.Rows) != 2 || b.Rows[0].Relation.Table != 2 || len(b.Rows[0].Values) != 1 ||
		b.Rows[1].Relation.Table != 3 || string(b.Rows[1].Values[0].Data) != "2" || string(b.Rows[1].Values[1].Data) != "other" {
		t.Errorf("got %s", render(b))
	}
}

func TestRelationIsNewWhenOnlyItsMetadataChanged(t *testing.T) {
	cfg := testConfig
	cfg.Wants = []Wants{{Meta: true}}
	d := NewDecoder(cfg)
	meta := []ColumnMeta{{NotNull: true}, {Default: "'a'::text"}}
	asked := 0
	d.describe = func(rel *Relation) ([]ColumnMeta, error) {
		if asked++; rel.Name != "outbox" {
			t.Errorf("asked about %s", rel.Name)
		}
		return slices.Clone(meta), nil
	}
	announce := relationMsg(outboxOID, "public", "outbox", outboxColumns...)
	decodeAll(t, d, begin(0x200, 7), announce, relationMsg(otherOID, "public", "orders", "id"), insert(outboxOID, "1", "a"), announce, insert(outboxOID, "2", "b"))
	meta[1].Default = "'b'::text"
	decodeAll(t, d, announce, insert(outboxOID, "3", "c"))
	rows := d.Take().Rows
	if rows[0].Relation != rows[1].Relation || rows[1].Relation == rows[2].Relation || rows[2].Relation.Meta[1].Default != "'b'::text" || asked != 3 {
		t.Errorf("asked %d times, metadata %+v", asked, rows[2].Relation.Meta)
	}
	d.describe = func(*Relation) ([]ColumnMeta, error) {
		return nil, &Error{Kind: KindRetry, Op: "look", Err: errors.New("gone")}
	}
	if e, ok := errors.AsType[*Error](d.Decode(announce, 0x300)); !ok || e.Kind != KindRetry {
		t.Errorf("a look-up that failed is %v", e)
	}
}

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
		cfg := config(t, db)
		cfg.Tables = []Table{{"public", "described"}}
		cfg.Wants = []Wants{{Update: true, Delete: true, Truncate: true, Meta: true}}
		db.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, cfg.Slot)
		db.Exec(t, `INSERT INTO described (tenant, sum) VALUES (1, 2.5)`)
		r := read(t, cfg)
		show := func(rel *Relation) string {
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
		expect(t, show(r.stream.Tables()[0]), want)
		next := func() Row {
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
		expect(t, show(next().Relation), want)
		db.Exec(t, `ALTER TABLE described ALTER plain SET DEFAULT 'x', ALTER note DROP NOT NULL`)
		db.Exec(t, `UPDATE described SET tenant = 2`)
		row := next()
		if row.Change == nil || row.Change.Op != Update || string(row.Change.Old[0].Data) != "1" || row.Change.Old[3].Kind != Null || string(row.Values[0].Data) != "2" {
			t.Errorf("update %+v", row.Change)
		}
		want = strings.Replace(want, "plain notnull=false key=0 default=", "plain notnull=false key=0 default='x'::text", 1)
		want = strings.Replace(want, "note notnull=true", "note notnull=false", 1)
		expect(t, show(row.Relation), want)
		db.Exec(t, `DELETE FROM described`)
		if row := next(); row.Change == nil || row.Change.Op != Delete || string(row.Change.Old[0].Data) != "2" || len(row.Values) != 0 {
			t.Errorf("delete %+v", row)
		}
		db.Exec(t, `TRUNCATE described`)
		if row := next(); row.Change == nil || row.Change.Op != Truncate {
			t.Errorf("truncate %+v", row)
		}
	})
}

// Rows that were written under other names and types keep them, whether or not the
// catalog was asked about the table before the stream began. A server that had the
// table in its cache would send the new names, and the old numeric read as text.
func TestPostgresRowsFromBeforeATableChangedKeepTheirShape(t *testing.T) {
	for _, wants := range [][]Wants{nil, {{Meta: true}}} {
		harness.EachPostgres(t, func(t *testing.T, db *harness.Database) {
			t.Parallel()
			db.Exec(t, describedSQL)
			cfg := config(t, db)
			cfg.Tables, cfg.Wants = []Table{{"public", "described"}}, wants
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
				t.Errorf("%s of %+v", renderChanges(b.Rows), rel.Columns)
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

func TestSetupPublishesWhatIsWantedWhereItIsHarmless(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, `CREATE TABLE outbox (id int PRIMARY KEY); CREATE TABLE bare (id int)`)
	for _, c := range []struct {
		tables  []Table
		wants   []Wants
		publish string
		warns   bool
	}{
		{[]Table{{"public", "outbox"}}, nil, "insert", false},
		{[]Table{{"public", "outbox"}}, []Wants{{Update: true, Meta: true}}, "insert, update", false},
		{[]Table{{"public", "outbox"}, {"public", "bare"}}, []Wants{{Update: true}}, "insert", true},
	} {
		cfg := config(t, db)
		cfg.Tables, cfg.Wants = c.tables, c.wants
		report, err := Setup(t.Context(), cfg, SetupOptions{DryRun: true})
		if err != nil {
			t.Fatal(err)
		}
		var sql string
		for _, step := range report.Steps {
			if step.Object == "publication" {
				sql = step.SQL
			}
		}
		if !strings.Contains(sql, "publish = '"+c.publish+"'") {
			t.Errorf("%v: %s", c.wants, sql)
		}
		if warned := strings.Contains(strings.Join(report.Warnings, "\n"), "no replica identity"); warned != c.warns {
			t.Errorf("%v: warnings %q", c.wants, report.Warnings)
		}
	}
}
