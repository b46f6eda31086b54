package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

func TestStandstill(t *testing.T) {
	began := time.Unix(100, 0)
	type glance struct {
		after float64 // seconds
		at    wal.LSN
	}
	for _, c := range []struct {
		name  string
		from  standstill
		looks []glance
		want  float64
	}{
		{"not before its first move", standstill{last: 1}, []glance{{1, 1}, {5, 1}, {6, 2}, {6.5, 3}}, 0.5},
		{"never moved", standstill{last: 1}, []glance{{1, 1}, {5, 1}}, 0},
		{"the longest of several", standstill{last: 1}, []glance{{1, 2}, {2, 2}, {3, 3}, {4, 4}}, 2},
		{"until the last look", standstill{last: 1}, []glance{{1, 2}, {1.5, 3}, {2, 3}, {4, 3}}, 2.5},
		{"after the warm-up", standstill{since: began.Add(2 * time.Second)}, []glance{{0, 1}, {1.9, 1}, {3, 1}, {3.5, 2}, {4, 2}}, 1.5},
		{"moves of the warm-up do not count", standstill{since: began.Add(2 * time.Second)}, []glance{{0, 1}, {1, 2}, {2.25, 3}, {2.5, 4}}, 0.25},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := c.from
			for _, l := range c.looks {
				s.look(l.at, began.Add(time.Duration(l.after*float64(time.Second))))
			}
			if s.longest.Seconds() != c.want {
				t.Errorf("stood still %s, want %g s", s.longest, c.want)
			}
		})
	}
}

func TestReport_AStandstillIsTheWorstOfAllRuns(t *testing.T) {
	r := sample()
	runs := r.Drains[0].Lines[1].Runs
	runs[0].StoodStill, runs[1].StoodStill = 0.87, 0.21
	text := r.markdown()
	for _, want := range []string{"| 47.0 | - | 0.87 | 2.10 |", "| 9.0 | - | - | 1.00 |"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	data, err := json.Marshal(r)
	if err != nil || strings.Count(string(data), "StoodStill") != 2 {
		t.Errorf("%s, %v", data, err)
	}
	// As it was written before positions were looked at in a drain.
	var older Line
	if err := json.Unmarshal([]byte(`{"Contestant": "x", "Runs": [{"Seconds": 1}]}`), &older); err != nil || older.still() != "-" {
		t.Errorf("%q, %v", older.still(), err)
	}
}

// The slot that a drain looks at is the one of the job.
func TestContestants_WhoseSlotIsLookedAt(t *testing.T) {
	var looked []string
	for _, c := range contestants() {
		if c.confirms {
			looked = append(looked, c.name)
		}
	}
	want := []string{relayDiscard, relayKfake, relayKafka, relayExactly, relayColumns, debezium, debeziumWarm, debeziumHeap, debeziumSoon, relayTLS, relayLink, relayMillisecond, relayAvro, relayJSONSchema, relayProtobuf, debeziumAvro, relayThree, debeziumThree}
	if got := strings.Join(looked, " "); got != strings.Join(want, " ") {
		t.Errorf("%s, want %s", got, want)
	}
}
