package replication

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
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
