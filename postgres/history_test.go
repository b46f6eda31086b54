package postgres

import (
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

func TestHistory_IsParsed(t *testing.T) {
	for _, tt := range []struct {
		name, content, fails string
		want                 []wal.Fork
	}{
		{name: "none"},
		{name: "one fork", content: "1\t0/6B02760\tno recovery target specified\n", want: []wal.Fork{{Timeline: 1, At: 0x6B02760}}},
		{name: "two, with a comment", content: "# made by hand\n1\t0/10\tx\n\n2\t1/20\tbefore 2026-01-01 00:00:00+00\n", want: []wal.Fork{{Timeline: 1, At: 0x10}, {Timeline: 2, At: 1<<32 | 0x20}}},
		{name: "padded", content: "1\t0/06B02760\tx", want: []wal.Fork{{Timeline: 1, At: 0x6B02760}}},
		{name: "no position", content: "1\n", fails: "line 1"},
		{name: "no timeline", content: "one\t0/10\tx\n", fails: "line 1"},
		{name: "no number", content: "1\t0-10\tx\n", fails: "line 1"},
		{name: "goes back", content: "2\t0/20\tx\n1\t0/30\tx\n", fails: "line 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseHistory(tt.content)
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Fatalf("error %v, want one about %s", err, tt.fails)
				}
				return
			}
			if err != nil || !slices.Equal(got, tt.want) {
				t.Fatalf("%v, %v; want %v", got, err, tt.want)
			}
		})
	}
}

func FuzzHistory(f *testing.F) {
	f.Add("1\t0/6B02760\tno recovery target specified\n")
	f.Add("1\t0/10\tx\n2\t1/20\ty\n")
	f.Fuzz(func(t *testing.T, content string) {
		forks, err := parseHistory(content)
		if err != nil {
			return
		}
		for i := 1; i < len(forks); i++ {
			if forks[i].Timeline <= forks[i-1].Timeline || forks[i].At < forks[i-1].At {
				t.Fatalf("%v goes back", forks)
			}
		}
	})
}
