package pgoutput

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/pgoutput/pgoutputtest"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// renderChanges prints rows with what kind of change they are.
func renderChanges(rows []wal.Row) string {
	var s strings.Builder
	show := func(values []wal.Value) {
		for i, v := range values {
			if i > 0 {
				s.WriteByte(',')
			}
			if v.Kind == wal.Text {
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
	changes := []pgoutputtest.Message{
		pgoutputtest.Begin(0x200, 7),
		pgoutputtest.Relation(pgoutputtest.OutboxOID, "public", "outbox", pgoutputtest.OutboxColumns...),
		pgoutputtest.Relation(pgoutputtest.OddOID, "Odd", "Out\"Box", "k"),
		pgoutputtest.Relation(pgoutputtest.OtherOID, "public", "orders", "id"),
		pgoutputtest.Insert(pgoutputtest.OutboxOID, "1", "a"),
		pgoutputtest.Message{'U'}.U32(pgoutputtest.OutboxOID).U8('N').U16(2).Text('t', "1").U8('u'),
		pgoutputtest.Message{'U'}.U32(pgoutputtest.OutboxOID).U8('K').U16(2).Text('t', "1").U8('n').U8('N').Tuple("2", "b"),
		pgoutputtest.Message{'U'}.U32(pgoutputtest.OutboxOID).U8('O').Tuple("2", "b").U8('N').U16(2).Text('t', "2").U8('u'),
		pgoutputtest.Message{'D'}.U32(pgoutputtest.OutboxOID).U8('K').U16(2).Text('t', "2").U8('n'),
		pgoutputtest.Message{'U'}.U32(pgoutputtest.OddOID).U8('N').Tuple("x"),
		pgoutputtest.Message{'D'}.U32(pgoutputtest.OtherOID).U8('O').Tuple("9"),
		pgoutputtest.Message{'T'}.U32(2).U8(0).U32(pgoutputtest.OtherOID).U32(pgoutputtest.OutboxOID),
		pgoutputtest.Commit(0x200, 0x230),
	}
	for name, c := range map[string]struct {
		wants []wal.Wants
		want  string
		other int
	}{
		"nobody": {nil, "#1 outbox insert 1,a\n", 7},
		"updates": {[]wal.Wants{{Update: true}}, "#1 outbox insert 1,a\n#2 outbox U whole=false old= new=1,u\n" +
			"#3 outbox U whole=false old=1,n new=2,b\n#4 outbox U whole=true old=2,b new=2,b\n", 4},
		"deletes":   {[]wal.Wants{{Delete: true}}, "#1 outbox insert 1,a\n#2 outbox D whole=false old=2,n new=\n", 6},
		"truncates": {[]wal.Wants{{Truncate: true}}, "#1 outbox insert 1,a\n#2 outbox T whole=false old= new=\n", 6},
		"another":   {[]wal.Wants{{}, {Update: true}}, "#1 outbox insert 1,a\n#2 Out\"Box U whole=false old= new=x\n", 6},
		"commits":   {[]wal.Wants{{Commit: true}}, "#1 outbox insert 1,a\n#2 outbox C whole=false old= new=\n", 7},
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
	cfg.Wants = []wal.Wants{{Commit: true}}
	d := NewDecoder(cfg)
	decodeAll(t, d, pgoutputtest.Begin(0x200, 7), pgoutputtest.Relation(pgoutputtest.OutboxOID, "public", "outbox", pgoutputtest.OutboxColumns...), pgoutputtest.Commit(0x200, 0x230))
	if b := d.Take(); len(b.Rows) != 0 {
		t.Errorf("got %s", renderChanges(b.Rows))
	}
}

func TestAnyPrefixTakesWhatNobodyNamed(t *testing.T) {
	cfg := testConfig
	cfg.Messages = []string{"mine", wal.AnyPrefix}
	d := NewDecoder(cfg)
	decodeAll(t, d,
		pgoutputtest.Message{'M'}.U8(0).LSN(0x180).Str("mine").U32(1).U8('1'),
		pgoutputtest.Message{'M'}.U8(0).LSN(0x190).Str("other").U32(1).U8('2'),
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
	cfg.Wants = []wal.Wants{{Meta: true}}
	d := NewDecoder(cfg)
	meta := []wal.ColumnMeta{{NotNull: true}, {Default: "'a'::text"}}
	asked := 0
	d.describe = func(rel *wal.Relation) ([]wal.ColumnMeta, error) {
		if asked++; rel.Name != "outbox" {
			t.Errorf("asked about %s", rel.Name)
		}
		return slices.Clone(meta), nil
	}
	announce := pgoutputtest.Relation(pgoutputtest.OutboxOID, "public", "outbox", pgoutputtest.OutboxColumns...)
	decodeAll(t, d, pgoutputtest.Begin(0x200, 7), announce, pgoutputtest.Relation(pgoutputtest.OtherOID, "public", "orders", "id"), pgoutputtest.Insert(pgoutputtest.OutboxOID, "1", "a"), announce, pgoutputtest.Insert(pgoutputtest.OutboxOID, "2", "b"))
	meta[1].Default = "'b'::text"
	decodeAll(t, d, announce, pgoutputtest.Insert(pgoutputtest.OutboxOID, "3", "c"))
	rows := d.Take().Rows
	if rows[0].Relation != rows[1].Relation || rows[1].Relation == rows[2].Relation || rows[2].Relation.Meta[1].Default != "'b'::text" || asked != 3 {
		t.Errorf("asked %d times, metadata %+v", asked, rows[2].Relation.Meta)
	}
	d.describe = func(*wal.Relation) ([]wal.ColumnMeta, error) {
		return nil, &fault.Error{Kind: fault.KindRetry, Op: "look", Err: errors.New("gone")}
	}
	if e, ok := errors.AsType[*fault.Error](d.Decode(announce, 0x300)); !ok || e.Kind != fault.KindRetry {
		t.Errorf("a look-up that failed is %v", e)
	}
}
