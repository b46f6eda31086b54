package status

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

func TestDensity_EstimatesTheRowsOfABacklog(t *testing.T) {
	begin := time.Unix(1_000_000, 0)
	var d density
	if _, known := d.rowsIn(1 << 20); known {
		t.Error("something is known before anything was seen")
	}
	for s := range 1200 { // a row in 500 bytes, and in the last ten minutes in 1000
		at, rows, confirmed := begin.Add(time.Duration(s)*time.Second), int64(s), wal.LSN(1000+500*s)
		if s > 590 {
			confirmed += wal.LSN(500 * (s - 590))
		}
		d.observe(at, rows, confirmed)
		if _, known := d.rowsIn(1 << 20); known != (s >= 10) {
			t.Fatalf("after %d s: known %t", s, known)
		}
	}
	if rows, _ := d.rowsIn(5_000_000); rows != 5000 {
		t.Errorf("5 MB are %d rows", rows)
	}
	if n := len(d.points); n > 62 {
		t.Errorf("%d points are kept", n)
	}
	d.observe(begin.Add(1300*time.Second), 1300, 100) // a slot that is new
	if _, known := d.rowsIn(1 << 20); known {
		t.Error("the density of another slot is taken")
	}
	d = density{}
	for s := range 100 {
		d.observe(begin.Add(time.Duration(s)*time.Second), 5, 100)
	}
	if _, known := d.rowsIn(1 << 20); known {
		t.Error("where nothing moves something is known")
	}
}

// An estimate is of a relay that reads on, and of a backlog that is worth a word.
func TestRowsBehind_IsSaidWhileABacklogIsRead(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Status)
		known  bool
	}{
		"reads":              {func(*Status) {}, true},
		"a small backlog":    {func(s *Status) { s.LagBytes = new(int64(1000)) }, false},
		"is blocked":         {func(s *Status) { s.State = Blocked }, false},
		"no broker answers":  {func(s *Status) { s.Reason = "kafka_unreachable" }, false},
		"the end is unknown": {func(s *Status) { s.LagBytes = nil }, false},
	} {
		b := &Monitor{density: density{points: []passed{{time.Unix(0, 0), 0, 100}, {time.Unix(60, 0), 50, 50_100}}}}
		st := Status{State: Streaming, LagBytes: new(int64(2_000_000)), LSN: LSNs{Server: 5_000_000}}
		tt.change(&st)
		if rows := b.rowsBehind(&st); (rows != nil) != tt.known || rows != nil && *rows != 2000 {
			t.Errorf("%s: %v", name, rows)
		}
	}
}
