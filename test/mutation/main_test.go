package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const source = "package p\n\nfunc less(a, b int) bool {\n\treturn a < b\n}\n"

// found is a report of noticed changes and of one with a status.
func found(t *testing.T, noticed int, status string) *report {
	t.Helper()
	one := `{"type":"CONDITIONALS_BOUNDARY","status":"` + status + `","line":4,"column":11}`
	all := strings.Repeat(`{"type":"CONDITIONALS_NEGATION","status":"KILLED","line":4,"column":11},`, noticed) + one
	var r report
	if err := json.Unmarshal([]byte(`{"files":[{"file_name":"p.go","mutations":[`+all+`]}]}`), &r); err != nil {
		t.Fatal(err)
	}
	return &r
}

func TestJudge_CountsWhatTestsCanNotice(t *testing.T) {
	read := func(path string) ([]byte, error) {
		if path != "p/p.go" {
			return nil, os.ErrNotExist
		}
		return []byte(source), nil
	}
	const same = "p/p.go CONDITIONALS_BOUNDARY 10 return a < b\n  a reason\n"
	for _, c := range []struct {
		name, status, list string
		noticed            int
		passed             bool
		lived, equivalent  int
	}{
		{"one of twenty lives", "LIVED", "", 19, true, 1, 0},
		{"one of nineteen lives", "LIVED", "", 18, false, 1, 0},
		{"one of two lives and is equivalent", "LIVED", same, 1, true, 0, 1},
		{"one takes too long", "TIMED OUT", "", 1, true, 0, 0},
		{"no test comes to one", "NOT COVERED", "", 1, true, 0, 0},
		{"an equivalent one is noticed after all", "KILLED", same, 1, true, 0, 0},
		{"the list names a line that is gone", "KILLED", strings.Replace(same, "a < b", "b > a", 1), 1, false, 0, 0},
		{"the list names another package's", "KILLED", strings.Replace(same, "p/p.go", "q/p.go", 1), 1, true, 0, 0},
		{"the list names another column", "LIVED", strings.Replace(same, "10", "9", 1), 30, false, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			known, err := readEquivalents(c.list)
			if err != nil {
				t.Fatal(err)
			}
			o, err := target{name: "p"}.judge(found(t, c.noticed, c.status), known, read)
			if err != nil {
				t.Fatal(err)
			}
			if o.passed() != c.passed || len(o.lived) != c.lived || o.equivalent != c.equivalent {
				t.Errorf("passed %t, %+v", o.passed(), o)
			}
		})
	}
	known, err := readEquivalents(same)
	if err != nil {
		t.Fatal(err)
	}
	twice := found(t, 1, "LIVED")
	twice.Files = append(twice.Files, twice.Files[0])
	if o, err := (target{name: "p"}).judge(twice, known, read); err != nil || o.equivalent != 1 || len(o.lived) != 1 {
		t.Errorf("one line of the list stands for two changes: %+v, %v", o, err)
	}
	if _, err := (target{name: "q"}).judge(found(t, 1, "KILLED"), nil, read); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a report of a file that is not there: %v", err)
	}
}

func TestEquivalents_HaveReasons(t *testing.T) {
	if _, err := readEquivalents(equivalents); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"p/p.go KIND 1 text\n", "p/p.go KIND 1 text\np/p.go KIND 2 text\n  reason\n", "p/p.go KIND 1\n  reason\n"} {
		if _, err := readEquivalents(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

// Files that a target names are there, and no other is changed.
func TestTargets_AreThere(t *testing.T) {
	t.Chdir("../..")
	for _, each := range targets {
		excluded, err := each.excluded()
		if err != nil {
			t.Fatal(err)
		}
		all, err := filepath.Glob(each.name + "/*.go")
		if err != nil || len(all) == 0 {
			t.Errorf("target %s has no files: %v", each.name, err)
		}
		for _, name := range each.files {
			if _, err := os.Stat(filepath.Join(each.name, name)); err != nil {
				t.Error(err)
			}
		}
		// Every file of the package, below it or beside it is asked for, or left out.
		err = filepath.WalkDir(each.root(), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			below := filepath.Dir(path) != each.name
			want := !below && (each.files == nil || slices.Contains(each.files, filepath.Base(path)))
			left := slices.ContainsFunc(excluded, func(pattern string) bool {
				return regexp.MustCompile(pattern).MatchString(strings.TrimPrefix(path, each.root()+"/"))
			})
			if left == want {
				t.Errorf("target %s: %s is left out: %t", each.name, path, left)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	var out bytes.Buffer
	if err := start(t.Context(), "gremlins", "1", []string{"nothing"}, &out); err == nil {
		t.Error("a target that does not exist was taken")
	}
}

// A target that the nightly workflow does not name, or names otherwise, never runs.
func TestTargets_RunEachNight(t *testing.T) {
	workflow, err := os.ReadFile("../../.github/workflows/nightly.yml")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, each := range targets {
		names = append(names, each.name)
	}
	if matrix := "target: [" + strings.Join(names, ", ") + "]"; !strings.Contains(string(workflow), matrix) {
		t.Errorf("nightly.yml has no line %q", matrix)
	}
}

func TestChange_IsMadeWhereItSays(t *testing.T) {
	for _, c := range []struct {
		change
		want string // empty: an error
	}{
		{change{Type: "CONDITIONALS_BOUNDARY", Line: 4, Column: 11}, "a <= b"},
		{change{Type: "CONDITIONALS_NEGATION", Line: 4, Column: 11}, "a >= b"},
		{change{Type: "CONDITIONALS_NEGATION", Line: 4, Column: 10}, ""},
		{change{Type: "ARITHMETIC_BASE", Line: 4, Column: 11}, ""},
		{change{Type: "NOTHING", Line: 4, Column: 11}, ""},
		{change{Type: "CONDITIONALS_BOUNDARY", Line: 7, Column: 1}, ""},
		{change{Type: "CONDITIONALS_BOUNDARY", Line: 4, Column: 40}, ""},
	} {
		got, err := c.apply(source)
		if want := strings.Replace(source, "a < b", c.want, 1); c.want != "" && (err != nil || got != want) || c.want == "" && err == nil {
			t.Errorf("%+v gives %q and %v, want %q", c.change, got, err, c.want)
		}
	}
	if got, err := (change{Type: "CONDITIONALS_BOUNDARY", Line: 1, Column: 3}).apply("a <= b"); err != nil || got != "a < b" {
		t.Errorf("the shorter of two signs was changed: %q, %v", got, err)
	}
}

// A change that does not build, or an error of the command, is no test that notices it.
func TestStatus_TellsWhoNoticed(t *testing.T) {
	failed := exec.Command("go", "no-such-command").Run()
	for out, want := range map[string]string{
		"--- FAIL: TestIt\nFAIL\tp\t0.1s\n":      "KILLED",
		"panic: test timed out after 3m0s\nFAIL": "TIMED OUT",
		"FAIL\tp [build failed]\n":               "NOT VIABLE",
	} {
		if got, err := statusOf(t.Context(), failed, []byte(out)); err != nil || got != want {
			t.Errorf("%q: %s and %v, want %s", out, got, err, want)
		}
	}
	if got, err := statusOf(t.Context(), exec.ErrNotFound, nil); err == nil {
		t.Errorf("go cannot be started, which counts as %s", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := statusOf(ctx, failed, nil); err == nil {
		t.Errorf("what was interrupted counts as %s", got)
	}
}
