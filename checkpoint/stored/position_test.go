package stored

import (
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

var sample = Position{
	System: "7439812", Timeline: 3, Slot: "cdc_relay", Publication: "cdc_relay", Relay: "1.2.3",
	End: 0x16B3748, Part: Part{Commit: 0x16B3748, Rows: 70_000, Shape: "a1"},
}

func TestPosition_SurvivesTheTopic(t *testing.T) {
	whole := sample
	whole.Part = Part{}
	ended, trusted, message := whole, whole, whole
	message.Last = Last{Commit: 0x16B3747, Message: "cbf29ce484222325"}
	ended.Last = Last{Commit: 0x16B3700, XID: 731, Time: time.UnixMicro(1_700_000_000_000_001).UTC()}
	trusted.Last = Last{Commit: 0x16B3747}
	for _, want := range []Position{sample, whole, ended, trusted, message} {
		got, err := ParsePosition(want.Encode())
		if err != nil || got != want {
			t.Errorf("read %+v, %v; want %+v", got, err, want)
		}
	}
}

func TestPosition_ReadsWhatTheFirstVersionWrote(t *testing.T) {
	const value = `{"v":1,"system_id":"7439812","timeline":3,"slot":"cdc_relay","publication":"cdc_relay","end_lsn":"0/16B3748","part_commit_lsn":"0/16B3748","part_rows":70000,"part_shape":"a1","relay_version":"1.2.3"}`
	if got := string(sample.Encode()); got != value {
		t.Errorf("wrote %s\nwant  %s", got, value)
	}
	got, err := ParsePosition([]byte(value))
	if err != nil || got != sample {
		t.Errorf("read %+v, %v", got, err)
	}
}

func TestPosition_ReadsItsLastTransaction(t *testing.T) {
	want := sample
	want.Last = Last{Commit: 0x16B3748, XID: 731, Time: time.Date(2026, 11, 28, 20, 0, 0, 123_456_000, time.UTC)}
	const value = `{"v":1,"system_id":"7439812","timeline":3,"slot":"cdc_relay","publication":"cdc_relay","end_lsn":"0/16B3748","part_commit_lsn":"0/16B3748","part_rows":70000,"part_shape":"a1","last_commit_lsn":"0/16B3748","last_xid":731,"last_commit_time":"2026-11-28T20:00:00.123456Z","relay_version":"1.2.3"}`
	if got := string(want.Encode()); got != value {
		t.Errorf("wrote %s\nwant  %s", got, value)
	}
	got, err := ParsePosition([]byte(value))
	if err != nil || got != want {
		t.Errorf("read %+v, %v", got, err)
	}
}

func TestPosition_RefusesWhatItCannotRead(t *testing.T) {
	for value, mention := range map[string]string{
		``:                                   "checkpoint",
		`[]`:                                 "checkpoint",
		`{"v":2,"system_id":"1","slot":"s"}`: "version 2",
		`{"v":1,"end_lsn":"0/1"}`:            "system_id",
		`{"v":1,"system_id":"1","slot":"s"}`: "end_lsn",
		`{"v":1,"system_id":"1","slot":"s","end_lsn":"0/0"}`:                                        "zero",
		`{"v":1,"system_id":"1","slot":"s","end_lsn":"0/9","part_commit_lsn":"x"}`:                  "part_commit_lsn",
		`{"v":1,"system_id":"1","slot":"s","end_lsn":"0/9","part_commit_lsn":"0/9"}`:                "contradicts",
		`{"v":1,"system_id":"1","slot":"s","end_lsn":"0/9","part_commit_lsn":"0/8","part_rows":1}`:  "contradicts",
		`{"v":1,"system_id":"1","slot":"s","end_lsn":"0/9","part_rows":1}`:                          "contradicts",
		`{"v":1,"system_id":"1","slot":"s","end_lsn":"0/9","part_commit_lsn":"0/9","part_rows":-1}`: "checkpoint",
		`{"v":1,"system_id":"1","slot":"s","end_lsn":"0/9","last_commit_lsn":"x"}`:                  "last_commit_lsn",
		`{"v":1,"system_id":"1","slot":"s","end_lsn":"0/9","last_xid":3}`:                           "last transaction",
		`{"v":1,"system_id":"1","slot":"s","end_lsn":"0/9","last_commit_time":"today"}`:             "last_commit_time",
	} {
		if r, err := ParsePosition([]byte(value)); err == nil || !strings.Contains(err.Error(), mention) {
			t.Errorf("%s: read %+v, error %v does not mention %q", value, r, err, mention)
		}
	}
}

func TestPosition_CoversWhatIsDelivered(t *testing.T) {
	r := Position{End: 100, Part: Part{Commit: 140, Rows: 3}}
	for _, c := range []struct {
		commit  wal.LSN
		ordinal uint64
		want    bool
	}{
		{99, 1, true}, {99, 1 << 40, true},
		{100, 1, false}, // a commit record may begin where the last one ended
		{139, 1, false}, {140, 1, true}, {140, 3, true}, {140, 4, false}, {141, 1, false},
	} {
		if got := r.Covers(c.commit, c.ordinal); got != c.want {
			t.Errorf("row %d of the transaction at %d: covered %t, want %t", c.ordinal, c.commit, got, c.want)
		}
	}
	if (&Position{}).Covers(0, 0) {
		t.Error("an empty record covers something")
	}
}

func TestPosition_LosesWhatLiesBehindAFork(t *testing.T) {
	r := Position{End: 100, Part: Part{Commit: 140, Rows: 3}, Last: Last{Commit: 140, XID: 7}}
	for _, c := range []struct {
		fork, end wal.LSN
		part      bool
		last      Last
	}{{90, 90, false, Last{Commit: 89}}, {100, 100, false, Last{Commit: 99}}, {140, 100, false, Last{Commit: 139}}, {141, 100, true, r.Last}, {500, 100, true, r.Last}} {
		got := r.UpTo(c.fork)
		if got.End != c.end || (got.Part != Part{}) != c.part || got.Last != c.last {
			t.Errorf("before a fork at %d: %+v", c.fork, got)
		}
	}
}

// What lies before the position comes again where the slot is behind, in count too.
func TestPosition_NeverDividesWhatItCovers(t *testing.T) {
	part := Part{Commit: 320, Rows: 9, Shape: "this"}
	r := Position{End: 300, Part: part, Last: Last{Commit: 320}}
	row := func(commit wal.LSN, ordinal uint64) *wal.Row {
		return &wal.Row{Txn: &wal.Txn{Commit: commit, XID: 7, Time: time.Unix(1000, 0)}, Ordinal: ordinal}
	}
	for _, again := range []*wal.Row{row(250, 40), row(299, 1), row(310, 5), row(320, 3), row(320, 9)} {
		if r.Divide(again, "this"); r.Part != part || r.Last.Commit != 320 {
			t.Fatalf("row %d of the transaction at %s: %+v, want %+v", again.Ordinal, again.Txn.Commit, r, part)
		}
	}
	part.Rows = 12
	if r.Divide(row(320, 12), "this"); r.Part != part {
		t.Errorf("part %+v, want %+v", r.Part, part)
	}
	r.Advance(330, nil)
	if r.Divide(row(330, 2), "this"); r.Part != (Part{Commit: 330, Rows: 2, Shape: "this"}) || r.Last.Commit != 330 || r.Last.XID != 7 {
		t.Errorf("the next transaction: %+v", r)
	}
}

// The end of what lies before a transaction may be where its commit record begins: that is
// not behind it, and a start from there must not send its first rows again.
func TestPosition_AtTheCommitRecordKeepsTheDividedTransaction(t *testing.T) {
	part := Part{Commit: 320, Rows: 9, Shape: "this"}
	for end, want := range map[wal.LSN]Part{300: part, 310: part, 320: part, 321: {}, 330: {}} {
		r := Position{End: 310, Part: part}
		r.Advance(end, nil)
		if r.Part != want || r.End != max(end, 310) {
			t.Errorf("%s: the position is %s with %+v, want %s with %+v", end, r.End, r.Part, max(end, 310), want)
		}
	}
}

// Rows that a slot which lags behind brings again are not the last ones.
func TestPosition_NamesTheLastTransactionWithARow(t *testing.T) {
	at := func(commit wal.LSN, xid uint32) *wal.Row {
		return &wal.Row{Txn: &wal.Txn{Commit: commit, XID: xid, Time: time.Unix(1000, 0)}}
	}
	r := Position{End: 300, Last: Last{Commit: 299}}
	for _, c := range []struct {
		end  wal.LSN
		row  *wal.Row
		want wal.LSN
	}{{310, nil, 299}, {290, at(280, 6), 299}, {310, at(320, 7), 299}, {330, at(320, 7), 320}, {350, nil, 320}, {330, at(320, 7), 320}, {360, &wal.Row{Txn: &wal.Txn{Commit: 360}}, 359}} {
		if r.Advance(c.end, c.row); r.Last.Commit != c.want {
			t.Errorf("after %s the last row is at %s, want %s", c.end, r.Last.Commit, c.want)
		}
	}
	body := func(text string) *wal.Row {
		return &wal.Row{Txn: &wal.Txn{Commit: 360}, Values: []wal.Value{{Kind: wal.Text, Data: []byte(text)}}}
	}
	if one := LastOf(body("one")); !one.Known() || one == LastOf(body("two")) || one != LastOf(body("one")) {
		t.Errorf("a message outside any transaction is %+v", one)
	}
}

// A record that was read says the same when it is written again.
func FuzzPosition(f *testing.F) {
	f.Add(sample.Encode())
	f.Add([]byte(`{"v":1,"system_id":"1","slot":"s","end_lsn":"0/9"}`))
	f.Add([]byte(`{"v":1,"system_id":"1","slot":"s","end_lsn":"0/9","last_commit_lsn":"0/8","last_xid":3,"last_commit_time":"9999-12-31T23:59:59-01:00"}`))
	f.Add([]byte(`{"v":1e9}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		r, err := ParsePosition(value)
		if err != nil {
			return
		}
		again, err := ParsePosition(r.Encode())
		if err != nil || again != r {
			t.Errorf("%+v became %+v, %v", r, again, err)
		}
	})
}
