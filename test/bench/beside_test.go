package main

import (
	"slices"
	"strings"
	"testing"
)

// A run of one suite replaces that suite's figures, and leaves the others where they are.
func TestKeepFigures_ReplacesWholeSections(t *testing.T) {
	old := &Results{Figures: []Figure{{Section: "cutover", What: "first"}, {Section: "audit", What: "old"}, {Section: "audit", What: "older"}}}
	now := &Results{Figures: []Figure{{Section: "audit", What: "new"}}}
	var took []string
	now.keepFigures(old, func(section string) { took = append(took, section) })
	var whats []string
	for _, f := range now.Figures {
		whats = append(whats, f.What)
	}
	if !slices.Equal(whats, []string{"first", "new"}) || !slices.Equal(took, []string{"cutover"}) {
		t.Errorf("%q, of an earlier run %q", whats, took)
	}
	text := now.markdown()
	for _, want := range []string{questions["cutover"], questions["audit"], "| new | "} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
}

func TestQuantiles_AreOfTheSortedValues(t *testing.T) {
	if got, want := quantiles([]float64{3, 1, 2}), "p50 2.0, p99 2.0, longest 3.0 ms (3)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := quantiles(nil); got != "-" {
		t.Errorf("%q of nothing", got)
	}
}

func TestPercent_IsAgainstTheReference(t *testing.T) {
	if got := percent([]float64{90}, []float64{100}); got != "-10.0 %" {
		t.Error(got)
	}
}
