package stored

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

var sample = Position{
	System: "7439812", Timeline: 3, Slot: "cdc_relay", Publication: "cdc_relay", Relay: "1.2.3",
	End: 0x16B3748, Part: Part{Commit: 0x16B3748, Rows: 70_000, Shape: "a1"},
}

func TestPosition_SurvivesTheTopic(t *testing.T) {
	whole := sample
	whole.Part = Part{}
	for _, want := range []Position{sample, whole} {
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
	r := Position{End: 100, Part: Part{Commit: 140, Rows: 3}}
	for _, c := range []struct {
		fork, end wal.LSN
		part      bool
	}{{90, 90, false}, {100, 100, false}, {140, 100, false}, {141, 100, true}, {500, 100, true}} {
		got := r.UpTo(c.fork)
		if got.End != c.end || (got.Part != Part{}) != c.part {
			t.Errorf("before a fork at %d: %+v", c.fork, got)
		}
	}
}

// A record that was read says the same when it is written again.
func FuzzPosition(f *testing.F) {
	f.Add(sample.Encode())
	f.Add([]byte(`{"v":1,"system_id":"1","slot":"s","end_lsn":"0/9"}`))
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
