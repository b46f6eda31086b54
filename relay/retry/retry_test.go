package retry

import (
	"errors"
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

func TestFurthest_TellsSessionsThatGetOn(t *testing.T) {
	type session struct {
		start wal.LSN
		rows  int64
		once  bool
		want  bool
	}
	for name, sessions := range map[string][]session{
		"no row":            {{start: 5}, {start: 6}, {start: 6, once: true}},
		"as many":           {{start: 5, rows: 3, want: true}, {start: 5, rows: 3}, {start: 5, rows: 2}, {start: 5, rows: 4, want: true}, {start: 5, rows: 3}},
		"from elsewhere":    {{start: 5, rows: 3, want: true}, {start: 6, rows: 1, want: true}, {start: 5, rows: 2, want: true}},
		"each row is a new": {{start: 5, rows: 3, once: true, want: true}, {start: 5, rows: 1, once: true, want: true}, {start: 5, once: true}},
	} {
		var r Furthest
		for i, s := range sessions {
			if got := r.Progressed(s.start, s.rows, s.once); got != s.want {
				t.Errorf("%s: session %d: %t", name, i+1, got)
			}
		}
	}
}

func TestRepetition_CountsTheSameErrorOverAnyPort(t *testing.T) {
	var r Repetition
	for i, c := range []struct {
		text string
		want int
	}{
		{"read tcp 127.0.0.1:39652->127.0.0.1:9092: reset", 1},
		{"read tcp 127.0.0.1:5000->127.0.0.1:9092: reset", 2},
		{"dial tcp 127.0.0.1:9092: refused", 1},
		{"read tcp 127.0.0.1:5001->127.0.0.1:9092: reset", 1},
	} {
		if got := r.Count(errors.New(c.text)); got != c.want {
			t.Errorf("%d: %s: %d, want %d", i, c.text, got, c.want)
		}
	}
}
