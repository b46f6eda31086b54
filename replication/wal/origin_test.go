package wal

import (
	"testing"
)

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
	const end = ^LSN(0)
	of := func(system string, timeline int32, forks ...Fork) Origin {
		return Origin{SystemID: system, Timeline: timeline, Forks: forks}
	}
	for _, tt := range []struct {
		name string
		a, b Origin
		want LSN
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

func TestOrigin_KnowsWhereATimelineBegins(t *testing.T) {
	o := Origin{SystemID: "7", Timeline: 4, Forks: []Fork{{1, 0x10}, {2, 0x20}}}
	for timeline, want := range map[int32]LSN{1: 0, 2: 0x10, 3: 0, 4: 0x20, 5: 0} {
		if at := o.Begin(timeline); at != want {
			t.Errorf("timeline %d begins at %s, want %s", timeline, at, want)
		}
	}
}
