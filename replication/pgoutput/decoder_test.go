package pgoutput

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/pgoutput/pgoutputtest"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

var testConfig = Options{Tables: []wal.Table{{Schema: "public", Name: "outbox"}, {Schema: "Odd", Name: "Out\"Box"}}}

func decodeAll(t *testing.T, d *Decoder, messages ...pgoutputtest.Message) {
	t.Helper()
	for i, m := range messages {
		if err := d.Decode(m, wal.LSN(0x100+i)); err != nil {
			t.Fatalf("message %d (%c): %v", i, m[0], err)
		}
	}
}

// render prints a batch with everything that a consumer may rely on.
func render(b *wal.Batch) string {
	var s strings.Builder
	fmt.Fprintf(&s, "batch through=%s transactions=%d foreign=%d other=%d open=%t\n", b.Through, b.Transactions, b.Foreign, b.OtherOps, b.Open)
	for i := range b.Rows {
		r := &b.Rows[i]
		fmt.Fprintf(&s, "  row xid=%d commit=%s lsn=%s #%d %s.%s[%d]", r.Txn.XID, r.Txn.Commit, r.LSN, r.Ordinal, r.Relation.Namespace, r.Relation.Name, r.Relation.Table)
		for j, v := range r.Values {
			fmt.Fprintf(&s, " %s:%c=%q", r.Relation.Columns[j].Name, v.Kind, v.Data)
		}
		s.WriteByte('\n')
	}
	return s.String()
}

func expect(t *testing.T, got, want string) {
	t.Helper()
	if want = strings.TrimPrefix(want, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestBatchSpansTransactionsAndCountsWhatItSkips(t *testing.T) {
	d := NewDecoder(testConfig)
	decodeAll(t, d,
		pgoutputtest.Begin(0x200, 7),
		pgoutputtest.Relation(pgoutputtest.OutboxOID, "public", "outbox", pgoutputtest.OutboxColumns...),
		pgoutputtest.Insert(pgoutputtest.OutboxOID, "1", "a"),
		pgoutputtest.Relation(pgoutputtest.OtherOID, "public", "orders", "id"),
		pgoutputtest.Insert(pgoutputtest.OtherOID, "9"),
		pgoutputtest.Insert(pgoutputtest.OutboxOID, "2", "\x00"),
		pgoutputtest.Commit(0x200, 0x230),
		pgoutputtest.Begin(0x300, 8),
		pgoutputtest.Message{'O'}.LSN(1).Str("elsewhere"),
		pgoutputtest.Message{'Y'}.U32(17000).Str("public").Str("mood"),
		pgoutputtest.Message{'U'}.U32(pgoutputtest.OtherOID).U8('N').Tuple("9"),
		pgoutputtest.Message{'U'}.U32(pgoutputtest.OtherOID).U8('K').Tuple("9").U8('N').U16(1).U8('u'),
		pgoutputtest.Message{'D'}.U32(pgoutputtest.OtherOID).U8('O').Tuple("9"),
		pgoutputtest.Message{'T'}.U32(2).U8(1).U32(pgoutputtest.OtherOID).U32(pgoutputtest.OutboxOID),
		pgoutputtest.Message{'M'}.U8(1).LSN(5).Str("prefix").U32(3).U8('x').U8('y').U8('z'),
		pgoutputtest.Relation(pgoutputtest.OddOID, "Odd", "Out\"Box", "k"),
		pgoutputtest.Insert(pgoutputtest.OddOID, ""),
		pgoutputtest.Commit(0x300, 0x330),
		pgoutputtest.Message{'M'}.U8(0).LSN(5).Str("").U32(0),
	)
	b := d.Take()
	defer b.Release()
	expect(t, render(b), `
batch through=0/330 transactions=2 foreign=1 other=4 open=false
  row xid=7 commit=0/200 lsn=0/102 #1 public.outbox[0] id:t="1" payload:t="a"
  row xid=7 commit=0/200 lsn=0/105 #3 public.outbox[0] id:t="2" payload:n=""
  row xid=8 commit=0/300 lsn=0/110 #1 Odd.Out"Box[1] k:t=""
`)
	if b.Rows[1].Values[1].Data != nil || b.Rows[2].Values[0].Data == nil {
		t.Error("NULL must be nil, and the empty text must not")
	}
	if want := time.Date(2025, 11, 26, 12, 0, 0, 0, time.UTC); !b.Rows[0].Txn.Time.Equal(want) || !b.ThroughTime.Equal(want) {
		t.Errorf("commit time %s, through time %s, want %s", b.Rows[0].Txn.Time, b.ThroughTime, want)
	}
	if b.Rows[0].Txn != b.Rows[1].Txn || b.Rows[1].Txn == b.Rows[2].Txn {
		t.Error("rows share a Txn exactly when they share a transaction")
	}
	if d.Take() != nil {
		t.Error("nothing was decoded since")
	}
}

func TestTransactionThatContinuesKeepsOrdinalsAndHidesItsEnd(t *testing.T) {
	cfg := testConfig
	cfg.MaxRows = 2
	d := NewDecoder(cfg)
	decodeAll(t, d, pgoutputtest.Begin(0x200, 7), pgoutputtest.Relation(pgoutputtest.OutboxOID, "public", "outbox", pgoutputtest.OutboxColumns...), pgoutputtest.Insert(pgoutputtest.OutboxOID, "1", "a"))
	if d.Full() {
		t.Fatal("full after one row of two")
	}
	decodeAll(t, d, pgoutputtest.Insert(pgoutputtest.OutboxOID, "2", "b"))
	if !d.Full() {
		t.Fatal("not full after two rows")
	}
	first := d.Take()
	d.Idle(0x200) // as the server sends inside a long transaction
	decodeAll(t, d, pgoutputtest.Insert(pgoutputtest.OutboxOID, "3", "c"), pgoutputtest.Commit(0x200, 0x230))
	second := d.Take()
	expect(t, render(first)+render(second), `
batch through=0/0 transactions=0 foreign=0 other=0 open=true
  row xid=7 commit=0/200 lsn=0/102 #1 public.outbox[0] id:t="1" payload:t="a"
  row xid=7 commit=0/200 lsn=0/100 #2 public.outbox[0] id:t="2" payload:t="b"
batch through=0/230 transactions=1 foreign=0 other=0 open=false
  row xid=7 commit=0/200 lsn=0/100 #3 public.outbox[0] id:t="3" payload:t="c"
`)
	first.Release()
	if second.Rows[0].Txn.XID != 7 {
		t.Error("the second batch's Txn died with the first")
	}
	second.Release()
}

func TestKeepAliveMovesThroughOnlyBetweenTransactionsAndForward(t *testing.T) {
	d := NewDecoder(testConfig)
	d.Idle(0x150)
	d.Idle(0x140)
	if b := d.Take(); b.Through != 0x150 || !b.ThroughTime.IsZero() || len(b.Rows) != 0 {
		t.Fatalf("got %+v", b)
	}
	d.Idle(0x150)
	if !d.Empty() {
		t.Fatal("a repeated position is no news")
	}
	decodeAll(t, d, pgoutputtest.Begin(0x200, 7))
	d.Idle(0x900)
	if !d.Empty() {
		t.Fatal("a keep-alive inside a transaction moved the position")
	}
	decodeAll(t, d, pgoutputtest.Commit(0x200, 0x230)) // empty, as up to version 14
	if b := d.Take(); b.Through != 0x230 || b.ThroughTime.IsZero() || b.Transactions != 1 {
		t.Fatalf("got %+v", b)
	}
}

func TestRelationKeepsItsPointerWhileItsShapeStays(t *testing.T) {
	d := NewDecoder(testConfig)
	announce := pgoutputtest.Relation(pgoutputtest.OutboxOID, "public", "outbox", pgoutputtest.OutboxColumns...)
	decodeAll(t, d, pgoutputtest.Begin(0x200, 7), announce, pgoutputtest.Insert(pgoutputtest.OutboxOID, "1", "a"), announce, pgoutputtest.Insert(pgoutputtest.OutboxOID, "2", "b"),
		pgoutputtest.Relation(pgoutputtest.OutboxOID, "public", "outbox", "id", "payload", "extra"), pgoutputtest.Insert(pgoutputtest.OutboxOID, "3", "c", "d"))
	rows := d.Take().Rows
	if rows[0].Relation != rows[1].Relation || rows[1].Relation == rows[2].Relation {
		t.Error("the pointer must change exactly with the shape")
	}
}

func TestTypeNamesComeFromTheStreamOrTheCatalog(t *testing.T) {
	d := NewDecoder(testConfig)
	d.Expect(&wal.Relation{OID: pgoutputtest.OutboxOID, Table: 0, Columns: []wal.Column{{Name: "id", Type: 25, TypeName: "text"}}})
	decodeAll(t, d, pgoutputtest.Begin(0x200, 7), pgoutputtest.Message{'Y'}.U32(17000).Str("ext").Str("hstore"),
		pgoutputtest.Message{'R'}.U32(pgoutputtest.OutboxOID).Str("public").Str("outbox").U8('d').U16(2).
			U8(1).Str("id").U32(25).U32(0xffffffff).U8(0).Str("headers").U32(17000).U32(0xffffffff),
		pgoutputtest.Insert(pgoutputtest.OutboxOID, "1", "a=>b"))
	columns := d.Take().Rows[0].Relation.Columns
	if columns[0].TypeName != "text" || columns[1].TypeName != "hstore" || columns[1].TypeMod != -1 {
		t.Errorf("got %+v", columns)
	}
}

func TestDriftIsRaisedByTheFirstInsertOnly(t *testing.T) {
	const leafOID = 16401
	expectBoth := func(d *Decoder) {
		d.Expect(&wal.Relation{OID: pgoutputtest.OutboxOID, Namespace: "public", Name: "outbox", Table: 0})
		d.Expect(&wal.Relation{OID: pgoutputtest.OddOID, Namespace: "Odd", Name: "Out\"Box", Table: 1})
	}
	for name, c := range map[string]struct {
		relation pgoutputtest.Message
		OID      uint32
		want     []string
	}{
		"renamed":         {pgoutputtest.Relation(pgoutputtest.OutboxOID, "public", "outbox_old", "id"), pgoutputtest.OutboxOID, []string{"public.outbox", "16400", `called "public"."outbox_old" at this position, and was "public"."outbox" when the session began`, "renamed"}},
		"moved":           {pgoutputtest.Relation(pgoutputtest.OutboxOID, "attic", "outbox", "id"), pgoutputtest.OutboxOID, []string{`"attic"."outbox"`, `"public"."outbox"`}},
		"replaced":        {pgoutputtest.Relation(pgoutputtest.OtherOID, "public", "outbox", "id"), pgoutputtest.OtherOID, []string{"public.outbox", "16600", "was 16400 when the session began", "replaced"}},
		"names exchanged": {pgoutputtest.Relation(pgoutputtest.OutboxOID, "Odd", "Out\"Box", "id"), pgoutputtest.OutboxOID, []string{"public.outbox", `"Odd"."Out\"Box"`}},
	} {
		t.Run(name, func(t *testing.T) {
			d := NewDecoder(testConfig)
			expectBoth(d)
			decodeAll(t, d, pgoutputtest.Begin(0x200, 7), c.relation)
			err := d.Decode(pgoutputtest.Insert(c.OID, "1"), 0x210)
			var e *fault.Error
			if !errors.As(err, &e) || e.Kind != fault.KindDrift || postgres.Reason(err) != fault.ReasonTableChanged || e.LSN != 0x210 || e.Hint == "" {
				t.Fatalf("got %v", err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not name %s", err, want)
				}
			}
			if again := d.Decode(pgoutputtest.Commit(0x200, 0x230), 0x200); !errors.Is(again, err) {
				t.Errorf("decoding went on after drift: %v", again)
			}
		})
	}
	// The way that the hint of a replaced table names.
	t.Run("replaced, and both are configured", func(t *testing.T) {
		cfg := testConfig
		cfg.Tables, cfg.WALEnd = []wal.Table{{Schema: "public", Name: "outbox"}, {Schema: "public", Name: "outbox_old"}}, 0x1000
		d := NewDecoder(cfg)
		d.Expect(&wal.Relation{OID: pgoutputtest.OtherOID, Namespace: "public", Name: "outbox", Table: 0})
		d.Expect(&wal.Relation{OID: pgoutputtest.OutboxOID, Namespace: "public", Name: "outbox_old", Table: 1})
		decodeAll(t, d, pgoutputtest.Begin(0x200, 7), pgoutputtest.Relation(pgoutputtest.OutboxOID, "public", "outbox", "id"), pgoutputtest.Insert(pgoutputtest.OutboxOID, "1"), pgoutputtest.Commit(0x200, 0x230),
			pgoutputtest.Begin(0x300, 8), pgoutputtest.Relation(pgoutputtest.OtherOID, "public", "outbox", "id"), pgoutputtest.Insert(pgoutputtest.OtherOID, "2"), pgoutputtest.Commit(0x300, 0x330))
		if b := d.Take(); len(b.Rows) != 2 || b.Rows[0].Relation.Table != 1 || b.Rows[1].Relation.Table != 0 {
			t.Errorf("got %s", render(b))
		}
	})
	t.Run("partition through its root", func(t *testing.T) {
		d := NewDecoder(testConfig)
		expectBoth(d)
		decodeAll(t, d, pgoutputtest.Begin(0x200, 7), pgoutputtest.Relation(leafOID, "public", "outbox_2026", pgoutputtest.OutboxColumns...),
			pgoutputtest.Relation(pgoutputtest.OutboxOID, "public", "outbox", pgoutputtest.OutboxColumns...), pgoutputtest.Insert(pgoutputtest.OutboxOID, "1", "a"))
		if b := d.Take(); len(b.Rows) != 1 || b.Rows[0].Relation.Table != 0 {
			t.Errorf("got %s", render(b))
		}
	})
}

func TestDecoderRefusesWithThePosition(t *testing.T) {
	announce := pgoutputtest.Relation(pgoutputtest.OutboxOID, "public", "outbox", pgoutputtest.OutboxColumns...)
	foreign := pgoutputtest.Relation(pgoutputtest.OtherOID, "public", "orders", "id")
	open := []pgoutputtest.Message{pgoutputtest.Begin(0x200, 7), announce, foreign}
	for name, c := range map[string]struct {
		before []pgoutputtest.Message
		bad    pgoutputtest.Message
	}{
		"empty message":                 {open, pgoutputtest.Message{}},
		"unknown type":                  {open, pgoutputtest.Message{'Z'}},
		"stream start of protocol 2":    {open, pgoutputtest.Message{'S'}.U32(7).U8(1)},
		"prepare of protocol 3":         {open, pgoutputtest.Message{'P'}.U8(0)},
		"begin inside a transaction":    {open, pgoutputtest.Begin(0x300, 8)},
		"begin that goes back":          {[]pgoutputtest.Message{pgoutputtest.Begin(0x200, 7), pgoutputtest.Commit(0x200, 0x230)}, pgoutputtest.Begin(0x200, 8)},
		"short begin":                   {nil, pgoutputtest.Begin(0x200, 7)[:20]},
		"long begin":                    {nil, pgoutputtest.Begin(0x200, 7).U8(0)},
		"commit outside a transaction":  {nil, pgoutputtest.Commit(0x200, 0x230)},
		"commit of another transaction": {open, pgoutputtest.Commit(0x201, 0x230)},
		"commit that ends at its start": {open, pgoutputtest.Commit(0x200, 0x200)},
		"commit with flags":             {open, pgoutputtest.Message{'C'}.U8(1).LSN(0x200).LSN(0x230).U64(0)},
		"long commit":                   {open, pgoutputtest.Commit(0x200, 0x230).U8(0)},
		"insert outside a transaction":  {[]pgoutputtest.Message{pgoutputtest.Begin(0x200, 7), announce, pgoutputtest.Commit(0x200, 0x230)}, pgoutputtest.Insert(pgoutputtest.OutboxOID, "1", "a")},
		"insert into the unknown":       {open, pgoutputtest.Insert(4711, "1", "a")},
		"insert of an old tuple":        {open, pgoutputtest.Message{'I'}.U32(pgoutputtest.OutboxOID).U8('K').Tuple("1", "a")},
		"insert with a column less":     {open, pgoutputtest.Insert(pgoutputtest.OutboxOID, "1")},
		"insert with a column more":     {open, pgoutputtest.Insert(pgoutputtest.OutboxOID, "1", "a", "b")},
		"insert with trailing bytes":    {open, pgoutputtest.Insert(pgoutputtest.OutboxOID, "1", "a").U8(0)},
		"insert cut in a value":         {open, pgoutputtest.Insert(pgoutputtest.OutboxOID, "1", "abc")[:21]},
		"insert cut before a length":    {open, pgoutputtest.Insert(pgoutputtest.OutboxOID, "1", "abc")[:15]},
		"insert cut in a length":        {open, pgoutputtest.Message{'I'}.U32(pgoutputtest.OutboxOID).U8('N').U16(2).U8('n').U8('t').U16(0)},
		"insert cut before a column":    {open, pgoutputtest.Message{'I'}.U32(pgoutputtest.OutboxOID).U8('N').U16(2).U8('n')},
		"insert with a negative length": {open, pgoutputtest.Message{'I'}.U32(pgoutputtest.OutboxOID).U8('N').U16(2).U8('n').U8('t').U32(0xffffffff)},
		"insert with unchanged TOAST":   {open, pgoutputtest.Message{'I'}.U32(pgoutputtest.OutboxOID).U8('N').U16(2).U8('n').U8('u')},
		"insert with an unknown kind":   {open, pgoutputtest.Message{'I'}.U32(pgoutputtest.OutboxOID).U8('N').U16(2).U8('n').U8('q')},
		"short insert":                  {open, pgoutputtest.Message{'I'}.U32(pgoutputtest.OutboxOID)},
		"foreign insert, column more":   {open, pgoutputtest.Insert(pgoutputtest.OtherOID, "1", "2")},
		"foreign insert, cut":           {open, pgoutputtest.Insert(pgoutputtest.OtherOID, "12")[:11]},
		"foreign insert, trailing":      {open, pgoutputtest.Insert(pgoutputtest.OtherOID, "12").U8(1)},
		"update without a new tuple":    {open, pgoutputtest.Message{'U'}.U32(pgoutputtest.OtherOID).U8('K').Tuple("1")},
		"update outside a transaction":  {[]pgoutputtest.Message{pgoutputtest.Begin(0x200, 7), foreign, pgoutputtest.Commit(0x200, 0x230)}, pgoutputtest.Message{'U'}.U32(pgoutputtest.OtherOID).U8('N').Tuple("1")},
		"delete of a new tuple":         {open, pgoutputtest.Message{'D'}.U32(pgoutputtest.OtherOID).U8('N').Tuple("1")},
		"truncate of too many":          {open, pgoutputtest.Message{'T'}.U32(3).U8(0).U32(pgoutputtest.OtherOID)},
		"truncate of a negative count":  {open, pgoutputtest.Message{'T'}.U32(0xffffffff).U8(0)},
		"relation with a column less":   {open, announce[:len(announce)-3]},
		"relation with trailing bytes":  {open, append(announce[:len(announce):len(announce)], 0)},
		"relation of a false count":     {open, pgoutputtest.Message{'R'}.U32(1).Str("a").Str("b").U8('d').U16(65535)},
		"relation of a false identity":  {open, pgoutputtest.Message{'R'}.U32(1).Str("a").Str("b").U8('x').U16(0)},
		"type without an end":           {open, pgoutputtest.Message{'Y'}.U32(1).U8('a')},
		"origin outside a transaction":  {nil, pgoutputtest.Message{'O'}.LSN(1).Str("x")},
		"message longer than it is":     {open, pgoutputtest.Message{'M'}.U8(0).LSN(1).Str("p").U32(9).U8(1)},
	} {
		t.Run(name, func(t *testing.T) {
			d := NewDecoder(testConfig)
			decodeAll(t, d, c.before...)
			if d.InTransaction() {
				decodeAll(t, d, pgoutputtest.Insert(pgoutputtest.OutboxOID, "0", "secret"))
			}
			rows, inTxn := 0, d.InTransaction()
			err := d.Decode(c.bad, 0x2222)
			var e *fault.Error
			if !errors.As(err, &e) || e.Kind != fault.KindProtocol || e.LSN != 0x2222 || e.Hint == "" {
				t.Fatalf("got %v", err)
			}
			if b := d.Take(); b != nil {
				rows = len(b.Rows)
			}
			if rows != pgoutputtest.Bit(inTxn) {
				t.Errorf("%d rows before the error could be taken", rows)
			}
			if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "abc") {
				t.Errorf("payload in %q", err)
			}
		})
	}
}

func TestAnUnchangedValueIsNamedByItsColumn(t *testing.T) {
	d := NewDecoder(testConfig)
	decodeAll(t, d, pgoutputtest.Begin(0x200, 7), pgoutputtest.Relation(pgoutputtest.OutboxOID, "public", "outbox", pgoutputtest.OutboxColumns...))
	err := d.Decode(pgoutputtest.Message{'I'}.U32(pgoutputtest.OutboxOID).U8('N').U16(2).U8('n').U8('u'), 0x210)
	if err == nil || !strings.Contains(err.Error(), "column 2 of an insert") {
		t.Errorf("got %v", err)
	}
}

// A table may have no columns at all.
func TestARowWithoutColumnsIsCounted(t *testing.T) {
	d := NewDecoder(testConfig)
	decodeAll(t, d, pgoutputtest.Begin(0x200, 7), pgoutputtest.Relation(pgoutputtest.OtherOID, "public", "ticks"), pgoutputtest.Insert(pgoutputtest.OtherOID), pgoutputtest.Commit(0x200, 0x230))
	if b := d.Take(); b.Foreign != 1 {
		t.Errorf("got %s", render(b))
	}
}

func TestACommitWhereAKeepAliveWasIsNoNews(t *testing.T) {
	d := NewDecoder(testConfig)
	d.Idle(0x230)
	d.Take().Release()
	decodeAll(t, d, pgoutputtest.Begin(0x200, 7), pgoutputtest.Commit(0x200, 0x230))
	if b := d.Take(); b.Through != 0 || !b.ThroughTime.IsZero() {
		t.Errorf("through %s at %s, which was given before", b.Through, b.ThroughTime)
	}
}

func TestABatchIsFullWithTheBytesItMayHave(t *testing.T) {
	row := func(limit int) *Decoder {
		cfg := testConfig
		cfg.MaxBytes = limit
		d := NewDecoder(cfg)
		decodeAll(t, d, pgoutputtest.Begin(0x200, 7), pgoutputtest.Relation(pgoutputtest.OutboxOID, "public", "outbox", pgoutputtest.OutboxColumns...), pgoutputtest.Insert(pgoutputtest.OutboxOID, "1", "a"))
		return d
	}
	one := row(1 << 20).Take().Bytes
	for limit, full := range map[int]bool{one - 1: true, one: true, one + 1: false} {
		if got := row(limit).Full(); got != full {
			t.Errorf("a row of %d bytes fills a batch of %d: %t", one, limit, got)
		}
	}
}

func TestErrorWithoutPositionNamesTheTransaction(t *testing.T) {
	d := NewDecoder(testConfig)
	decodeAll(t, d, pgoutputtest.Begin(0x200, 7))
	var e *fault.Error
	if err := d.Decode(pgoutputtest.Message{'R'}, 0); !errors.As(err, &e) || e.LSN != 0x200 {
		t.Errorf("got %v", err)
	}
}

func TestOversizedRowsAreWholeAndCounted(t *testing.T) {
	cfg := testConfig
	cfg.MaxBytes = 1 << 10
	d := NewDecoder(cfg)
	big := strings.Repeat("x", 5<<20)
	decodeAll(t, d, pgoutputtest.Begin(0x200, 7), pgoutputtest.Relation(pgoutputtest.OutboxOID, "public", "outbox", pgoutputtest.OutboxColumns...),
		pgoutputtest.Insert(pgoutputtest.OutboxOID, "1", "small"), pgoutputtest.Insert(pgoutputtest.OutboxOID, "2", big))
	if !d.Full() {
		t.Fatal("not full")
	}
	b := d.Take()
	defer b.Release()
	if got := b.Rows[1].Values[1].Data; string(got) != big {
		t.Errorf("large value has %d bytes", len(got))
	}
	if string(b.Rows[0].Values[1].Data) != "small" || b.Bytes < len(big) {
		t.Errorf("small is %q, bytes %d", b.Rows[0].Values[1].Data, b.Bytes)
	}
}

func TestRowsSurviveTheMessageAndTheirNeighbours(t *testing.T) {
	d := NewDecoder(testConfig)
	m := pgoutputtest.Insert(pgoutputtest.OutboxOID, "1", "payload")
	decodeAll(t, d, pgoutputtest.Begin(0x200, 7), pgoutputtest.Relation(pgoutputtest.OutboxOID, "public", "outbox", pgoutputtest.OutboxColumns...), m)
	clear(m) // as the next read does
	decodeAll(t, d, pgoutputtest.Insert(pgoutputtest.OutboxOID, "2", "other"))
	rows := d.Take().Rows
	v := rows[0].Values[1].Data
	_ = append(v, "overflow"...)
	if !bytes.Equal(v, []byte("payload")) || string(rows[1].Values[0].Data) != "2" {
		t.Errorf("got %q and %q", v, rows[1].Values[0].Data)
	}
}

// Batches that are released in any order share slabs; none may see another's rows
// or get memory that is still in use.
func TestSlabsAreReusedOnlyWhenEveryBatchLetGo(t *testing.T) {
	cfg := testConfig
	cfg.MaxRows, cfg.MaxBytes = 8, 4<<10
	d := NewDecoder(cfg)
	decodeAll(t, d, pgoutputtest.Begin(0x200, 7), pgoutputtest.Relation(pgoutputtest.OutboxOID, "public", "outbox", pgoutputtest.OutboxColumns...))
	type held struct {
		b     *wal.Batch
		first int
	}
	var waiting []held
	n := 0
	check := func(h held) {
		for i := range h.b.Rows {
			want := fmt.Sprintf("payload of %d", h.first+i)
			if got := string(h.b.Rows[i].Values[1].Data); got != want || h.b.Rows[i].Txn.XID != 7 {
				t.Fatalf("got %q, want %q", got, want)
			}
		}
	}
	for step := range 3000 {
		first, size := n, 1+step%5
		for range size {
			decodeAll(t, d, pgoutputtest.Insert(pgoutputtest.OutboxOID, "1", fmt.Sprintf("payload of %d", n)))
			n++
		}
		waiting = append(waiting, held{d.Take(), first})
		if step%7 == 0 {
			for len(waiting) > 3 {
				i := step % len(waiting)
				check(waiting[i])
				waiting[i].b.Release()
				waiting = append(waiting[:i], waiting[i+1:]...)
			}
		}
	}
	for _, h := range waiting {
		check(h)
		h.b.Release()
	}
}

func TestTablesWiderThanAChunkDecode(t *testing.T) {
	cfg := testConfig
	cfg.MaxRows = 2
	d := NewDecoder(cfg)
	names, values := make([]string, 1600), make([]string, 1600)
	for i := range names {
		names[i], values[i] = fmt.Sprint("c", i), fmt.Sprint(i)
	}
	decodeAll(t, d, pgoutputtest.Begin(0x200, 7), pgoutputtest.Relation(pgoutputtest.OutboxOID, "public", "outbox", names...), pgoutputtest.Insert(pgoutputtest.OutboxOID, values...), pgoutputtest.Insert(pgoutputtest.OutboxOID, values...))
	if !d.Full() {
		t.Error("not full with its two rows")
	}
	b := d.Take()
	defer b.Release()
	for i, row := range b.Rows {
		if first, last := string(row.Values[0].Data), string(row.Values[1599].Data); first != "0" || last != "1599" {
			t.Errorf("row %d begins with %q and ends with %q", i, first, last)
		}
	}
	if want := 2 * 1600 * wal.ValueSize; b.Bytes < want {
		t.Errorf("%d bytes are counted, the values alone take %d", b.Bytes, want)
	}
}

func TestDecodingAllocatesLessThanOnceInTenRows(t *testing.T) {
	d := NewDecoder(testConfig)
	row := pgoutputtest.Insert(pgoutputtest.OutboxOID, "1", strings.Repeat("payload ", 40))
	decodeAll(t, d, pgoutputtest.Begin(0x200, 7), pgoutputtest.Relation(pgoutputtest.OutboxOID, "public", "outbox", pgoutputtest.OutboxColumns...))
	const rows = 10_000
	got := testing.AllocsPerRun(5, func() {
		for n := range rows {
			if err := d.Decode(row, 0x210); err != nil {
				t.Fatal(err)
			}
			if d.Full() || n%50 == 49 { // as single reads of a quiet stream
				d.Take().Release()
			}
		}
	})
	if got > rows/10 {
		t.Errorf("%.0f allocations for %d rows", got, rows)
	}
}

func TestConfiguredMessagesAreRows(t *testing.T) {
	cfg := testConfig
	cfg.Messages = []string{"outbox"}
	d := NewDecoder(cfg)
	body := func(flags byte, at wal.LSN, prefix, text string) pgoutputtest.Message {
		return append(pgoutputtest.Message{'M'}.U8(flags).LSN(at).Str(prefix).U32(uint32(len(text))), text...)
	}
	decodeAll(t, d,
		pgoutputtest.Begin(0x200, 7),
		pgoutputtest.Relation(pgoutputtest.OutboxOID, "public", "outbox", pgoutputtest.OutboxColumns...),
		pgoutputtest.Insert(pgoutputtest.OutboxOID, "1", "a"),
		body(1, 0x1f0, "outbox", "{}"),
		body(1, 0x1f8, "heartbeat", "x"),
		pgoutputtest.Commit(0x200, 0x230),
		body(0, 0x240, "outbox", "[]"),
		pgoutputtest.Begin(0x300, 8),
		pgoutputtest.Insert(pgoutputtest.OutboxOID, "2", "b"),
		pgoutputtest.Commit(0x300, 0x330),
	)
	b := d.Take()
	defer b.Release()
	expect(t, render(b), fmt.Sprintf(`
batch through=0/330 transactions=2 foreign=0 other=0 open=false
  row xid=7 commit=0/200 lsn=0/102 #1 public.outbox[0] id:t="1" payload:t="a"
  row xid=7 commit=0/200 lsn=0/103 #2 message.outbox[%[1]d] body:t="{}"
  row xid=0 commit=0/240 lsn=0/106 #1 message.outbox[%[1]d] body:t="[]"
  row xid=8 commit=0/300 lsn=0/108 #1 public.outbox[0] id:t="2" payload:t="b"
`, len(testConfig.Tables)))
	for name, m := range map[string]pgoutputtest.Message{
		"transactional, outside a transaction": body(1, 0x400, "outbox", "{}"),
	} {
		if err := d.Decode(m, 0x400); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestMessageOutsideATransactionIsNotConfirmedByItself(t *testing.T) {
	cfg := testConfig
	cfg.Messages = []string{"outbox"}
	d := NewDecoder(cfg)
	decodeAll(t, d, append(pgoutputtest.Message{'M'}.U8(0).LSN(0x240).Str("outbox").U32(2), "{}"...))
	if b := d.Take(); b.Through != 0 || len(b.Rows) != 1 {
		t.Errorf("through %s, %d rows", b.Through, len(b.Rows))
	}
	d.Idle(0x300)
	if b := d.Take(); b.Through != 0x300 {
		t.Errorf("through %s after the keep-alive", b.Through)
	}
}

// A table that was renamed, and whose new name the configuration has, or that was
// renamed back: rows from under the other name lie in the WAL between.
func TestRowsFromBeforeTheOpeningAreKnownByOID(t *testing.T) {
	d := NewDecoder(testConfig)
	d.Expect(&wal.Relation{OID: pgoutputtest.OutboxOID, Namespace: "public", Name: "outbox", Table: 0})
	d.walEnd = 0x250
	decodeAll(t, d,
		pgoutputtest.Begin(0x200, 7),
		pgoutputtest.Relation(pgoutputtest.OutboxOID, "public", "outbox_old", pgoutputtest.OutboxColumns...),
		pgoutputtest.Insert(pgoutputtest.OutboxOID, "1", "a"),
		pgoutputtest.Commit(0x200, 0x230),
		pgoutputtest.Begin(0x300, 8),
		pgoutputtest.Relation(pgoutputtest.OutboxOID, "public", "outbox_new", pgoutputtest.OutboxColumns...),
	)
	if b := d.Take(); len(b.Rows) != 1 || b.Rows[0].Relation.Table != 0 {
		t.Errorf("%d rows", len(b.Rows))
	}
	if err := d.Decode(pgoutputtest.Insert(pgoutputtest.OutboxOID, "2", "b"), 0x310); postgres.KindOf(err) != fault.KindDrift {
		t.Errorf("a rename under our eyes: %v", err)
	}
}
