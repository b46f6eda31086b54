package buckets

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Each byte is in one bucket, whatever their number, and in the one that the condition of SQL has.
func TestCondition_HasEachByteOnce(t *testing.T) {
	for n := 1; n <= Most; n++ {
		next := 0
		for bucket := range n {
			var first, last int
			text := Key{Column: "k"}.Condition(bucket, n)
			if _, err := fmt.Sscanf(text[strings.LastIndex(text, "BETWEEN"):], "BETWEEN %d AND %d", &first, &last); err != nil {
				t.Fatal(err)
			}
			if first != next || last < first || first*n/Most != bucket || last*n/Most != bucket {
				t.Fatalf("bucket %d of %d is %d to %d, after %d", bucket, n, first, last, next)
			}
			next = last + 1
		}
		if next != Most {
			t.Fatalf("%d buckets end at %d", n, next)
		}
	}
}

func TestSnapshot_SeesWhatHadCommitted(t *testing.T) {
	const epoch = 3 << 32
	for name, tt := range map[string]struct {
		text string
		sees map[uint32]bool
	}{
		"none open":          {"730:730:", map[uint32]bool{729: true, 730: false, 3: true, 1 << 30: false}},
		"some open":          {"730:740:730,735", map[uint32]bool{729: true, 730: false, 731: true, 735: false, 739: true, 740: false}},
		"of a later epoch":   {fmt.Sprintf("%d:%d:%d", epoch+10, epoch+20, epoch+10), map[uint32]bool{10: false, 11: true, 20: false, 9: true, 1<<32 - 1: true}},
		"about a new epoch":  {fmt.Sprintf("%d:%d:%d", epoch-5, epoch+5, epoch-5), map[uint32]bool{1<<32 - 6: true, 1<<32 - 5: false, 1<<32 - 1: true, 4: true, 5: false}},
		"of a slot":          {"731:729:", map[uint32]bool{728: true, 729: true, 730: true, 731: false, 732: false}},
		"of the first epoch": {"10:12:", map[uint32]bool{9: true, 12: false, 1<<32 - 1: false}},
	} {
		s, err := ParseSnapshot(tt.text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for xid, want := range tt.sees {
			if s.Sees(xid) != want {
				t.Errorf("%s: sees %d: %t", name, xid, !want)
			}
		}
	}
	var none Snapshot
	for _, xid := range []uint32{3, 1 << 20, 1<<31 - 1, 1 << 31, 1<<32 - 1} {
		if none.Sees(xid) {
			t.Errorf("no snapshot sees %d", xid)
		}
	}
}

func TestParseSnapshot_RefusesOtherTexts(t *testing.T) {
	for _, text := range []string{"", "730", "730:740", "730:740:a", "a:740:", "0:1:", "730:740:735,", "730:740::", "-1:2:"} {
		if s, err := ParseSnapshot(text); err == nil {
			t.Errorf("%q is %+v", text, s)
		}
	}
}

func FuzzParseSnapshot(f *testing.F) {
	for _, text := range []string{"730:740:730,735", "1:1:", "18446744073709551615:18446744073709551615:", "a:b:c"} {
		f.Add(text, uint32(731))
	}
	f.Fuzz(func(t *testing.T, text string, xid uint32) {
		s, err := ParseSnapshot(text)
		if err == nil && slices.Contains(s.open, uint64(xid)) && s.max>>32 == 0 && s.min <= uint64(xid) && s.Sees(xid) {
			t.Errorf("%q sees %d, which is open", text, xid)
		}
	})
}

var outbox = &wal.Relation{Namespace: "public", Name: "outbox", Columns: []wal.Column{{Name: "id", Type: 20}, {Name: "key", Type: 25}}}

// keys has a key for each of two buckets.
func keys(t *testing.T) [2]string {
	t.Helper()
	var found [2]string
	f := Filter{Keys: []Key{{Column: "key"}}, Buckets: 2}
	for n := range 100 {
		key := fmt.Sprint(n)
		b, err := f.Bucket(row(key, 1))
		if err != nil {
			t.Fatal(err)
		}
		found[b] = key
	}
	return found
}

func row(key string, xid uint32) *wal.Row {
	return &wal.Row{Txn: &wal.Txn{XID: xid, Commit: wal.LSN(100 * xid), End: wal.LSN(100*xid + 8), Time: time.Unix(1, 0)}, Relation: outbox, Values: []wal.Value{{Kind: wal.Text, Data: []byte("1")}, {Kind: wal.Text, Data: []byte(key)}}}
}

func TestFilter_LeavesOutWhatComesFromTheTable(t *testing.T) {
	key := keys(t)
	seen, err := ParseSnapshot("10:20:12")
	if err != nil {
		t.Fatal(err)
	}
	other := &wal.Relation{Namespace: "public", Name: "other", Table: 1}
	b := &wal.Batch{Through: 500, Rows: []wal.Row{
		*row(key[0], 11), // done, and in the snapshot
		*row(key[0], 12), // done, and committed after it
		*row(key[1], 12), // pending
		*row(key[1], 12),
		*row(key[1], 30),
		{Txn: &wal.Txn{XID: 31}, Relation: other}, // not divided
	}}
	f := Filter{Keys: []Key{{Column: "key"}}, Buckets: 2, Next: 1, Taken: seen, Streamed: Streamed{Seen: Txn{Commit: 1900}}}
	if err := f.Apply(b, new(Txn)); err != nil {
		t.Fatal(err)
	}
	if len(b.Rows) != 2 || b.Rows[0].Txn.XID != 12 || b.Rows[1].Relation != other || b.Through != 500 {
		t.Errorf("left: %+v", b.Rows)
	}
	if !slices.Equal(f.LeftOut, []uint32{12, 30}) {
		t.Errorf("left out: %v", f.LeftOut)
	}
	later, err := ParseSnapshot("20:29:")
	if err != nil {
		t.Fatal(err)
	}
	if f.Forget(&later); !slices.Equal(f.LeftOut, []uint32{30}) {
		t.Errorf("still to be seen: %v", f.LeftOut)
	}
}

// Of a bucket that was done before the last one everything that still comes is sent.
func TestFilter_SendsWhatEarlierSnapshotsHaveNot(t *testing.T) {
	key := keys(t)
	seen, err := ParseSnapshot("10:20:")
	if err != nil {
		t.Fatal(err)
	}
	b := &wal.Batch{Rows: []wal.Row{*row(key[0], 15), *row(key[1], 15)}}
	f := Filter{Keys: []Key{{Column: "key"}}, Buckets: 2, Next: 2, Taken: seen, Streamed: Streamed{Seen: Txn{Commit: 1900}}}
	if err := f.Apply(b, new(Txn)); err != nil {
		t.Fatal(err)
	}
	if len(b.Rows) != 1 || string(b.Rows[0].Values[1].Data) != key[0] {
		t.Errorf("left: %+v", b.Rows)
	}
}

func TestFilter_RefusesATableWithoutItsKey(t *testing.T) {
	b := &wal.Batch{Rows: []wal.Row{*row("1", 15)}}
	f := Filter{Keys: []Key{{Column: "gone"}}, Buckets: 2}
	if err := f.Apply(b, new(Txn)); err == nil || !strings.Contains(err.Error(), `table public.outbox has no column "gone" any more`) {
		t.Error(err)
	}
}

// A batch that ends inside a transaction, of which no row is left, has no open row.
func TestFilter_LeavesNoOpenRowOfATransactionThatIsLeftOut(t *testing.T) {
	key := keys(t)
	open := row(key[1], 12)
	open.Txn.End = 0
	b := &wal.Batch{Open: true, Rows: []wal.Row{*row(key[0], 11), *open}}
	f := Filter{Keys: []Key{{Column: "key"}}, Buckets: 2, Next: 1}
	if err := f.Apply(b, new(Txn)); err != nil {
		t.Fatal(err)
	}
	if len(b.Rows) != 1 || b.OpenRows() != 0 {
		t.Errorf("%d rows, %d open", len(b.Rows), b.OpenRows())
	}
}

// Behind the last transaction that the snapshot has, an id that it sees is that of another history's transaction.
func TestFilter_TrustsASnapshotUpToItsLastTransaction(t *testing.T) {
	key := keys(t)
	seen, err := ParseSnapshot("20:20:")
	if err != nil {
		t.Fatal(err)
	}
	f := Filter{Keys: []Key{{Column: "key"}}, Buckets: 2, Next: 1, Taken: seen, Streamed: Streamed{Seen: Txn{Commit: 1100}}}
	b := &wal.Batch{Rows: []wal.Row{*row(key[0], 11), *row(key[0], 12)}}
	if err := f.Apply(b, new(Txn)); err != nil {
		t.Fatal(err)
	}
	if len(b.Rows) != 1 || b.Rows[0].Txn.XID != 12 {
		t.Errorf("left: %+v", b.Rows)
	}
}

func TestFilter_NotesTheLastTransactionOfTheTables(t *testing.T) {
	key := keys(t)
	f := Filter{Keys: []Key{{Column: "key"}}, Buckets: 2, Next: 1}
	other := row(key[0], 14)
	other.Relation = &wal.Relation{Namespace: "public", Name: "other", Table: 1}
	var last Txn
	if err := f.Apply(&wal.Batch{Rows: []wal.Row{*row(key[0], 11), *row(key[1], 12), *other}}, &last); err != nil {
		t.Fatal(err)
	}
	if want := (Txn{Commit: 1200, XID: 12, Time: time.Unix(1, 0).UTC()}); last != want {
		t.Errorf("last %+v, want %+v", last, want)
	}
}

func TestFilter_LateIsWhatTheSnapshotOfTheBucketLacks(t *testing.T) {
	key := keys(t)
	taken, err := ParseSnapshot("14:20:14")
	if err != nil {
		t.Fatal(err)
	}
	f := Filter{Keys: []Key{{Column: "key"}}, Buckets: 2, Next: 1, Streamed: Streamed{Seen: Txn{Commit: 1500}}}
	for xid, want := range map[uint32]bool{13: false, 14: true, 15: false, 16: true} {
		if late, err := f.Late(&taken, row(key[1], xid)); err != nil || late != want {
			t.Errorf("transaction %d: %t, %v", xid, late, err)
		}
		if late, err := f.Late(&taken, row(key[0], xid)); err != nil || late {
			t.Errorf("transaction %d of another bucket: %t, %v", xid, late, err)
		}
	}
}

func TestWindow_IsTornWhereAKeyLacksAnEarlierRow(t *testing.T) {
	key := keys(t)
	var same string // another key of its bucket
	f := Filter{Keys: []Key{{Column: "key"}}, Buckets: 2, Next: 1}
	for n := range 100 {
		if b, err := f.Bucket(row(fmt.Sprint(n), 1)); err == nil && b == 1 && fmt.Sprint(n) != key[1] {
			same = fmt.Sprint(n)
		}
	}
	taken, err := ParseSnapshot("10:20:12")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		rows []wal.Row
		torn bool
		last uint32
	}{
		"nothing":             {nil, false, 0},
		"the last is lacking": {[]wal.Row{*row(key[1], 11), *row(key[1], 12)}, false, 11},
		"an earlier one":      {[]wal.Row{*row(key[1], 12), *row(key[1], 13)}, true, 13},
		"of another key":      {[]wal.Row{*row(same, 12), *row(key[1], 13)}, false, 13},
		"of another bucket":   {[]wal.Row{*row(key[0], 12), *row(key[0], 13)}, false, 13},
		"all are lacking":     {[]wal.Row{*row(key[1], 12), *row(key[1], 25)}, false, 0},
	} {
		w := Window{Taken: taken}
		if err := w.Take(&f, &wal.Batch{Rows: c.rows}); err != nil || w.Torn != c.torn || w.Seen.XID != c.last {
			t.Errorf("%s: torn %t, seen %+v, %v", name, w.Torn, w.Seen, err)
		}
	}
}

func TestHistory_IsTheSameWhereTheServerHasWhatIsKnown(t *testing.T) {
	key := keys(t)
	f := Filter{Keys: []Key{{Column: "key"}}, Buckets: 2, Next: 1}
	of := func(xid uint32) Txn { return TxnOf(row(key[0], xid)) }
	known := Streamed{Last: of(12), Seen: of(15)}
	later := *row(key[0], 12)
	later.Txn.Time = time.Unix(2, 0)
	for name, c := range map[string]struct {
		known Streamed
		from  wal.LSN // of the slot; 1300 is Until
		rows  []wal.Row
		same  bool
	}{
		"all":                           {known, 1100, []wal.Row{*row(key[0], 11), *row(key[0], 12), *row(key[0], 14), *row(key[0], 15)}, true},
		"nothing is known":              {Streamed{}, 1100, nil, true},
		"nothing is known, and a row":   {Streamed{}, 1100, []wal.Row{*row(key[0], 11)}, false},
		"and one behind":                {Streamed{}, 1100, []wal.Row{*row(key[0], 14)}, true},
		"without the last":              {known, 1100, []wal.Row{*row(key[0], 11), *row(key[0], 15)}, false},
		"another time of commit":        {known, 1100, []wal.Row{later, *row(key[0], 15)}, false},
		"without the one that was seen": {known, 1100, []wal.Row{*row(key[0], 12), *row(key[0], 14)}, false},
		"the slot is past the last":     {known, 1250, []wal.Row{*row(key[0], 15)}, true},
		"and another row comes":         {known, 1201, []wal.Row{*row(key[1], 12), *row(key[0], 15)}, false},
		"the slot is past both":         {known, 1600, nil, true},
	} {
		h := History{Until: 1300, Known: c.known}
		h.Take(&f, &wal.Batch{Rows: c.rows})
		if got := h.Same(c.from); got != c.same {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestSnapshot_HasWhatAnotherSees(t *testing.T) {
	for text, want := range map[string]bool{
		"20:20:": true, "15:20:15,17": true, "12:20:12": false, "9:9:": false, "14:14:": false, "15:15:": true, "11:30:11": false,
	} {
		s, err := ParseSnapshot(text)
		if err != nil {
			t.Fatal(err)
		}
		other, err := ParseSnapshot("10:15:10,13")
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Has(&other); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}
