package status

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

func TestBacklog_SaysHowLongItTakes(t *testing.T) {
	const mib = 1 << 20
	for name, tt := range map[string]struct {
		read, written, left int64 // MiB a second, and MiB at the begin
		seconds             int
		want                string
	}{
		"too early to tell":          {10, 0, 1000, 8, "920.0 MiB of WAL left"},
		"a quiet server":             {10, 0, 1000, 20, "800.0 MiB of WAL left, about 1 minute"},
		"soon done":                  {10, 0, 700, 20, "500.0 MiB of WAL left, less than a minute"},
		"written meanwhile":          {20, 10, 7400, 20, "7.0 GiB of WAL left, about 12 minutes"},
		"hours":                      {20, 19, 10_020, 20, "9.8 GiB of WAL left, and it does not shrink: 19.0 MiB/s are written, 20.0 MiB/s are read"},
		"grows":                      {10, 11, 1000, 20, "1020.0 MiB of WAL left, and it does not shrink: 11.0 MiB/s are written, 10.0 MiB/s are read"},
		"only the last half minute":  {10, 0, 6000, 300, "2.9 GiB of WAL left, about 5 minutes"},
		"stands still, as if halted": {0, 0, 1000, 20, "1000.0 MiB of WAL left, and it does not shrink: 0 B/s are written, 0 B/s are read"},
	} {
		t.Run(name, func(t *testing.T) {
			var b backlog
			begin := time.Unix(1000, 0)
			server, reader := wal.LSN(tt.left*mib+1), wal.LSN(1)
			for s := range tt.seconds + 1 {
				at := begin.Add(time.Duration(s) * time.Second)
				b.observe(at, server+wal.LSN(int64(s)*tt.written*mib), reader+wal.LSN(int64(s)*tt.read*mib))
				b.observe(at.Add(time.Millisecond), server, reader) // looks between two seconds change nothing
			}
			if got := b.catchUp().text(); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
			if n := len(b.points); n > 32 {
				t.Errorf("%d points are kept", n)
			}
		})
	}
}

// A backlog that is read within two seconds is none to people.
func TestBacklog_OfAMomentIsNotTold(t *testing.T) {
	var b backlog
	if b.catchUp() != nil {
		t.Error("there is a backlog before anything was seen")
	}
	begin := time.Unix(1000, 0)
	for s := range 2 {
		b.observe(begin.Add(time.Duration(s)*time.Second), 100, 1)
		if c := b.catchUp(); c != nil {
			t.Errorf("after %d s: %+v", s, c)
		}
	}
	if b.observe(begin.Add(2*time.Second), 100, 1); b.catchUp() == nil {
		t.Error("there is no backlog after two seconds")
	}
}

// Of several shards the one that takes longest is shown.
func TestCatchUp_Longer(t *testing.T) {
	seconds := func(s float64) *float64 { return &s }
	early := &CatchUp{LeftBytes: 5}
	short, long := &CatchUp{LeftBytes: 9, paced: true, Seconds: seconds(3)}, &CatchUp{LeftBytes: 1, paced: true, Seconds: seconds(4)}
	grows := &CatchUp{LeftBytes: 1, paced: true}
	for _, tt := range []struct {
		one, other *CatchUp
		want       bool
	}{
		{long, short, true},
		{short, long, false},
		{grows, long, true},
		{long, grows, false},
		{short, early, true}, // by bytes
		{early, short, false},
	} {
		if got := tt.one.longer(tt.other); got != tt.want {
			t.Errorf("%+v longer than %+v: %t", tt.one, tt.other, got)
		}
	}
}
