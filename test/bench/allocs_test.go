package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestAllocated_ReadsTheCountOrSaysThatThereIsNone(t *testing.T) {
	for text, want := range map[string]float64{
		"# TYPE go_memstats_mallocs_total counter\ngo_memstats_mallocs_total 1.5e+06\n": 1_500_000,
		"go_gc_heap_allocs_objects_total 12\n":                                          12,
		"go_gc_heap_allocs_objects_total 12\ngo_memstats_mallocs_total 13\n":            13,
		"go_memstats_mallocs_total_of_another 7\ncdc_relay_up 1\n":                      -1,
		"go_memstats_mallocs_total{pipeline=\"two words\"} 1.25e+06\n":                  1_250_000,
		"go_memstats_mallocs_total many\n":                                              -1,
		"":                                                                              -1,
	} {
		got, err := allocatedIn(strings.NewReader(text))
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%q gives %g (%v), want %g", text, got, err, want)
		}
	}
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	if n, err := allocated(t.Context(), server.URL); err == nil {
		t.Errorf("a server without metrics gives %g", n)
	}
}

func TestLine_AllocsAreThoseOfTheRunsThatSayThem(t *testing.T) {
	for _, c := range []struct {
		runs []Run
		want string
	}{
		{nil, "-"},
		{[]Run{{}, {}}, "-"},
		{[]Run{{AllocsPerRow: 0.05}, {}, {AllocsPerRow: 0.07}}, "0.060"},
	} {
		if got := (Line{Runs: c.runs}).allocs(); got != c.want {
			t.Errorf("%v give %s, want %s", c.runs, got, c.want)
		}
	}
}

// Who reads another publication takes part in no suite but that of columns.
func TestColumns_AreASuiteOfTheirOwn(t *testing.T) {
	for _, c := range contestants() {
		if c.columns && (everyone(c) || followers(c)) {
			t.Errorf("%s takes part in other suites", c.name)
		}
	}
	if text := (shape{rows: 1, wide: 2048}).String(); !strings.Contains(text, "2048 B that the mapping does not read") {
		t.Error(text)
	}
}
