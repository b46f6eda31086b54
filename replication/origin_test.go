package replication

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"
)

func TestHistory_IsParsed(t *testing.T) {
	for _, tt := range []struct {
		name, content, fails string
		want                 []Fork
	}{
		{name: "none"},
		{name: "one fork", content: "1\t0/6B02760\tno recovery target specified\n", want: []Fork{{1, 0x6B02760}}},
		{name: "two, with a comment", content: "# made by hand\n1\t0/10\tx\n\n2\t1/20\tbefore 2026-01-01 00:00:00+00\n", want: []Fork{{1, 0x10}, {2, 1<<32 | 0x20}}},
		{name: "padded", content: "1\t0/06B02760\tx", want: []Fork{{1, 0x6B02760}}},
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

func TestOrigin_FindsTheFork(t *testing.T) {
	o := Origin{SystemID: "7", Timeline: 3, Forks: []Fork{{1, 0x10}, {2, 0x20}}}
	if f, ok := o.Fork(2); !ok || f.At != 0x20 {
		t.Errorf("fork of 2: %v %v", f, ok)
	}
	if _, ok := o.Fork(4); ok {
		t.Error("a timeline that is no part of the history has a fork")
	}
}

func TestOrigin_KnowsHowFarTwoHistoriesAreOne(t *testing.T) {
	const end = ^pglogrepl.LSN(0)
	of := func(system string, timeline int32, forks ...Fork) Origin { return Origin{system, timeline, forks} }
	for _, tt := range []struct {
		name string
		a, b Origin
		want pglogrepl.LSN
	}{
		{"one server", of("7", 1), of("7", 1), end},
		{"one server after forks", of("7", 3, Fork{1, 10}, Fork{2, 20}), of("7", 3, Fork{1, 10}, Fork{2, 20}), end},
		{"another cluster", of("7", 1), of("8", 1), 0},
		{"unknown", of("", 1), of("", 1), 0},
		{"promoted", of("7", 1), of("7", 2, Fork{1, 10}), 10},
		{"promoted twice", of("7", 1), of("7", 3, Fork{1, 10}, Fork{2, 20}), 10},
		{"promoted once more", of("7", 2, Fork{1, 10}), of("7", 3, Fork{1, 10}, Fork{2, 20}), 20},
		{"two promoted from one, under one number", of("7", 2, Fork{1, 10}), of("7", 2, Fork{1, 15}), 10},
		{"two promoted from one", of("7", 2, Fork{1, 10}), of("7", 3, Fork{1, 15}), 10},
		{"restored, so that the first has no part in the second", of("7", 2, Fork{1, 10}), of("7", 3, Fork{1, 10}), 10},
		{"a history that begins elsewhere", of("7", 2, Fork{1, 10}), of("7", 4, Fork{3, 10}), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.a.Common(tt.b); got != tt.want {
				t.Errorf("%d, want %d", got, tt.want)
			}
			if got := tt.b.Common(tt.a); got != tt.want {
				t.Errorf("the other way round %d, want %d", got, tt.want)
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
