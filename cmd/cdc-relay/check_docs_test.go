package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

func TestDocumentation_ListsEveryCheckAndNoOther(t *testing.T) {
	text, err := os.ReadFile("../../docs/check.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := make(map[string]bool)
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*`) \\|").FindAllSubmatch(text, -1) {
		for _, name := range regexp.MustCompile("`([a-z_.]+)`").FindAllSubmatch(row[1], -1) {
			documented[string(name[1])] = true
		}
	}
	name := regexp.MustCompile(`"((?:configuration|relay|postgres|publication|slot|table|kafka|topic)(?:\.[a-z_]+)?)"`)
	checks := make(map[string]bool)
	for _, pattern := range []string{"../../replication/check*.go", "../../sink/check*.go", "check*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files (%v)", pattern, len(files), err)
		}
		for _, file := range files {
			if matched, _ := filepath.Match("*_test.go", filepath.Base(file)); matched {
				continue
			}
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range name.FindAllSubmatch(source, -1) {
				checks[string(m[1])] = true
			}
		}
	}
	for check := range checks {
		if !documented[check] {
			t.Errorf("docs/check.md does not have %s", check)
		}
	}
	for check := range documented {
		if !checks[check] {
			t.Errorf("docs/check.md has %s, which no check says", check)
		}
	}
	if len(checks) < 35 {
		t.Errorf("%d checks found: the test looks in the wrong place", len(checks))
	}
}
