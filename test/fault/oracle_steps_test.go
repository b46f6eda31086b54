package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// The kills that each push has; `make fault-full` has a hundred for each command.
func TestFault_CommandsThatDieAtTheirStepsLoseNothing(t *testing.T) {
	harness.NeedsServer(t, "PostgreSQL")
	binary := relaytest.Binary(t)
	s := newServers()
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	p := &programme{flags: flags{seed: sampleSeed}}
	var actions []Action
	for i, kills := range map[string]int{"archive": 4, "export": 3, "rejects": 2, "replay": 3} {
		actions = append(actions, Action{Kind: "steps_" + i, N: uint64(kills*1000 + len(actions))})
	}
	plan := p.plain(actions, 1)
	plan.Postgres, plan.Broker = harness.Versions()[0], "kfake"
	plan.Writers, plan.Pause, plan.Large = 1, Span(time.Second), 1
	v, err := run(t.Context(), s, plan, binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if len(v.Violations) > 0 {
		t.Error(strings.Join(v.Violations, "\n"))
	}
}

// fineSteps is a history in which all went well, of commands of every kind: rows 1 to 4, the last
// of which is rejected.
func fineSteps(c stepCase) *stepHistory {
	h := &stepHistory{stepCase: &c, archived: map[string]int{}, exported: map[string][]string{}, upTo: 2}
	for i, key := range []string{"a", "b", "a", "b"} {
		id := fmt.Sprint(i + 1)
		h.rows = append(h.rows, stepRow{id: id, key: key, there: true, part: "t", bad: i == 3})
		if i < 3 {
			h.records = append(h.records, &kgo.Record{Offset: int64(i), Timestamp: tick(i), Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(id)}}})
		}
	}
	h.letters = []*kgo.Record{{Headers: []kgo.RecordHeader{{Key: "id", Value: []byte("4")}}}}
	return h
}

// does has the command do its work to the first three rows.
func (h *stepHistory) does(how string, each func(row *stepRow)) *stepHistory {
	for i := range 3 {
		h.gone = append(h.gone, Gone{ID: h.rows[i].id, How: how, At: tick(10)})
		each(&h.rows[i])
	}
	return h
}

func deletedSteps(c stepCase) *stepHistory {
	return fineSteps(c).does("DELETE", func(row *stepRow) { row.there = false })
}

func markedSteps() *stepHistory {
	h := fineSteps(stepCase{command: markCommand, rejects: true}).does("UPDATE", func(row *stepRow) { row.marked = true })
	h.rows[3].attempts, h.rows[3].said = 1, true
	return h
}

func archivedSteps() *stepHistory {
	h := deletedSteps(stepCase{archive: true})
	h.archived = map[string]int{"1": 1, "2": 1, "3": 1}
	return h
}

func exportedSteps() *stepHistory {
	h := deletedSteps(stepCase{files: true})
	h.exported = map[string][]string{"1": {"x"}, "2": {"x"}, "3": {"x"}, "4": {"x"}}
	return h
}

func replayedSteps() *stepHistory {
	h := fineSteps(stepCase{again: true})
	h.runs = []string{"R"}
	for i := range 2 {
		h.records = append(h.records, &kgo.Record{Offset: int64(5 + i), Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(h.rows[i].id)}, {Key: replayHeader, Value: []byte("R")}}})
	}
	return h
}

func TestSteps_WhatIsWrongIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		of   func() *stepHistory
		harm func(*stepHistory)
		want string // empty: nothing is wrong
	}{
		"deleted":                       {func() *stepHistory { return deletedSteps(stepCase{}) }, func(*stepHistory) {}, ""},
		"deleted too early":             {func() *stepHistory { return deletedSteps(stepCase{}) }, func(h *stepHistory) { h.gone[1].At = tick(0) }, "P14: DELETE of a row that was not delivered by then: 1 rows, such as 2"},
		"deleted with a waiting letter": {func() *stepHistory { return deletedSteps(stepCase{}) }, func(h *stepHistory) { h.gone = append(h.gone, Gone{"4", "DELETE", tick(10)}); h.rows[3].there = false }, "P14: DELETE of a row whose dead letter waits"},
		"left":                          {func() *stepHistory { return deletedSteps(stepCase{}) }, func(h *stepHistory) { h.rows[0].there = true }, "a row is due, and was left"},
		"gone by itself":                {func() *stepHistory { return deletedSteps(stepCase{}) }, func(h *stepHistory) { h.gone = h.gone[:2] }, "a row is gone, and nobody deleted it: 1 rows, such as 3"},
		"nothing done":                  {func() *stepHistory { return fineSteps(stepCase{partitions: true}) }, func(*stepHistory) {}, "nothing was done"},
		"not delivered":                 {func() *stepHistory { return deletedSteps(stepCase{}) }, func(h *stepHistory) { h.records = h.records[:2] }, "P14: DELETE of a row that was not delivered"},
		"out of order":                  {func() *stepHistory { return deletedSteps(stepCase{}) }, func(h *stepHistory) { h.records[0].Offset = 9 }, "P4: 1 rows"},
		"no letter":                     {func() *stepHistory { return deletedSteps(stepCase{}) }, func(h *stepHistory) { h.letters = nil }, "a row that is rejected has no dead letter"},
		"archived":                      {archivedSteps, func(*stepHistory) {}, ""},
		"archived twice":                {archivedSteps, func(h *stepHistory) { h.archived["2"] = 2 }, "deleted, and 2 times in the archive"},
		"not archived":                  {archivedSteps, func(h *stepHistory) { delete(h.archived, "2") }, "deleted, and 0 times in the archive"},
		"archived and there":            {archivedSteps, func(h *stepHistory) { h.archived["4"] = 1 }, "in the table and in the archive"},
		"exported":                      {exportedSteps, func(*stepHistory) {}, ""},
		"not exported":                  {exportedSteps, func(h *stepHistory) { delete(h.exported, "3") }, "P14: deleted, and in no file"},
		"two contents":                  {exportedSteps, func(h *stepHistory) { h.exported["3"] = []string{"x", "y"} }, "exported with two contents"},
		"a file that is broken":         {exportedSteps, func(h *stepHistory) { h.broken = []string{"f: it has no end"} }, "f: it has no end"},
		"partitions that are not due": {func() *stepHistory {
			h := deletedSteps(stepCase{partitions: true})
			h.rows[0].part = "t_old_1"
			return h
		}, func(h *stepHistory) { h.rows[1].there = true; h.gone = slices.Delete(h.gone, 1, 2) }, ""},
		"a partition that was left": {func() *stepHistory { return deletedSteps(stepCase{partitions: true}) }, func(h *stepHistory) { h.rows[1].part = "t_old_1"; h.rows[1].there = true }, "a row is due, and was left"},
		"marked":                    {markedSteps, func(*stepHistory) {}, ""},
		"not marked":                {markedSteps, func(h *stepHistory) { h.rows[0].marked = false }, "marked: false, rejected: false"},
		"a letter marked":           {markedSteps, func(h *stepHistory) { h.gone = append(h.gone, Gone{"4", "UPDATE", tick(10)}); h.rows[3].marked = true }, "P14: UPDATE of a row whose dead letter waits"},
		"rejected twice":            {markedSteps, func(h *stepHistory) { h.rows[3].attempts = 2 }, "says 2 times that it was rejected, and not 1"},
		"not told":                  {markedSteps, func(h *stepHistory) { h.rows[3].attempts, h.rows[3].said = 0, false }, "says 0 times that it was rejected, and not 1"},
		"deleted by mark":           {markedSteps, func(h *stepHistory) { h.gone[0].How = "DELETE" }, "DELETE by a command that does no such thing"},
		"proven":                    {func() *stepHistory { return fineSteps(stepCase{proves: true}) }, func(h *stepHistory) { h.proven = [2]int{4, 4} }, ""},
		"proven too few":            {func() *stepHistory { return fineSteps(stepCase{proves: true}) }, func(h *stepHistory) { h.proven = [2]int{3, 4} }, "the audit has 3 proven of 4 rows"},
		"sent again":                {replayedSteps, func(*stepHistory) {}, ""},
		"not all sent again":        {replayedSteps, func(h *stepHistory) { h.records = h.records[:4] }, "run R: P1: 1 rows"},
		"sent again twice":          {replayedSteps, func(h *stepHistory) { h.exactly = true; h.records = append(h.records, h.records[4]) }, "run R: P10: 1 rows"},
		"sent to its own topic":     {replayedSteps, func(h *stepHistory) { h.toTopic = true }, "a record that was sent again is in the rows' own topic"},
		"no run":                    {replayedSteps, func(h *stepHistory) { h.runs = nil }, "nothing was sent again"},
	} {
		t.Run(name, func(t *testing.T) {
			h := c.of()
			c.harm(h)
			wrong := h.wrong()
			if c.want == "" && len(wrong) > 0 || c.want != "" && !slices.ContainsFunc(wrong, func(text string) bool { return strings.HasPrefix(text, c.want) }) {
				t.Errorf("%q, want %q", wrong, c.want)
			}
		})
	}
}

func TestSteps_FilesAreReadToTheirEnd(t *testing.T) {
	whole := "{}\n{\"id\":1}\n{\"id\":2}\n{\"rows\":2,\"sha256\":\"f29559c09c15de2f8b6a5fbd7e4b6cb7a7d7b7ce2b8a0ca2b6e4f2b9c0ffee00\"}\n"
	for text, want := range map[string]string{
		"":                 "it has no end",
		"{}\n{\"id\":1}\n": "it has 0 rows",
		whole:              "it has 2 rows, and says 2 with another sum",
		"{}\n" + `{"x":`:   "it has no end",
	} {
		var packed bytes.Buffer
		z, err := zstd.NewWriter(&packed)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = z.Write([]byte(text))
		_ = z.Close()
		h := &stepHistory{exported: map[string][]string{}}
		h.file("f", &packed)
		if len(h.broken) != 1 || !strings.HasPrefix(h.broken[0], "f: "+want) || len(h.exported) > 0 {
			t.Errorf("%q: %q, want %q", text, h.broken, want)
		}
	}
}

// A step that has no failpoint would never be come to.
func TestSteps_HaveFailpoints(t *testing.T) {
	for _, once := range []bool{false, true} {
		for _, c := range stepCases() {
			for _, step := range append(c.killsIn(0, once), c.killsIn(1, once)...) {
				name, _, _ := strings.Cut(step, ":")
				known := name == "old_snapshot_taken" || name == "old_slots_taken" || name == "old_begun" // of OnStep
				for _, f := range slices.Concat(failpoints, oldFailpoints, upkeepFailpoints) {
					known = known || f.name == name
				}
				if !known {
					t.Errorf("%s: %s", c.name, step)
				}
			}
		}
	}
}
