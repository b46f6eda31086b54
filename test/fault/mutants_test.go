package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A planted bug whose patch is stale, or makes no program, is a failure of its own. It hides
// nothing of those after it.
func TestMutate_GoesOnPastWhatCannotBePlanted(t *testing.T) {
	t.Chdir("../..") // tests that find a bug are named from there
	kept := mutants
	defer func() { mutants = kept }()
	const test, place = "./wording TestCount_KnowsOneFromMany", "if n != 1 {"
	mutants = []mutant{
		{name: "stale", test: test, patches: []patch{{"wording/wording.go", "no such text", ""}}},
		{name: "no_program", test: test, patches: []patch{{"wording/wording.go", place, "if {"}}},
		{name: "harmless", test: test, patches: []patch{{"wording/wording.go", place, "if 1 != n {"}}},
		{name: "harmful", test: test, patches: []patch{{"wording/wording.go", place, "if n == 1 {"}}},
	}
	var out bytes.Buffer
	p := &programme{flags: flags{out: t.TempDir()}, out: &out, figures: newFigures()}
	if err := p.mutate(t.Context()); !errors.Is(err, errFound) {
		t.Errorf("the outcome is %v", err)
	}
	for _, want := range []string{"FAILED: not found: harmless\n", "FAILED: could not be planted: stale, no_program\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	if n := len(p.figures.Mutants); n != len(mutants) || p.figures.Mutants[n-1].By != "TestCount_KnowsOneFromMany" {
		t.Errorf("%d of %d planted bugs are in the figures: %+v", n, len(mutants), p.figures.Mutants)
	}
}

// A test that was moved or renamed would find nothing.
func TestMutants_NameTestsThatExist(t *testing.T) {
	for _, m := range mutants {
		if m.test == "" {
			continue
		}
		folder, name, ok := strings.Cut(m.test, " ")
		files, err := filepath.Glob(filepath.Join("../..", folder, "*_test.go"))
		if err != nil || !ok {
			t.Fatalf("%s: %q: %v", m.name, m.test, err)
		}
		if !slices.ContainsFunc(files, func(file string) bool {
			text, err := os.ReadFile(file)
			return err == nil && strings.Contains(string(text), "\nfunc "+name+"(")
		}) {
			t.Errorf("%s: folder %s has no test %s", m.name, folder, name)
		}
	}
}
