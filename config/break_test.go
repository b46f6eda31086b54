package config

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// keyLine is a line of the example that has a key: lead, key, value.
var keyLine = regexp.MustCompile(`^(\s*(?:- )?)([a-z_]+):(?: (.*))?$`)

// breakages are ways to break a line that people find. Each gives the lines that
// take its place, or nothing where it does not apply.
var breakages = []struct {
	name  string
	apply func(lead, key, value string) string
}{
	{"misspelt key", func(lead, key, value string) string { return lead + key + "x: " + value }},
	{"upper case", func(lead, key, value string) string { return lead + strings.ToUpper(key) + ": " + value }},
	{"no colon", func(lead, key, value string) string { return lead + key + " " + value }},
	{"no space behind the colon", func(lead, key, value string) string {
		if value == "" {
			return ""
		}
		return lead + key + ":" + value
	}},
	{"a mapping for a value", func(lead, key, value string) string {
		if value == "" || value == "{}" {
			return ""
		}
		return lead + key + ": {a: b}"
	}},
	{"a text for a section", func(lead, key, value string) string {
		if value != "" && value != "{}" {
			return ""
		}
		return lead + key + ": nonsense"
	}},
	{"a list for a mapping", func(lead, key, value string) string {
		if value != "{}" {
			return ""
		}
		return lead + key + ": [a]"
	}},
	{"a variable that is not set", func(lead, key, value string) string {
		if value == "" || value == "{}" || key == "topic" {
			return ""
		}
		return lead + key + ": ${NO_SUCH_VARIABLE}"
	}},
	{"a quote that is not closed", func(lead, key, value string) string {
		if value == "" {
			return ""
		}
		return lead + key + `: "` + strings.Trim(value, `"`)
	}},
	{"a bracket that is not closed", func(lead, key, value string) string {
		if value == "" {
			return ""
		}
		return lead + key + ": [" + strings.Trim(value, "[]{}")
	}},
	{"a tab", func(lead, key, value string) string {
		if !strings.HasPrefix(lead, " ") {
			return ""
		}
		return "\t" + key + ": " + value
	}},
	{"given twice", func(lead, key, value string) string {
		if value == "" || strings.Contains(lead, "-") {
			return ""
		}
		return lead + key + ": " + value + "\n" + lead + key + ": " + value
	}},
}

// Whoever breaks one line of the example gets an error that points at it.
func TestExample_EveryBrokenLineIsPointedAt(t *testing.T) {
	content, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(content), "\n")
	tried := 0
	for i, line := range lines {
		m := keyLine.FindStringSubmatch(line)
		if m == nil {
			if line != "" && !strings.HasPrefix(strings.TrimSpace(line), "#") {
				t.Errorf("line %d is neither a key nor a comment: %s", i+1, line)
			}
			continue
		}
		for _, b := range breakages {
			text := b.apply(m[1], m[2], m[3])
			if text == "" || text == line {
				continue
			}
			tried++
			broken := strings.Join(lines[:i], "\n") + "\n" + text + "\n" + strings.Join(lines[i+1:], "\n")
			last := i + 1 + strings.Count(text, "\n")
			if err := pointsAt(broken, i+1, last); err != nil {
				t.Errorf("%s in line %d:\n%s\n%v", b.name, i+1, text, err)
			}
		}
	}
	if tried < 500 {
		t.Errorf("only %d breakages", tried)
	}
}

// pointsAt says what is wrong with the errors of a file that is broken between
// two lines.
func pointsAt(content string, first, last int) error {
	_, err := Load(Options{Path: "f", Environ: []string{}, ReadFile: testFiles{"f": content}.read})
	errs, ok := errors.AsType[*Errors](err)
	if !ok {
		return fmt.Errorf("the error is %w", err)
	}
	for _, e := range errs.List {
		if e.Line >= first && e.Line <= last && e.Column > 0 {
			return nil
		}
	}
	return fmt.Errorf("no error points at it: %w", err)
}
