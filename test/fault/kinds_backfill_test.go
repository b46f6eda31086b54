package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// sentOld are records of one partition: an id, with p before it the publisher's.
func sentOld(text string) (records []*kgo.Record) {
	for i, id := range strings.Fields(text) {
		r := &kgo.Record{Offset: int64(i)}
		if of, found := strings.CutPrefix(id, "p"); found {
			id = of
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: "by", Value: []byte("publisher")})
		}
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: "id", Value: []byte(id)})
		records = append(records, r)
	}
	return records
}

func TestJudgeOld_FindsWhatIsWrong(t *testing.T) {
	rows := []oldRow{{"1", "a"}, {"2", "b"}, {"3", "a"}, {"4", "b"}, {"5", "a"}}
	for _, c := range []struct {
		sent string
		once bool
		want string // empty: nothing is wrong
	}{
		{"1 2 3 4 5", true, ""},
		{"2 4 1 3 5", true, ""},
		{"p1 p2 p1 3 4 5", true, ""},
		{"1 2 3 1 2 3 4 5", false, ""},
		{"1 2 3 1 2 3 4 5", true, "P10: 3 rows"},
		{"1 2 3 4", false, "P1: 1 rows"},
		{"1 2 3 4 5 6", false, `P2: a record of "6"`},
		{"1 4 2 3 5", false, "P4: 1 rows"},
		{"1 2 3 4 5 1", false, "P5: 1 keys"},
		{"1 2 3 4 5 1 3 5", false, ""},
		{"p1 2 3 4 5 1 3 5", false, "1 rows are the publisher's and the relay's"},
	} {
		got := strings.Join(judgeOld(rows, sentOld(c.sent), c.once), "; ")
		if c.want == "" && got != "" || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s, once %t: %q, want %q", c.sent, c.once, got, c.want)
		}
	}
}

// A step that has no failpoint would never be come to.
func TestOldSteps_HaveFailpoints(t *testing.T) {
	steps := map[string]bool{}
	for _, name := range []string{"slot_made", "snapshot_taken", "begun", "sent", "finished", "copied", "written", "dropped", "bucket_done", "caught_up", "trigger_made", "drained", "settled", "advanced", "commit_awaited", "streamed"} {
		steps["old_"+name] = true // of OnStep
	}
	for _, guarantee := range []string{atLeastOnce, exactlyOnce} {
		for _, f := range append(failpoints, oldFailpoints...) {
			if f.comes(guarantee) {
				steps[fmt.Sprint(guarantee, f.name)] = true
			}
		}
		for _, step := range slices.Concat(backfillSteps(guarantee == exactlyOnce), onlineSteps(guarantee == exactlyOnce), cutoverSteps) {
			name, _, _ := strings.Cut(step, ":")
			if !steps[name] && !steps[guarantee+name] {
				t.Errorf("%s: %s", guarantee, step)
			}
		}
	}
	if some := someSteps(cutoverSteps, 5, 3); len(some) < 1 || len(some) > 3 {
		t.Errorf("some steps: %v", some)
	}
}
