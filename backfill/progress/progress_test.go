package progress

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/backfill/buckets"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

func text(s string) *string { return &s }

func sample() *Progress {
	return &Progress{
		System: "7", Timeline: 1, Slot: "s", Point: 0x100, Snapshot: "5:5:", Run: "R", Started: time.Unix(1, 5).UTC(), Relay: "1",
		Tables: []TableProgress{
			{Table: "public.a", OID: 3, Where: "x IS NULL", Order: []string{"created_at", "id"}, Shape: "f", Last: Tuple{nil, text("9")}},
			{Table: "public.b", OID: 4, Order: []string{}, Shape: "g"},
		},
		Place: Place{Rows: 5, Table: 0, Done: Tuple{text(""), text("8")}, Skipped: 2, First: "row 3"},
	}
}

// online is that of a backfill of four buckets, of which one is done.
func online() *Progress {
	p := sample()
	p.End = 0x180
	p.Online = &Online{
		Buckets: 4, Next: 1, Reading: true, Deleted: 3, Counted: "17.5", Files: []string{"3:9"}, Exactly: true, Until: 0x160,
		Shards: []buckets.Streamed{{Last: buckets.Txn{Commit: 0x150, XID: 7, Time: time.Unix(3, 4000).UTC()}, Seen: buckets.Txn{Commit: 0x170, XID: 8, Time: time.Unix(4, 0).UTC()}}, {}},
	}
	return p
}

func TestProgress_IsReadAsItWasWritten(t *testing.T) {
	p := sample()
	got, err := Parse(p.Encode())
	if err != nil || !reflect.DeepEqual(got, p) {
		t.Errorf("%+v, %v; want %+v", got, err, p)
	}
	if got, err := Parse(online().Encode()); err != nil || !reflect.DeepEqual(got, online()) {
		t.Errorf("%+v, %v; want %+v", got, err, online())
	}
	finished := p.At(Place{Rows: 9, Table: 2})
	finished.Finished, finished.Timeline, finished.Began, finished.End = true, 2, 0x80, 0x120
	if got, err := Parse(finished.Encode()); err != nil || !got.Finished || got.Done != nil || got.Began != 0x80 || got.End != 0x120 {
		t.Errorf("%+v, %v", got, err)
	}
	if p.Rows != 5 {
		t.Error("the record of another place changed this one")
	}
}

func TestProgress_RefusesWhatMakesNoSense(t *testing.T) {
	for name, change := range map[string]func(*Progress){
		"no slot":               func(p *Progress) { p.Slot = "" },
		"no run":                func(p *Progress) { p.Run = "" },
		"no point":              func(p *Progress) { p.Point = 0 },
		"no table":              func(p *Progress) { p.Tables = nil },
		"a table that is none":  func(p *Progress) { p.Table = 3 },
		"another order":         func(p *Progress) { p.Done = Tuple{text("1")} },
		"a place behind all":    func(p *Progress) { p.Table = 2 },
		"another order at last": func(p *Progress) { p.Tables[0].Last = Tuple{nil} },
		"a table without OID":   func(p *Progress) { p.Tables[1].OID = 0 },
	} {
		p := sample()
		change(p)
		if got, err := Parse(p.Encode()); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for name, change := range map[string]func(*Progress){
		"no bucket":                      func(p *Progress) { p.Online.Buckets = 0 },
		"a bucket that is none":          func(p *Progress) { p.Online.Next = 5 },
		"reading behind all":             func(p *Progress) { p.Online.Next = 4 },
		"no shard":                       func(p *Progress) { p.Online.Shards = nil },
		"the last one is behind":         func(p *Progress) { p.Online.Shards[0].Last.Commit = 0x160 },
		"what was seen is before":        func(p *Progress) { p.Online.Shards[0].Seen.Commit = 0x15f },
		"a slot that is before it began": func(p *Progress) { p.Online.Until = 0x99 },
		"finished in the middle":         func(p *Progress) { p.Finished = true },
	} {
		p := online()
		change(p)
		if got, err := Parse(p.Encode()); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for value, says := range map[string]string{
		`{"v":3}`: "has version 3", `{"v":2}`: "`online` is in records of version 2", `{"v":1,"online":{}}`: "`online` is in records of version 2",
	} {
		if _, err := Parse([]byte(value)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", value, err, says)
		}
	}
	for _, value := range []string{"", "{", `{"v":2}`, "null", "[]"} {
		if _, err := Parse([]byte(value)); err == nil {
			t.Errorf("%q is read", value)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sample().Encode())
	f.Add(online().Encode())
	f.Add([]byte(`{"v":1}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		p, err := Parse(value)
		if err != nil {
			return
		}
		again, err := Parse(p.Encode())
		if err != nil || again.Rows != p.Rows || len(again.Done) != len(p.Done) {
			t.Errorf("%+v, %v", again, err)
		}
	})
}

func TestBudget_WarnsWhereTheSlotWouldNotLast(t *testing.T) {
	for _, tt := range []struct {
		b    Budget
		want string
	}{
		{Budget{Limit: -1, WAL: 1e9, Rows: 1e9, Rate: 1}, ""},
		{Budget{Limit: 1 << 30, WAL: 0, Rows: 1e9, Rate: 1}, ""},
		{Budget{Limit: 1 << 30, WAL: 1 << 20, Rows: 1000, Rate: 1}, ""},
		{Budget{Limit: 1 << 30, WAL: 1 << 20, Rows: 2400, Rate: 1}, "after about 17m04s (max_slot_wal_keep_size is 1 GiB, and the server writes 1 MiB a second), and the backfill takes about 40m00s"},
		{Budget{Limit: 0, WAL: 1, Rows: 1 << 60, Rate: 1e-9}, "after about 0s"},
	} {
		if got := tt.b.Warning(); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%+v: %q, want %q", tt.b, got, tt.want)
		}
	}
}

func TestProgress_GoesOnWhereTheServerHasWhatItSaw(t *testing.T) {
	here := wal.Origin{SystemID: "7", Timeline: 3, Forks: []wal.Fork{{Timeline: 1, At: 50}, {Timeline: 2, At: 70}}}
	for _, tt := range []struct {
		timeline    int32
		began, saw  wal.LSN
		end         wal.LSN
		says        string
		description string
	}{
		{3, 70, 100, 100, "", "the same server"},
		{3, 0, 0, 100, "", "the record of an earlier version"},
		{3, 70, 101, 100, "its disk was put back", "more than the server has"},
		{2, 50, 70, 100, "", "a failover that lost nothing"},
		{2, 50, 71, 100, "timeline 2, and the server is on 3", "a failover that lost rows"},
		{2, 50, 0, 100, "timeline 2, and the server is on 3", "a failover, and nobody knows what was seen"},
		{4, 70, 60, 100, "timeline 4, and the server is on 3", "an old primary"},
		{3, 65, 80, 100, "another standby was promoted", "another timeline of the same number"},
		{3, 65, 65, 100, "", "what both of them have"},
		{2, 40, 60, 100, "another standby was promoted", "another one before a failover"},
	} {
		p := &Progress{System: "7", Timeline: tt.timeline, Began: tt.began, End: tt.saw}
		if err := p.Continues(here, tt.end); (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", tt.description, err)
		}
	}
}
