package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/deadletter"
	"github.com/cdc-relay/cdc-relay/deadletter/restore"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router/record"
)

// keyOf is a key's task of n letters, all of them selected.
func keyOf(n int) *deadletter.Task {
	task := &deadletter.Task{}
	for i := range n {
		task.Entries = append(task.Entries, &deadletter.Entry{Letter: deadletter.Letter{
			ID: deadletter.ID{Place: wal.Place{Commit: wal.LSN(i + 1), Ordinal: 1}}, Table: "public.outbox", Record: record.Record{Topic: "orders"}, Partition: 3, Offset: int64(i),
		}, Matched: true})
	}
	return task
}

// A key with more letters than fit into memory is worked off in pieces.
func TestRedrive_CountsTheLettersOfAKeyAndNotOfAPiece(t *testing.T) {
	sent := func(task *deadletter.Task, from, through int) deadletter.Outcome {
		for _, e := range task.Entries[from:through] {
			e.Done = deadletter.Sent
		}
		return deadletter.Outcome{Task: task, Entries: task.Entries[from:through], Topic: "orders", Done: through - from, Records: through - from}
	}
	for name, tt := range map[string]struct {
		plan     bool
		outcomes func(a, b *deadletter.Task) []deadletter.Outcome
		want     []string
	}{
		"all of it": {false, func(a, b *deadletter.Task) []deadletter.Outcome {
			return []deadletter.Outcome{sent(a, 0, 3), sent(a, 3, 5), sent(b, 0, 1)}
		}, []string{"orders 5 5 0/1/1 to 0/5/1 done", "orders 1 1 0/1/1 done"}},
		"stopped behind the first piece": {false, func(a, _ *deadletter.Task) []deadletter.Outcome {
			return []deadletter.Outcome{sent(a, 0, 3)}
		}, []string{"orders 5 5 0/1/1 to 0/5/1 3 done"}},
		"a failure in the first piece": {false, func(a, b *deadletter.Task) []deadletter.Outcome {
			first := sent(a, 0, 2)
			first.Entries, first.Err = a.Entries[0:3], errors.New("too large")
			return []deadletter.Outcome{first, {Task: a, Entries: a.Entries[3:], Err: errors.New("an earlier letter was not sent")}, sent(b, 0, 1)}
		}, []string{"orders 5 5 0/1/1 to 0/5/1 2 done; too large (the letter at partition 3, offset 2)", "orders 1 1 0/1/1 done"}},
		"another redrive sent two of them": {false, func(a, _ *deadletter.Task) []deadletter.Outcome {
			sent(a, 0, 2)
			return []deadletter.Outcome{sent(a, 2, 3), sent(a, 3, 5)}
		}, []string{"orders 3 3 0/3/1 to 0/5/1 done"}},
		"a plan": {true, func(a, _ *deadletter.Task) []deadletter.Outcome {
			return []deadletter.Outcome{{Task: a, Entries: a.Entries[:3], Done: 3}, {Task: a, Entries: a.Entries[3:], Done: 2}}
		}, []string{"orders 5 5 0/1/1 to 0/5/1 planned"}},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := keyOf(5), keyOf(1)
			report := &restore.Report{Plan: tt.plan}
			for _, out := range tt.outcomes(a, b) {
				report.Add(out)
			}
			var out bytes.Buffer
			l := &letters{app: &app{process: process{stdout: &out}}}
			if err := l.printGroups(report); err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")[1:]
			for i, line := range lines {
				fields := strings.Fields(line)
				lines[i] = strings.Join(append(fields[1:4:4], fields[5:]...), " ")
			}
			if got, want := strings.Join(lines, "\n"), strings.Join(tt.want, "\n"); got != want {
				t.Errorf("printed\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// What the JSON counts as left is what the last line of the text does, and a failure names its
// letter in both.
func TestRedrive_JSONCountsAndNamesAsTheTextDoes(t *testing.T) {
	task := keyOf(4)
	task.Left = 2
	for name, tt := range map[string]struct {
		plan bool
		left int
		want string
	}{
		"sent":    {false, 5, "1 of 6 dead letters of the selected keys re-driven, 5 left"},
		"planned": {true, 5, "1 of 6 dead letters of the selected keys would be re-driven, 5 would be left"},
	} {
		t.Run(name, func(t *testing.T) {
			report := restore.NewReport(tt.plan, false, []deadletter.Task{*task}, &deadletter.Backlog{})
			report.Add(deadletter.Outcome{Task: task, Entries: task.Entries, Done: 1, Err: errors.New("no row")})
			if text := report.Summary(); report.Left != tt.left || !strings.HasPrefix(strings.Replace(text, " (3 would fail)", "", 1), tt.want) {
				t.Errorf("%d left, and the text has %q", report.Left, text)
			}
			g := report.Groups[0]
			if g.Partition == nil || *g.Partition != 3 || g.Offset == nil || *g.Offset != 1 || g.Error != "no row (the letter at partition 3, offset 1)" {
				t.Errorf("%+v", g)
			}
		})
	}
}

// A key may have letters of several tables.
func TestRedrive_NamesEveryTableOfAKey(t *testing.T) {
	task := keyOf(3)
	task.Entries[1].Table = "public.another"
	report := &restore.Report{}
	report.Add(deadletter.Outcome{Task: task, Entries: task.Entries, Topic: "orders", Done: 3, Records: 3})
	if got := report.Groups[0].Table; got != "public.outbox, public.another" {
		t.Errorf("it names %q", got)
	}
}
